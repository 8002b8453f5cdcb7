#include "daemon/unlisted.h"

#include <stdbool.h>
#include <string.h>

#include "base/macros.h"

/* Another value is believed where so many more of the readings allow it than the one that was: an
 * eighth of them, and some. While three programs take and give memory as fast as they can, two
 * thirds of the readings allow what is so, and less than half anything else. */
#define MORE_PARTS 8
#define MORE_LEAST 3

static unsigned allow(const struct unlisted *u, int64_t bytes)
{
	unsigned count = 0;

	for (unsigned i = 0; i < u->count; i++)
		count += gpu_reading_allows(&u->readings[i], bytes);
	return count;
}

static uint64_t distance(int64_t a, int64_t b)
{
	return a > b ? (uint64_t)a - (uint64_t)b : (uint64_t)b - (uint64_t)a;
}

/* What most allow; of that what is nearest to what it was. */
static int64_t most_allowed(const struct unlisted *u, int64_t was)
{
	int64_t best = was;
	unsigned most = allow(u, was) + (u->known ? MORE_LEAST + u->count / MORE_PARTS : 0);

	for (unsigned i = 0; i < 2 * u->count; i++) {
		const struct gpu_reading *r = &u->readings[i / 2];
		int64_t bytes = i % 2 ? r->most : r->least;
		unsigned count = allow(u, bytes);

		if (count > most || (count == most && best == was) ||
		    (count == most && distance(bytes, was) < distance(best, was))) {
			best = bytes;
			most = count;
		}
	}
	return best;
}

static void keep_latest(struct unlisted *u, unsigned count)
{
	if (u->count <= count)
		return;
	memmove(u->readings, &u->readings[u->count - count], count * sizeof(*u->readings));
	u->count = count;
}

/* A value that readings of one sample alone give, while figures moved, may be chance: what two in a
 * row agree on. */
static int64_t confirmed(struct unlisted *u, int64_t bytes, bool sure)
{
	int64_t was = u->bytes, last = u->last;

	u->last = bytes;
	if (sure || !u->known)
		return bytes;
	if (bytes > was && last > was)
		return MIN(bytes, last);
	if (bytes < was && last < was)
		return MAX(bytes, last);
	return was;
}

void unlisted_add(struct unlisted *u, const struct gpu_sample *sample)
{
	bool enough = sample->sure || sample->reading_count >= UNLISTED_KEPT;

	if (sample->reading_count == 0)
		return;
	keep_latest(u, enough ? 0 : UNLISTED_KEPT);
	memcpy(&u->readings[u->count], sample->readings,
	       sample->reading_count * sizeof(*u->readings));
	u->count += sample->reading_count;
	/* At first it was nothing. */
	u->bytes = confirmed(u, most_allowed(u, u->bytes), sample->sure);
	u->known = true;
}
