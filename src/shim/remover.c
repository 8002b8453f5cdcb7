/* A process that outlives a shim which is killed, and then removes the container of the shim's job.
 * It is no child of the shim, has a session of its own, and is in the shim's cgroup, not in the
 * job's. As long as it lives, the record is locked: a daemon of the job's own user waits for that
 * before it says that the job is over. */
#include <fcntl.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/error.h"
#include "base/file.h"
#include "base/macros.h"
#include "shim/shim.h"

/* A runtime has this long to remove the container, in seconds. */
#define PATIENCE_S 60
/* podman fails at first where the process that watched the container is killed meanwhile. */
#define TRIES_MAX 10
#define PAUSE_MS 500

/* All but these: others wait for the end of the shim's, such as the command for its gate. */
static void descriptors_close(int *kept[], size_t count)
{
	int next = STDERR_FILENO + 1;

	/* First to numbers that the second loop does not replace. */
	for (size_t i = 0; i < count; i++)
		*kept[i] = fcntl(*kept[i], F_DUPFD_CLOEXEC, 64);
	for (size_t i = 0; i < count; i++)
		*kept[i] = dup3(*kept[i], next++, O_CLOEXEC);
	(void)syscall(SYS_close_range, next, ~0u, 0);
}

static bool is_removed(const struct shim *shim)
{
	int status;
	pid_t pid = shim_container_kill(shim, false);

	return pid > 0 && waitpid(pid, &status, 0) == pid && status == 0;
}

/* A job goes on when its shim alone was killed: its container is removed when the runtime's client
 * has ended. */
static _Noreturn void remover_become(struct shim *shim, int shims_end, int client)
{
	struct pollfd fd = {.events = POLLIN};
	char byte;

	setsid();
	/* A kill of all processes by the name carve-shim spares it. */
	prctl(PR_SET_NAME, "carve-remover", 0, 0, 0);
	descriptors_close((int *[]){&shim->record, &shims_end, &client}, 3);
	if (shim->record < 0 || client < 0 || read(shims_end, &byte, 1) == 1)
		_exit(EXIT_CODE_OK);
	fd.fd = client;
	while (poll(&fd, 1, -1) < 0)
		;
	alarm(PATIENCE_S);
	for (int i = 0; i < TRIES_MAX && !is_removed(shim); i++)
		(void)poll(NULL, 0, PAUSE_MS);
	_exit(EXIT_CODE_OK);
}

void shim_remover_start(struct shim *shim)
{
	int ends[2];
	cleanup_close int client = (int)syscall(SYS_pidfd_open, shim->child, 0);

	if (client < 0 || pipe2(ends, O_CLOEXEC) < 0)
		return;
	/* Both have it, as the lock is the open file's. */
	(void)flock(shim->record, LOCK_EX | LOCK_NB);
	pid_t pid = fork();
	if (pid == 0) {
		close(ends[1]);
		if (fork() == 0)
			remover_become(shim, ends[0], client);
		_exit(EXIT_CODE_OK);
	}
	close(ends[0]);
	shim->remover = ends[1];
	if (pid > 0)
		waitpid(pid, NULL, 0);
}
