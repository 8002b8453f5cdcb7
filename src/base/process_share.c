#include "base/process_share.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <sys/mman.h>
#include <unistd.h>

/* Room for several paths in each of the functions that call each other. */
#define STACK_SIZE ((size_t)1 << 20)
#define GUARD_SIZE ((size_t)65536)

#ifdef __SANITIZE_ADDRESS__
/* It knows one stack of each thread. */
pid_t process_share(int (*run)(void *arg), void *arg, bool waits)
{
	pid_t child = fork();

	if (child == 0)
		_exit(run(arg));
	return child < 0 ? -errno : child;
}
#else
pid_t process_share(int (*run)(void *arg), void *arg, bool waits)
{
	char *stack = mmap(NULL, STACK_SIZE, PROT_READ | PROT_WRITE,
			   MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK | MAP_NORESERVE, -1, 0);

	if (stack == MAP_FAILED)
		return -errno;
	pid_t child = mprotect(stack, GUARD_SIZE, PROT_NONE) < 0
			      ? -1
			      : clone(run, stack + STACK_SIZE,
				      CLONE_VM | SIGCHLD | (waits ? CLONE_VFORK : 0), arg);
	int error = errno;

	if (child < 0 || waits)
		(void)munmap(stack, STACK_SIZE);
	return child < 0 ? -error : child;
}
#endif
