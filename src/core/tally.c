#include "core/tally.h"

#include <string.h>
#include <time.h>

#include "base/macros.h"

#define MIB_BYTES (1ull << 20)
#define MS_NS 1000000ull
#define WHOLE_PPM 1000000u
/* A sum over a second lacks less than a MiB for a millisecond: less than 1,049 bytes a second. */
#define AVERAGE_SLACK 2048u

void tally_add(struct tally *to, const struct tally *from)
{
	to->held_ns += from->held_ns;
	to->gpu_ns += from->gpu_ns;
	to->used_ns += from->used_ns;
	to->measured_ns += from->measured_ns;
	to->asked_mib_ms += from->asked_mib_ms;
	to->peak_mib_ms += from->peak_mib_ms;
	to->peak_bytes = MAX(to->peak_bytes, from->peak_bytes);
	to->sessions += from->sessions;
	to->slices += from->slices;
	to->jobs += from->jobs;
	to->refusals += from->refusals;
	to->waits += from->waits;
	to->wait_ns += from->wait_ns;
}

bool tally_is_empty(const struct tally *tally)
{
	static const struct tally none;

	return memcmp(tally, &none, sizeof(none)) == 0;
}

static uint64_t part_of(uint64_t ns, uint32_t ppm)
{
	return (uint64_t)((unsigned __int128)ns * ppm / WHOLE_PPM);
}

static uint64_t mib_ms(uint64_t bytes, uint64_t ns)
{
	return (uint64_t)((unsigned __int128)bytes * ns / MS_NS / MIB_BYTES);
}

void tally_add_time(struct tally *to, const struct tally_time *time)
{
	to->held_ns += time->ns;
	to->gpu_ns += part_of(time->ns, MIN(time->part_ppm, WHOLE_PPM));
	uint64_t measured = MIN(time->measured_ns, time->ns);
	to->measured_ns += measured;
	to->used_ns += MIN(time->used_ns, measured);
	to->asked_mib_ms += mib_ms(time->bytes, time->ns);
	to->peak_mib_ms += mib_ms(time->peak_bytes, time->ns);
	to->peak_bytes = MAX(to->peak_bytes, time->peak_bytes);
}

uint64_t tally_average_bytes(uint64_t sum_mib_ms, uint64_t held_ns)
{
	uint64_t bytes = (uint64_t)((unsigned __int128)sum_mib_ms * MIB_BYTES * MS_NS / held_ns);
	uint64_t missing = MIB_BYTES - bytes % MIB_BYTES;

	return missing < AVERAGE_SLACK ? bytes + missing : bytes;
}

uint32_t tally_part(uint64_t bytes, uint64_t total, uint32_t compute_ppm)
{
	uint32_t ppm = !total || bytes >= total
			       ? WHOLE_PPM
			       : (uint32_t)((unsigned __int128)bytes * WHOLE_PPM / total);

	return MIN(MAX(ppm, compute_ppm), WHOLE_PPM);
}

int64_t tally_day(int64_t moment)
{
	return moment > 0 ? moment / (int64_t)TALLY_DAY_NS : 0;
}

int64_t tally_month(int64_t day)
{
	const time_t seconds = (time_t)(day * (int64_t)(TALLY_DAY_NS / 1000000000ull));
	struct tm tm;

	return gmtime_r(&seconds, &tm) ? day - (tm.tm_mday - 1) : day;
}

uint64_t tally_day_take(int64_t *end, uint64_t ns, int64_t *ret_day)
{
	int64_t day = tally_day(*end - 1);
	int64_t begin = day * (int64_t)TALLY_DAY_NS;
	uint64_t in_day = *end > begin ? (uint64_t)(*end - begin) : 0;

	*ret_day = day;
	/* Before 1970 there is no other day. */
	if (day == 0 || ns <= in_day)
		return ns;
	*end = begin;
	return in_day;
}

uint64_t tally_resume(uint64_t until, int64_t until_realtime, int64_t created, uint64_t now)
{
	if (until > now)
		return now;
	if (created <= until_realtime)
		return until;
	return MIN(now, until + (uint64_t)(created - until_realtime));
}
