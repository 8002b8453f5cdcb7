/* How busy something was of late: time is added as it passes, the answer covers the last second. */
#pragma once

#include <stdint.h>

#define METER_BUCKETS 10u
#define METER_BUCKET_NS 100000000u

struct meter {
	uint64_t slot; /* number (time / METER_BUCKET_NS) of the newest bucket */
	uint32_t bucket_ns[METER_BUCKETS + 1];
};

/* Adds the span [from, to); spans come in order of time. */
void meter_add(struct meter *m, uint64_t from, uint64_t to);
/* Thousandths of the last full second before `now` that were busy. */
uint32_t meter_permille(const struct meter *m, uint64_t now);
