/* The daemon's side of a session's ledger: the two sealed memfds and their mappings. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "proto/ledger.h"

/* Processes of one session at most, the daemon's slot included. */
#define BOOKS_SLOTS 256u

struct books_gpu {
	uint8_t uuid[LEDGER_UUID_SIZE];
	const char *uuid_text;
	const char *pci_bus_id;
	uint64_t limit_bytes;
	uint64_t context_bytes;
};

/* Owned by a session; zeroed with descriptors -1: not made yet. */
struct books {
	int limits_rw_fd; /* the daemon's own */
	int limits_fd;    /* read-only: what workloads are handed */
	int ledger_fd;
	struct ledger_limits *limits;
	struct ledger ledger;
	struct ledger_header *shape; /* the daemon's own copy, see struct ledger */
	size_t ledger_size;
};

#define BOOKS_NONE ((struct books){.limits_rw_fd = -1, .limits_fd = -1, .ledger_fd = -1})

static inline bool books_exist(const struct books *books)
{
	return books->ledger.header != NULL;
}

/* Makes both parts for a new session. 0 or -errno. */
int books_create(struct books *ret, const char *session, const struct books_gpu *gpus,
		 uint32_t gpu_count);
/* The three descriptors, as far as a daemon before this one had them. */
struct books_fds {
	int limits_rw, limits, ledger;
};
/* Takes a ledger up again: checks seals, owner, sizes and content, and that it is this session's
 * with these many GPUs. On success the descriptors are the books'. 0 or -errno. */
int books_adopt(struct books *ret, const char *session, uint32_t gpu_count,
		const struct books_fds *from);
void books_clear(struct books *books);
