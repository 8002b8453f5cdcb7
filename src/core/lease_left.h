/* Credits and debts that turns have left clients with, for a table that takes another one's place.
 * The daemon was killed or becomes another program, and nobody gets or loses time by it. A list of
 * numbers whose first is the list's version; whoever doesn't know that begins anew. Same terms as
 * lease.h. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "core/lease.h"

#define LEASE_LEFT_MAX 512u

/* The account of a GPU. Returns how many numbers. */
size_t lease_gpu_leave(struct lease_table *t, uint32_t gpu, uint64_t now,
		       int64_t numbers[static LEASE_LEFT_MAX]);
/* After lease_set(), before there are clients. 0 or -EINVAL: these are other numbers. */
int lease_gpu_take_up(struct lease_table *t, uint32_t gpu, const int64_t *numbers, size_t count,
		      uint64_t now);

/* Those of a client: its accounts on each of its GPUs and what lease_client_stat() tells of it.
 * Returns how many numbers; 0: there is no such client. */
size_t lease_client_leave(struct lease_table *t, uint64_t id, uint64_t now,
			  int64_t numbers[static LEASE_LEFT_MAX]);
/* When they were left. 0: these are other numbers. */
uint64_t lease_client_left_at(const int64_t *numbers, size_t count);
/* Just after lease_client_add(). The time that it held on from then until now is charged. 0 or
 * -EINVAL. */
int lease_client_take_up(struct lease_table *t, uint64_t id, const int64_t *numbers, size_t count,
			 uint64_t now);
