#include "cuda/foreign.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/file.h"
#include "base/macros.h"

CUresult memory_export_token(uint64_t id, int fd, const struct memory_note *note,
			     uint8_t token[CLIENT_TOKEN_SIZE])
{
	uint8_t text[CLIENT_NOTE_SIZE] = {0};

	memcpy(text, note, sizeof(*note));
	return result_from_errno(client_memory_export(driver.client, id, fd, text, token));
}

CUresult memory_export_fd(uint64_t id, int fd, const struct memory_note *note, int *ret_fd)
{
	uint8_t text[CLIENT_NOTE_SIZE] = {0};

	memcpy(text, note, sizeof(*note));
	return result_from_errno(client_memory_export_fd(driver.client, id, fd, text, ret_fd));
}

uint64_t window_reserve(uint64_t size, uint64_t alignment, uint64_t wish)
{
	const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
	uint64_t unit = MAX(alignment, BLOCK_SIZE);
	void *p;

	if (wish) {
		p = mmap((void *)(uintptr_t)wish, size, PROT_NONE, flags | MAP_FIXED_NOREPLACE, -1,
			 0);
		if (p == (void *)(uintptr_t)wish)
			return wish;
		if (p != MAP_FAILED)
			munmap(p, size);
	}
	p = mmap(NULL, size + unit, PROT_NONE, flags, -1, 0);
	if (p == MAP_FAILED)
		return 0;
	uint64_t start = (uint64_t)(uintptr_t)p, at = ALIGN_UP(start, unit);
	if (at > start)
		munmap(p, at - start);
	munmap((void *)(uintptr_t)(at + size), start + unit - at);
	return at;
}

void window_release(uint64_t address, uint64_t size)
{
	munmap((void *)(uintptr_t)address, size);
}

CUresult foreign_map(struct client_import *import, bool window, struct foreign *ret)
{
	struct foreign foreign = {.id = import->id};
	cleanup_close int fd = import->fd;

	memcpy(&foreign.note, import->note, sizeof(foreign.note));
	uint64_t size = ALIGN_UP(foreign.note.size, BLOCK_SIZE);
	foreign.host = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd,
			    (off_t)foreign.note.offset);
	if (foreign.host == MAP_FAILED) {
		client_memory_free(driver.client, foreign.id);
		return CUDA_ERROR_MAP_FAILED;
	}
	if (window)
		foreign.window = window_reserve(size, BLOCK_SIZE, 0);
	if (window && !foreign.window) {
		foreign_unmap(&foreign);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	*ret = foreign;
	return CUDA_SUCCESS;
}

void foreign_unmap(struct foreign *foreign)
{
	uint64_t size = ALIGN_UP(foreign->note.size, BLOCK_SIZE);

	munmap(foreign->host, size);
	if (foreign->window)
		window_release(foreign->window, size);
	client_memory_free(driver.client, foreign->id);
}

struct device *foreign_device(wire_device wire)
{
	for (int i = 0; i < driver.device_count; i++)
		if (driver.devices[i].wire == wire)
			return &driver.devices[i];
	return NULL;
}
