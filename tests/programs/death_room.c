/* Memory that a process held is there for the next one as soon as it is known to have ended.
 *
 *   death_room HOW FAMILY ROUNDS [bystander]
 *
 * Each round a process takes all that the slice has room for, in one piece, and ends. As soon as it
 * has been waited for, the next one takes as much, and must get it at the first try.
 *
 *   killed     children of fork, ended by SIGKILL
 *   exited     programs started by posix_spawn, which exit with what they have taken
 *   execed     one process, which execs itself with what it has taken
 *   parent     as killed, but by posix_spawn and beside their parent, which takes all next
 *
 * bystander: beside another process of the session, which has a context and does nothing. Exit 0 if
 * nobody was refused. Prints the bytes of a round. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdbool.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cuda_check.h"
#include "fork_bound.h"
#include "slice_families.h"

/* The step in which all families take memory. */
#define STEP MIB(32)

static char *self;
static const char *family_name;

static void begin(void)
{
	CUcontext context;

	OK(cuInit(0));
	OK(cuDevicePrimaryCtxRetain(&context, 0));
	OK(cuCtxSetCurrent(context));
}

static size_t room(void)
{
	return check_free_bytes() / STEP * STEP;
}

static union slice_piece take(size_t bytes)
{
	const struct slice_family *family = slice_family_find(family_name);
	union slice_piece piece;

	EXPECT(family);
	OK(family->take(&piece, bytes));
	return piece;
}

static void give(union slice_piece piece, size_t bytes)
{
	OK(slice_family_find(family_name)->give(&piece, bytes));
}

/* ---- the processes that end -------------------------------------------------------------- */

/* Says so on `fd` when it has taken them. */
static void hold(size_t bytes, int fd)
{
	begin();
	(void)take(bytes);
	EXPECT(write(fd, &bytes, sizeof(bytes)) == sizeof(bytes));
}

static void measure(int fd)
{
	begin();
	size_t bytes = room();
	EXPECT(write(fd, &bytes, sizeof(bytes)) == sizeof(bytes));
}

/* death_room hold FAMILY BYTES pause|exit: as another program, which writes to its output. */
static int held(char **argv)
{
	size_t bytes = strtoull(argv[3], NULL, 10);

	if (bytes)
		hold(bytes, STDOUT_FILENO);
	else
		measure(STDOUT_FILENO);
	while (strcmp(argv[4], "pause") == 0)
		pause();
	return 0;
}

static pid_t started(size_t bytes, bool pauses, int fd)
{
	char text[24];
	char *const argv[] = {self,
			      (char *)"hold",
			      (char *)family_name,
			      text,
			      (char *)(pauses ? "pause" : "exit"),
			      NULL};
	posix_spawn_file_actions_t actions;
	pid_t pid;

	snprintf(text, sizeof(text), "%zu", bytes);
	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_adddup2(&actions, fd, STDOUT_FILENO);
	EXPECT(posix_spawn(&pid, self, &actions, NULL, argv, environ) == 0);
	posix_spawn_file_actions_destroy(&actions);
	return pid;
}

static pid_t forked(size_t bytes, int fd)
{
	pid_t pid = fork_bound();

	EXPECT(pid >= 0);
	if (pid)
		return pid;
	if (bytes)
		hold(bytes, fd);
	else
		measure(fd);
	while (bytes)
		pause();
	_exit(0);
}

/* ---- those who start and end them -------------------------------------------------------- */

/* The process's words; 0: it ended without a word. */
static size_t said(int fd)
{
	size_t bytes = 0;
	ssize_t n;

	do
		n = read(fd, &bytes, sizeof(bytes));
	while (n < 0 && errno == EINTR);
	return n == sizeof(bytes) ? bytes : 0;
}

static void reap(pid_t pid, bool killed)
{
	int status;

	if (killed)
		EXPECT(kill(pid, SIGKILL) == 0);
	EXPECT(waitpid(pid, &status, 0) == pid);
	EXPECT(killed ? WIFSIGNALED(status) : WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

/* From its start to its end; what it said. Killed: while it holds its memory. */
static size_t run_one(bool by_fork, size_t bytes, bool killed)
{
	int pipes[2];

	EXPECT(pipe2(pipes, O_CLOEXEC) == 0);
	pid_t pid = by_fork ? forked(bytes, pipes[1]) : started(bytes, killed, pipes[1]);
	close(pipes[1]);
	size_t word = said(pipes[0]);
	close(pipes[0]);
	EXPECT(word);
	reap(pid, killed);
	return word;
}

static size_t one_after_the_other(bool by_fork, bool killed, int rounds)
{
	size_t bytes = run_one(by_fork, 0, false);

	for (int i = 0; i < rounds; i++)
		(void)run_one(by_fork, bytes, killed);
	return bytes;
}

static size_t beside_their_parent(int rounds)
{
	begin();
	size_t all = room(), bytes = run_one(false, 0, false);

	for (int i = 0; i < rounds; i++) {
		(void)run_one(false, bytes, true);
		give(take(all), all);
	}
	return bytes;
}

/* death_room execed FAMILY ROUNDS [bystander] [BYTES]: the first one looks how much there is. */
static size_t again_and_again(int rounds, size_t bytes)
{
	char left[16], text[24];
	char *const argv[] = {self, (char *)"execed", (char *)family_name, left, (char *)"-", text,
			      NULL};

	begin();
	if (!bytes)
		bytes = room();
	(void)take(bytes);
	if (!rounds)
		return bytes;
	snprintf(left, sizeof(left), "%d", rounds - 1);
	snprintf(text, sizeof(text), "%zu", bytes);
	execv(self, argv);
	return 0;
}

static pid_t bystander(void)
{
	int pipes[2];

	EXPECT(pipe2(pipes, O_CLOEXEC) == 0);
	pid_t pid = fork_bound();
	EXPECT(pid >= 0);
	if (pid == 0) {
		measure(pipes[1]);
		for (;;)
			pause();
	}
	EXPECT(said(pipes[0]));
	close(pipes[0]);
	close(pipes[1]);
	return pid;
}

int main(int argc, char **argv)
{
	const char *how = argc > 1 ? argv[1] : "";
	size_t bytes = 0;

	if (argc < 4)
		return 2;
	self = argv[0];
	family_name = argv[2];
	if (strcmp(how, "hold") == 0)
		return held(argv);
	int rounds = atoi(argv[3]);
	pid_t beside = argc > 4 && strcmp(argv[4], "bystander") == 0 ? bystander() : 0;
	if (strcmp(how, "killed") == 0)
		bytes = one_after_the_other(true, true, rounds);
	else if (strcmp(how, "exited") == 0)
		bytes = one_after_the_other(false, false, rounds);
	else if (strcmp(how, "parent") == 0)
		bytes = beside_their_parent(rounds);
	else if (strcmp(how, "execed") == 0)
		bytes = again_and_again(rounds, argc > 5 ? strtoull(argv[5], NULL, 10) : 0);
	if (beside)
		reap(beside, true);
	printf("%zu\n", bytes);
	return bytes ? 0 : 1;
}
