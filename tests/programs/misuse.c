/* Programs that treat the process which they share with the front in unusual ways. Each case prints
 * what tests/system/slice/test_misuse.py compares; a call of the driver that fails where it may not
 * ends it with 1.
 *
 *   misuse CASE [ARGUMENT]
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "cuda_check.h"

#define STACK_BYTES (256u << 10)
#define PIECE MIB(20)

static char *self;

static CUcontext begin(void)
{
	CUcontext context;

	OK(cuInit(0));
	OK(cuDevicePrimaryCtxRetain(&context, 0));
	OK(cuCtxSetCurrent(context));
	return context;
}

static size_t room(void)
{
	size_t free_bytes, total;

	OK(cuMemGetInfo_v2(&free_bytes, &total));
	return free_bytes;
}

/* Takes pieces until there is no room; how many. */
static unsigned take_all(size_t piece)
{
	unsigned count = 0;
	CUdeviceptr pointer;
	CUresult result;

	while ((result = cuMemAlloc_v2(&pointer, piece)) == CUDA_SUCCESS)
		count++;
	EXPECT(result == CUDA_ERROR_OUT_OF_MEMORY);
	return count;
}

static void take_and_give(unsigned rounds)
{
	for (unsigned i = 0; i < rounds; i++) {
		CUdeviceptr pointer;

		OK(cuMemAlloc_v2(&pointer, PIECE));
		OK(cuMemFree_v2(pointer));
	}
}

/* The rest of a case, where another process or the test looks on: says that it is ready and goes on
 * when told to. */
static void wait_for_test(void)
{
	char byte;

	printf("ready\n");
	fflush(stdout);
	while (read(STDIN_FILENO, &byte, 1) < 0 && errno == EINTR)
		;
}

/* ---- children ---------------------------------------------------------------------------- */

static void child(int argc, char **argv)
{
	size_t before;

	begin();
	before = room();
	printf("child %u of %zu\n", take_all(MIB(100)), before / MIB(100));
}

