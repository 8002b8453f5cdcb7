/* A library that a hostile user names as the driver, or preloads: whichever process loads it
 * appends its effective user to the file that EVIL_MARK names. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

__attribute__((constructor)) static void begin(void)
{
	const char *mark = getenv("EVIL_MARK");
	int fd = mark ? open(mark, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666) : -1;

	if (fd < 0)
		return;
	dprintf(fd, "%u\n", (unsigned)geteuid());
	close(fd);
}
