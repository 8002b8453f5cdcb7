/* Promises of compute: what stands against dividing a GPU's time. */
#pragma once

#include <stdint.h>

struct error;
struct pool;
struct session;

/* Whether the GPUs of `mask` (bits: positions in the pool) may promise time from now on. Requests
 * of present sessions (`first` and those after it) count as they were made. If those on one GPU
 * come to more than all of its time: negative, with *err (EXIT_CODE_FAILED) naming the sessions. */
int compute_switch_check(const struct pool *pool, const struct session *first, uint64_t mask,
			 struct error *err);
