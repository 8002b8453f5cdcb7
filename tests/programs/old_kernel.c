/* Preloaded into a daemon, has it see a kernel of before Linux 6.16, which cannot refuse
 * descriptors (SO_PASSRIGHTS). */
#include <errno.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#define PASSRIGHTS 83

__attribute__((visibility("default"))) int setsockopt(int fd, int level, int option,
						      const void *value, socklen_t size)
{
	if (level == SOL_SOCKET && option == PASSRIGHTS) {
		errno = ENOPROTOOPT;
		return -1;
	}
	return (int)syscall(SYS_setsockopt, fd, level, option, value, size);
}
