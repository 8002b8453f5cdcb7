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
	int limits_fd; /* read-only: what workloads are handed */
	int ledger_fd;
	struct ledger_limits *limits;
	struct ledger ledger;
	struct ledger_header *shape; /* the daemon's own copy, see struct ledger */
	size_t ledger_size;
};

#define BOOKS_NONE ((struct books){.limits_fd = -1, .ledger_fd = -1})

static inline bool books_exist(const struct books *books)
{
	return books->ledger.header != NULL;
}

/* Makes both parts for a new session. 0 or -errno. */
int books_create(struct books *ret, const char *session, const struct books_gpu *gpus,
		 uint32_t gpu_count);
/* Takes the ledger back from descriptors of a living process (which stay the caller's): checks
 * names, seals, sizes and content, and that it is this session's with these many GPUs. 0 or -errno.
 */
int books_adopt(struct books *ret, const char *session, uint32_t gpu_count, const char *limits_path,
		const char *ledger_path);
/* Whether it is a memfd of this daemon's user, sealed as parts of a ledger are: only then may a
 * descriptor that a client sent be opened anew, which would be done with the daemon's rights. */
bool books_sealed(int fd);
void books_clear(struct books *books);

/* A slot that no process has; 0: none left. */
uint32_t books_slot_free(const struct books *books);
