#include "daemon/host/containers.h"

#include <errno.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

int containers_link(int dir_fd)
{
	if (mkdirat(dir_fd, CONTAINERS_DIR, 0755) < 0 && errno != EEXIST)
		return -errno;
	/* The mode does not depend on the umask, nor on what was made of it meanwhile. */
	if (fchmodat(dir_fd, CONTAINERS_DIR, 0755, 0) < 0)
		return -errno;
	(void)unlinkat(dir_fd, CONTAINERS_DIR "/fresh", 0);
	if (linkat(dir_fd, "attach.sock", dir_fd, CONTAINERS_DIR "/fresh", 0) < 0 ||
	    renameat(dir_fd, CONTAINERS_DIR "/fresh", dir_fd, CONTAINERS_DIR "/attach.sock") < 0)
		return -errno;
	return 0;
}
