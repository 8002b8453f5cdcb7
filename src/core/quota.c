#include "core/quota.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/macros.h"
#include "base/units.h"

#define MS_PER_HOUR 3600000u
/* JSON has a number that is smaller than a ten-thousandth with an exponent. */
#define UNITS_PER_HOUR 10000u
#define MS_PER_UNIT (MS_PER_HOUR / UNITS_PER_HOUR)

const struct quota quota_none = QUOTA_NOTHING;

static uint64_t sum(uint64_t a, uint64_t b)
{
	return a + (b < UINT64_MAX - a ? b : UINT64_MAX - a);
}

struct quota_use quota_add(struct quota_use a, struct quota_use b)
{
	return (struct quota_use){
		.vram_bytes = sum(a.vram_bytes, b.vram_bytes),
		.sessions = a.sessions + b.sessions,
		.gpu_mask = a.gpu_mask | b.gpu_mask,
		.gpu_ms = sum(a.gpu_ms, b.gpu_ms),
	};
}

uint64_t quota_gpus(struct quota_use use)
{
	return (uint64_t)__builtin_popcountll(use.gpu_mask);
}

uint64_t quota_used(struct quota_use use, enum quota_limit limit)
{
	switch (limit) {
	case QUOTA_VRAM:
		return use.vram_bytes;
	case QUOTA_SESSIONS:
		return use.sessions;
	case QUOTA_GPUS:
		return quota_gpus(use);
	default:
		return use.gpu_ms;
	}
}

enum quota_limit quota_check(const struct quota *quota, struct quota_use use)
{
	if (use.gpu_ms >= quota->most[QUOTA_HOURS])
		return QUOTA_HOURS;
	for (enum quota_limit i = 0; i < QUOTA_HOURS; i++)
		if (quota_used(use, i) > quota->most[i])
			return i;
	return QUOTA_WITHIN;
}

void quota_bounds_begin(struct quota_bounds *bounds)
{
	bounds->most = quota_none;
	for (int i = 0; i < QUOTA_LIMITS; i++) {
		bounds->from[i].kind = QUOTA_OF_NOBODY;
		bounds->from[i].id = 0;
	}
}

void quota_bounds_add(struct quota_bounds *bounds, const struct quota *quota, enum quota_kind kind,
		      uint32_t id)
{
	for (int i = 0; i < QUOTA_LIMITS; i++) {
		enum quota_kind present = bounds->from[i].kind;

		if (quota->most[i] == QUOTA_NONE || kind > present ||
		    (kind == present && quota->most[i] <= bounds->most.most[i]))
			continue;
		bounds->most.most[i] = quota->most[i];
		bounds->from[i].kind = kind;
		bounds->from[i].id = id;
	}
}

/* "0", "0GiB", "0.0": without a slice that has no size. */
static int is_zero(const char *text)
{
	return *text == '0' && text[strspn(text, "0.KMGTBikmgtb")] == '\0';
}

int quota_parse_vram(const char *text, const char *option, uint64_t *ret, struct error *err)
{
	if (!is_zero(text))
		return units_parse_size(text, option, ret, err);
	*ret = 0;
	return 0;
}

uint64_t quota_limit_ms(double hours)
{
	uint64_t units = (uint64_t)(hours * UNITS_PER_HOUR + 0.5);

	return MAX(units, hours > 0) * MS_PER_UNIT;
}

int quota_parse_hours(const char *text, const char *option, uint64_t *ret, struct error *err)
{
	char *end;
	double hours = strtod(text, &end);

	if (strspn(text, "0123456789.") != strlen(text) || end == text || *end ||
	    hours > QUOTA_HOURS_MAX) {
		error_set(err, EXIT_CODE_USAGE, "%s: '%.64s' is no number of hours from 0 to %u",
			  option, text, QUOTA_HOURS_MAX);
		error_hint(err, "for example: %s 100", option);
		return -EXIT_CODE_USAGE;
	}
	*ret = quota_limit_ms(hours);
	return 0;
}

const char *quota_format_hours(uint64_t ms, char buf[static UNITS_TEXT_SIZE])
{
	/* Databases of earlier versions have limits of single milliseconds. */
	int length = snprintf(buf, UNITS_TEXT_SIZE, "%.*f", ms < MS_PER_HOUR ? 7 : 4,
			      (double)ms / MS_PER_HOUR);

	while (buf[length - 1] == '0')
		buf[--length] = '\0';
	if (buf[length - 1] == '.')
		buf[length - 1] = '\0';
	return buf;
}

double quota_used_hours(uint64_t ms)
{
	uint64_t units = ms / MS_PER_UNIT;

	return (double)units / UNITS_PER_HOUR;
}
