#include "daemon/gpu/unlisted.h"

#include <stdbool.h>
#include <string.h>

#include "base/macros.h"

/* Another value is believed if enough more readings prefer it to the last value than do not: an
 * eighth of them, and MORE_LEAST. While three programs take and give memory as fast as they can, at
 * least half of the readings prefer the true value. */
#define MORE_PARTS 8
#define MORE_LEAST 3
/* The number of readings in a row that say more, or less. */
#define OFF_COUNT 4

static uint64_t distance(int64_t a, int64_t b)
{
	return a > b ? (uint64_t)a - (uint64_t)b : (uint64_t)b - (uint64_t)a;
}

/* The total error of the readings against `bytes`. Torn readings err in both directions. */
static uint64_t missed(const struct unlisted *u, int64_t bytes)
{
	uint64_t sum = 0;

	for (unsigned i = 0; i < u->count; i++) {
		const struct gpu_reading *r = &u->readings[i];

		if (!gpu_reading_allows(r, bytes))
			sum += distance(bytes, bytes < r->least ? r->least : r->most);
	}
	return sum;
}

/* The value with the least total error. Ties go to the one nearest the previous value. */
static int64_t missed_least(const struct unlisted *u, int64_t was)
{
	uint64_t least = missed(u, was), first = least;
	int64_t best = was;

	for (unsigned i = 0; i < 2 * u->count; i++) {
		const struct gpu_reading *r = &u->readings[i / 2];
		int64_t bytes = i % 2 ? r->most : r->least;
		uint64_t sum = missed(u, bytes);

		if (sum < least || (sum == least && distance(bytes, was) < distance(best, was))) {
			best = bytes;
			least = sum;
		}
	}
	uint64_t more = u->known ? MORE_LEAST + u->count / MORE_PARTS : 0;
	return first - least >= distance(best, was) * more ? best : was;
}

static void keep_latest(struct unlisted *u, unsigned count)
{
	if (u->count <= count)
		return;
	memmove(u->readings, &u->readings[u->count - count], count * sizeof(*u->readings));
	u->count = count;
}

/* The latest readings, as values that grow or shrink all the time give, all say more, or all less:
 * the nearest of it. */
static int64_t off_by_all(const struct unlisted *u, int64_t was)
{
	int64_t least = INT64_MAX, most = INT64_MIN;

	if (u->count < OFF_COUNT)
		return was;
	for (unsigned i = u->count - OFF_COUNT; i < u->count; i++) {
		least = MIN(least, u->readings[i].least);
		most = MAX(most, u->readings[i].most);
	}
	return least > was ? least : most < was ? most : was;
}

/* A value that few readings give while figures move may be chance: what two samples in a row agree
 * on. */
static int64_t confirmed(struct unlisted *u, int64_t bytes, const struct gpu_sample *sample)
{
	int64_t was = u->bytes, last = u->last;

	u->last = bytes;
	if (sample->sure || sample->reading_count > GPU_READINGS_USUAL || !u->known)
		return bytes;
	if (bytes > was && last > was)
		return MIN(bytes, last);
	if (bytes < was && last < was)
		return MAX(bytes, last);
	return sample->reading_count < UNLISTED_KEPT ? off_by_all(u, was) : was;
}

void unlisted_add(struct unlisted *u, const struct gpu_sample *sample, bool slices)
{
	bool enough = sample->sure || sample->reading_count >= UNLISTED_KEPT;
	unsigned from = 0, count = sample->reading_count;

	if (count == 0) { /* it is what it was */
		u->last = u->bytes;
		u->count = 0;
		return;
	}
	if (!slices) {
		u->known = false;
		from = count - 1;
	}
	keep_latest(u, enough || !slices ? 0 : UNLISTED_KEPT);
	memcpy(&u->readings[u->count], &sample->readings[from],
	       (count - from) * sizeof(*u->readings));
	u->count += count - from;
	/* At first it was nothing. */
	u->bytes = confirmed(u, missed_least(u, u->bytes), sample);
	u->known = true;
}
