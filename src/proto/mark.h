/* Marks on descriptors of GPU memory (cuMemExportToShareableHandle). By them the daemon knows that
 * one of them is open still, in any process or on its way through a socket.
 *
 * A mark is a lock of the open file (F_OFD_SETLK, shared), at a place that no other program would
 * use. The front takes it when the driver has given the descriptor out. The kernel drops it with
 * the last descriptor, and lists it in /proc/locks meanwhile. Its place says whose memory it is,
 * its length how much. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "proto/ledger.h"

/* Bits of a lock's start, from below: a number, the GPU's position in the session, the life and the
 * slot of the process that exported it, and the session. */
#define MARK_NUMBER_BITS 17
#define MARK_GPU_BITS 6
#define MARK_LIFE_BITS 12
#define MARK_SLOT_BITS 10
#define MARK_SESSION_BITS 17
/* A byte of its length stands for this many of memory, rounded up. */
#define MARK_UNIT (2ull << 20)
#define MARK_BYTES_MOST (1ull << 46)

struct mark {
	uint32_t session; /* mark_session() */
	uint32_t slot;
	uint32_t life; /* mark_life() */
	uint32_t gpu;
	uint32_t number; /* tells one of another; others may have the same */
};

/* Some bits of an ID, and of when the process that has a slot started. */
uint32_t mark_session(const char *id);
uint32_t mark_life(uint64_t start_time);

/* The offset at which the lock starts. */
uint64_t mark_start(const struct mark *mark);
struct mark mark_of(uint64_t start);
static inline uint64_t mark_length(uint64_t bytes)
{
	return bytes / MARK_UNIT + (bytes % MARK_UNIT != 0);
}
