#include "cli/when.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/macros.h"
#include "base/units.h"

#define SECONDS_MAX 1000000000ll
#define NS_PER_SECOND 1000000000ull
#define EXAMPLES "for example: 2h (ago), 18:30, 2026-11-30T08:00"

int when_unit_time(const char *text, int64_t *ret_seconds)
{
	struct error ignored;
	uint64_t ns;
	size_t length = strlen(text);

	/* Whole seconds, and never a number alone. */
	if (!isdigit((unsigned char)*text) || !isalpha((unsigned char)text[length - 1]) ||
	    units_parse_seconds(text, "", &ns, &ignored) < 0 || ns % NS_PER_SECOND ||
	    ns / NS_PER_SECOND > SECONDS_MAX)
		return -1;
	*ret_seconds = (int64_t)(ns / NS_PER_SECOND);
	return 0;
}

// NOLINTBEGIN(cert-err34-c): fields of at most four digits

/* "2026-11-30", "2026-11-30T08:00", "2026-11-30T08:00:30". */
static int date_time(const char *text, int64_t *ret)
{
	static const char *const forms[] = {"%Y-%m-%d", "%Y-%m-%dT%H:%M", "%Y-%m-%dT%H:%M:%S"};

	for (size_t i = 0; i < ARRAY_SIZE(forms); i++) {
		struct tm tm = {.tm_isdst = -1};
		const char *end = strptime(text, forms[i], &tm);

		if (!end || *end)
			continue;
		int day = tm.tm_mday;

		*ret = (int64_t)mktime(&tm);
		/* There is no 31st of some months. */
		return *ret < 0 || tm.tm_mday != day ? -1 : 0;
	}
	return -1;
}

int when_calendar_time(const char *text, int64_t *ret)
{
	time_t now = time(NULL);
	struct tm tm;
	int used = 0;

	if (date_time(text, ret) == 0)
		return 0;
	localtime_r(&now, &tm);
	tm.tm_sec = 0;
	tm.tm_isdst = -1;
	if (sscanf(text, "%2d:%2d%n", &tm.tm_hour, &tm.tm_min, &used) != 2 || text[used] ||
	    tm.tm_hour > 23 || tm.tm_min > 59)
		return -1;
	*ret = (int64_t)mktime(&tm);
	if (*ret < (int64_t)now)
		*ret += 86400;
	return 0;
}

// NOLINTEND(cert-err34-c)

int when_since(const char *text, int64_t *ret, struct error *err)
{
	int64_t now = now_realtime_ns() / 1000000000;

	if (when_unit_time(text, ret) == 0)
		*ret = now - *ret;
	else if (when_calendar_time(text, ret) < 0) {
		error_set(err, EXIT_CODE_USAGE, "--since: '%.64s' is not understood", text);
		error_hint(err, EXAMPLES);
		return -EXIT_CODE_USAGE;
		/* A time without a day is the last one of its kind. */
	} else if (*ret > now && strlen(text) <= strlen("18:30"))
		*ret -= 86400;
	if (*ret <= now && *ret > 0)
		return 0;
	error_set(err, EXIT_CODE_USAGE, "--since: '%.64s' is not in the past", text);
	error_hint(err, EXAMPLES);
	return -EXIT_CODE_USAGE;
}
