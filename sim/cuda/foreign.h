/* Memory of another process (or of another handle of this one), mapped here. */
#pragma once

#include "cuda/memory.h"

/* The record that an exporter writes beside its memory for importers. */
struct memory_note {
	uint64_t offset; /* in the file behind it */
	uint64_t size;
	uint32_t flags;
	uint32_t spare;
	CUmemAllocationProp prop; /* VMM memory's */
};
_Static_assert(sizeof(struct memory_note) <= CLIENT_NOTE_SIZE, "fits the host's note");

struct foreign {
	uint64_t id; /* our reference at the host */
	struct memory_note note;
	uint8_t *host;   /* where the driver sees it */
	uint64_t window; /* where programs do; 0: not reserved */
};

/* Gives the memory to others, by token or by descriptor. */
CUresult memory_export_token(uint64_t id, int fd, const struct memory_note *note,
			     uint8_t token[CLIENT_TOKEN_SIZE]);
CUresult memory_export_fd(uint64_t id, int fd, const struct memory_note *note, int *ret_fd);
/* Maps what was imported; takes over import's reference and descriptor, always. With `window`, it
 * gets an address too. */
CUresult foreign_map(struct client_import *import, bool window, struct foreign *ret);
void foreign_unmap(struct foreign *foreign);
/* The device of this process that the memory is on; NULL: it does not see that one. */
struct device *foreign_device(wire_device wire);
/* Reserves addresses that the CPU cannot use. 0: none left. */
uint64_t window_reserve(uint64_t size, uint64_t alignment, uint64_t wish);
void window_release(uint64_t address, uint64_t size);
