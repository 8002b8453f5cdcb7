#include "host/shared_page.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/file.h"

/* Linux 5.1; older C libraries lack the name. */
#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif

void *shared_page_new(const char *name, size_t size, int *ret_fd)
{
	cleanup_close int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);

	if (fd < 0 || ftruncate(fd, (off_t)size) < 0)
		return NULL;
	void *page = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (page == MAP_FAILED)
		return NULL;
	if (fcntl(fd, F_ADD_SEALS,
		  F_SEAL_FUTURE_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) < 0) {
		munmap(page, size);
		return NULL;
	}
	*ret_fd = steal_fd(&fd);
	return page;
}

void shared_page_free(void *page, size_t size, int *fd)
{
	if (page)
		munmap(page, size);
	close_fd(fd);
}