static void reap(pid_t pid)
{
	int status = 1;

	EXPECT(pid > 0);
	EXPECT(waitpid(pid, &status, 0) == pid);
	EXPECT(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

/* Memory of a child that ended comes back; the driver and the daemon take a moment for it. */
static void wait_for_room(size_t bytes)
{
	const struct timespec nap = {.tv_nsec = 20000000};

	for (int i = 0; i < 1500 && room() < bytes; i++)
		nanosleep(&nap, NULL);
	EXPECT(room() >= bytes);
}

/* A program that uses CUDA, by vfork and exec out of one that does. */
static void by_vfork(int argc, char **argv)
{
	CUdeviceptr pointer;

	begin();
	OK(cuMemAlloc_v2(&pointer, MIB(300)));
	size_t before = room();
	for (int i = 0; i < 3; i++) {
		pid_t pid = vfork();

		if (pid == 0) {
			execl(self, self, "child", (char *)NULL);
			_exit(127);
		}
		reap(pid);
		wait_for_room(before);
		take_and_give(20);
	}
	OK(cuMemFree_v2(pointer));
	wait_for_test();
}

static void by_posix_spawn(int argc, char **argv)
{
	char *const child_argv[] = {self, (char *)"child", NULL};
	posix_spawn_file_actions_t actions;
	CUdeviceptr pointer;

	begin();
	OK(cuMemAlloc_v2(&pointer, MIB(300)));
	posix_spawn_file_actions_init(&actions);
	/* Over the front's own, in the child, where they are gone by then. */
	for (int fd = 48; fd < 56; fd++)
		posix_spawn_file_actions_adddup2(&actions, STDOUT_FILENO, fd);
	size_t before = room();
	for (int i = 0; i < 3; i++) {
		pid_t pid;

		EXPECT(posix_spawn(&pid, self, &actions, NULL, child_argv, environ) == 0);
		reap(pid);
		wait_for_room(before);
		take_and_give(20);
	}
	wait_for_test();
}

/* Two processes of one memory: the child has its parent's account, and may be at it when that is
 * dead. It holds neither the connection nor what the driver gave. */
static int shares(void *arg)
{
	syscall(SYS_close_range, 3, ~0u, 0);
	dprintf(STDOUT_FILENO, "%d\n", (int)getpid());
	kill(getppid(), SIGKILL);
	return pause();
}

static void shared_memory(int argc, char **argv)
{
	char *stack = malloc(STACK_BYTES);
	CUdeviceptr pointer;

	begin();
	OK(cuMemAlloc_v2(&pointer, MIB(100)));
	wait_for_test();
	reap(clone(shares, stack + STACK_BYTES, CLONE_VM | SIGCHLD, NULL));
}

/* A process of the same memory that calls the driver itself: whatever that says, it says it. */
static int calls(void *arg)
{
	CUdeviceptr pointer = 0;
	CUresult taken = cuMemAlloc_v2(&pointer, PIECE);
	CUresult set = cuMemsetD8_v2(pointer, 1, PIECE), waited = cuCtxSynchronize();
	CUresult given = pointer ? cuMemFree_v2(pointer) : taken;

	dprintf(STDOUT_FILENO, "%d %d %d %d\n", taken, set, waited, given);
	return 0;
}

static void sibling(int argc, char **argv)
{
	char *stack = malloc(STACK_BYTES);
	CUdeviceptr pointer;

	begin();
	OK(cuMemAlloc_v2(&pointer, MIB(100)));
	reap(clone(calls, stack + STACK_BYTES, CLONE_VM | SIGCHLD, NULL));
	take_and_give(20);
	OK(cuMemsetD8_v2(pointer, 1, MIB(100)));
	OK(cuCtxSynchronize());
	wait_for_test();
	printf("%u\n", take_all(PIECE));
	wait_for_test();
}

/* A daemon in the old way: its descriptors are closed and it has no ancestors. */
static void daemonised(int argc, char **argv)
{
	int pipes[2];
	char text[32] = "";

	EXPECT(pipe(pipes) == 0);
	pid_t pid = fork();
	if (pid == 0) {
		setsid();
		if (fork() > 0)
			_exit(0);
		int keep = dup2(pipes[1], 200);

		for (int fd = 0; fd < 200; fd++)
			close(fd);
		EXPECT(chdir("/") == 0 && open("/dev/null", O_RDWR) == 0);
		begin();
		take_all(PIECE);
		dprintf(keep, "%d\n", (int)getpid());
		pause();
	}
	reap(pid);
	EXPECT(read(pipes[0], text, sizeof(text) - 1) > 0);
	printf("%s", text);
	wait_for_test();
}

static void *goes_on(void *arg)
{
	CUdeviceptr pointer;

	begin();
	OK(cuMemAlloc_v2(&pointer, MIB(300)));
	wait_for_test();
	take_and_give(3000);
	printf("%u\n", take_all(PIECE));
	wait_for_test();
	exit(0);
}

/* Ends before the others: to /proc the process is a zombie. */
static void first_thread(int argc, char **argv)
{
	pthread_t thread;

	EXPECT(pthread_create(&thread, NULL, goes_on, NULL) == 0);
	pthread_exit(NULL);
}

/* ---- descriptors ------------------------------------------------------------------------- */

/* Puts other files in place of the front's: ended up there, nothing may be read from or written to
 * them. */
static void over_descriptors(int argc, char **argv)
{
	int pipes[2], extra;
	char byte;
	CUdeviceptr pointer;
	CUcontext context;

	begin();
	OK(cuMemAlloc_v2(&pointer, MIB(300)));
	EXPECT(pipe2(pipes, O_NONBLOCK) == 0);
	for (int fd = 48; fd < 56; fd++)
		if (strcmp(argv[0], "close") == 0)
			close(fd);
		else
			EXPECT(dup2(strcmp(argv[0], "read") == 0 ? pipes[0] : pipes[1], fd) == fd);
	take_and_give(3000);
	wait_for_test();
	OK(cuCtxCreate_v2(&context, 0, 0));
	take_and_give(100);
	EXPECT(read(pipes[0], &byte, 1) < 0 && errno == EAGAIN);
	/* They are the program's still. */
	for (int fd = 48; strcmp(argv[0], "close") != 0 && fd < 56; fd++)
		EXPECT(fcntl(fd, F_GETFL) >= 0 && write(pipes[1], "x", 1) == 1 &&
		       read(pipes[0], &byte, 1) == 1);
	extra = open("/dev/null", O_RDONLY);
	EXPECT(extra >= 0);
	room();
	printf("%u\n", take_all(PIECE));
	wait_for_test();
}

/* All of them, the driver's too: what it held is gone, and what it asks for fails. */
static void closed_all(int argc, char **argv)
{
	CUdeviceptr pointer;

	begin();
	OK(cuMemAlloc_v2(&pointer, MIB(300)));
	syscall(SYS_close_range, 3, ~0u, 0);
	wait_for_test();
	(void)cuMemFree_v2(pointer);
	(void)cuMemAlloc_v2(&pointer, PIECE);
	wait_for_test();
}

/* At most so many descriptors; from before the first call, or after it. */
static void few_descriptors(int argc, char **argv)
{
	struct rlimit limit = {.rlim_cur = (rlim_t)atoi(argv[0]), .rlim_max = 4096};
	bool late = argc > 1;
	CUcontext context;
	CUresult result;

	if (late)
		begin();
	EXPECT(setrlimit(RLIMIT_NOFILE, &limit) == 0);
	result = late ? CUDA_SUCCESS : cuInit(0);
	if (result == CUDA_SUCCESS && !late)
		result = cuDevicePrimaryCtxRetain(&context, 0);
	if (result == CUDA_SUCCESS && !late)
		result = cuCtxSetCurrent(context);
	printf("%d %u\n", (int)result, result == CUDA_SUCCESS ? take_all(PIECE) : 0);
	wait_for_test();
}

/* ---- other limits ------------------------------------------------------------------------ */

static size_t address_space(void)
{
	char text[128] = "";
	int fd = open("/proc/self/statm", O_RDONLY);

	EXPECT(fd >= 0 && read(fd, text, sizeof(text) - 1) > 0);
	close(fd);
	return strtoul(text, NULL, 10) * (size_t)sysconf(_SC_PAGESIZE);
}

/* No address space left, so that the front cannot make room to remember what it charged. */
static void little_memory(int argc, char **argv)
{
	static CUdeviceptr pointers[100000];
	struct rlimit before, limit;
	unsigned count = 0;

	begin();
	size_t at_first = room();
	EXPECT(getrlimit(RLIMIT_AS, &before) == 0);
	limit = before;
	limit.rlim_cur = address_space() + (size_t)atoi(argv[0]) * KIB(1);
	EXPECT(setrlimit(RLIMIT_AS, &limit) == 0);
	while (count < ARRAY_SIZE(pointers) &&
	       cuMemAlloc_v2(&pointers[count], KIB(16)) == CUDA_SUCCESS)
		count++;
	for (unsigned i = 0; i < count; i++)
		OK(cuMemFree_v2(pointers[i]));
	EXPECT(setrlimit(RLIMIT_AS, &before) == 0);
	take_and_give(10);
	printf("%u %zu %zu\n", count, at_first, room());
	wait_for_test();
}

static void on_signal(int signal)
{
}

/* A thousand signals a second, none of which restarts what it interrupts; or none at all. */
static void signals(int argc, char **argv)
{
	struct itimerval timer = {.it_interval = {.tv_usec = 1000}, .it_value = {.tv_usec = 1000}};
	struct sigaction action = {.sa_handler = on_signal};
	stack_t stack = {.ss_sp = malloc(STACK_BYTES), .ss_size = STACK_BYTES};
	sigset_t all;

	if (strcmp(argv[0], "blocked") == 0) {
		sigfillset(&all);
		sigprocmask(SIG_SETMASK, &all, NULL);
	} else {
		action.sa_flags = SA_ONSTACK;
		EXPECT(sigaltstack(&stack, NULL) == 0 && sigaction(SIGALRM, &action, NULL) == 0);
		EXPECT(setitimer(ITIMER_REAL, &timer, NULL) == 0);
	}
	begin();
	for (int i = 0; i < 10; i++) {
		CUcontext context;

		OK(cuCtxCreate_v2(&context, 0, 0));
		take_and_give(200);
		OK(cuCtxDestroy_v2(context));
		begin();
	}
	printf("%u\n", take_all(PIECE));
	setitimer(ITIMER_REAL, &(struct itimerval){0}, NULL);
	wait_for_test();
}

/* The file system it started in is gone, the daemon's socket with it. */
static void changed_root(int argc, char **argv)
{
	CUcontext context;

	begin();
	if (chroot("/proc/self/fdinfo") < 0 || chdir("/") < 0) {
		printf("no\n");
		return;
	}
	for (int fd = 48; fd < 56; fd++)
		close(fd);
	OK(cuCtxCreate_v2(&context, 0, 0));
	take_and_give(3000);
	printf("%u\n", take_all(PIECE));
	wait_for_test();
}

/* A call that the driver does not need once it runs fails. */
static void filtered(int argc, char **argv)
{
	static const int refused[] = {SYS_socket, SYS_connect, SYS_statx,
				      SYS_poll,   SYS_openat,  SYS_prctl};
	struct sock_filter code[2 * ARRAY_SIZE(refused) + 2];
	struct sock_fprog program = {.len = ARRAY_SIZE(code), .filter = code};
	unsigned at = 0;
	CUcontext context;

	begin();
	code[at++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS,
						  offsetof(struct seccomp_data, nr));
	for (size_t i = 0; i < ARRAY_SIZE(refused); i++) {
		code[at++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K,
							  (unsigned)refused[i], 0, 1);
		code[at++] =
			(struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM);
	}
	code[at++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
	EXPECT(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
	EXPECT(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0);
	OK(cuCtxCreate_v2(&context, 0, 0));
	take_and_give(3000);
	printf("%u\n", take_all(PIECE));
	wait_for_test();
}

int main(int argc, char **argv)
{
	static const struct check cases[] = {
		{"child", child},
		{"vfork", by_vfork},
		{"posix-spawn", by_posix_spawn},
		{"shared-memory", shared_memory},
		{"sibling", sibling},
		{"daemonised", daemonised},
		{"first-thread", first_thread},
		{"over-descriptors", over_descriptors},
		{"closed-all", closed_all},
		{"few-descriptors", few_descriptors},
		{"little-memory", little_memory},
		{"signals", signals},
		{"changed-root", changed_root},
		{"filtered", filtered},
	};

	self = argv[0];
	setvbuf(stdout, NULL, _IOLBF, BUFSIZ);
	return checks_main(argc, argv, cases, ARRAY_SIZE(cases));
}
