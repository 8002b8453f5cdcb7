/* Preloaded into a daemon, is a disk whose every sync takes SLOW_DISK ms. Those that its first
 * thread waits for, which is its loop, are counted: a byte each in the file SLOW_DISK_LOOP. Other
 * programs that inherit it have their disk as it is. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static void loop_note(void)
{
	const char *path = getenv("SLOW_DISK_LOOP");
	int fd =
		path && gettid() == getpid() ? open(path, O_WRONLY | O_CREAT | O_APPEND, 0600) : -1;

	if (fd < 0)
		return;
	(void)!write(fd, ".", 1);
	close(fd);
}

static void wait_long(void)
{
	const char *text = getenv("SLOW_DISK");
	long ms = text ? atol(text) : 0;

	if (strcmp(program_invocation_short_name, "carved") != 0)
		return;
	loop_note();
	nanosleep(&(struct timespec){ms / 1000, ms % 1000 * 1000000}, NULL);
}

__attribute__((visibility("default"))) int fsync(int fd)
{
	wait_long();
	return (int)syscall(SYS_fsync, fd);
}

__attribute__((visibility("default"))) int fdatasync(int fd)
{
	wait_long();
	return (int)syscall(SYS_fdatasync, fd);
}
