/* The slices of a scrape: one row for each GPU of each session that has not ended, with the numbers
 * of all families. Rows are collected first and written afterwards, as Prometheus wants all samples
 * of a family together. Both can be done in parts. Loop thread. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "daemon/host/budget.h"
#include "daemon/metrics/text.h"

struct session;

/* The most slices in one scrape. One user has half of what the others leave (host/budget.h), so
 * that nobody's slices push all others out. Each slice has 11 samples of some 200 bytes. */
#define METRICS_SLICES_MAX 2048u

enum metrics_slice_family {
	SLICE_MEMORY_REQUEST,
	SLICE_MEMORY_LIMIT,
	SLICE_MEMORY_USED,
	SLICE_MEMORY_PEAK,
	SLICE_MEMORY_REFUSED,
	SLICE_GPU_SECONDS,
	SLICE_WAIT_SECONDS,
	SLICE_OVERRUN_SECONDS,
	SLICE_COMPUTE_REQUEST,
	SLICE_COMPUTE_LIMIT,
	SLICE_COMPUTE_RECEIVED,
	SLICE_FAMILIES,
};

struct metrics_slice {
	size_t labels, labels_size; /* where they are in `labels` of the slices */
	uint64_t number[SLICE_FAMILIES];
};

struct metrics_user;

struct metrics_slices {
	struct metrics_slice *slice; /* owned */
	size_t count, room;
	struct metrics_text labels;
	struct metrics_user *users; /* owned: names that were looked up for this scrape */
	size_t user_count, user_room;
	struct budget budget;
	uint64_t left_out; /* slices beyond the bound */
};

void metrics_slices_begin(struct metrics_slices *slices);
void metrics_slices_free(struct metrics_slices *slices);
/* Adds the slices of a session. False: there is no memory. */
bool metrics_slices_add(struct metrics_slices *slices, const struct session *session);
/* Writes one family with all of its samples. */
void metrics_slices_write(const struct metrics_slices *slices, enum metrics_slice_family family,
			  struct metrics_text *text);
