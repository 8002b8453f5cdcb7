#include "cli/moment.h"

#include <time.h>

int64_t moment_parse(const char *text)
{
	struct tm utc = {0};

	return text && strptime(text, "%Y-%m-%dT%H:%M:%S", &utc) ? (int64_t)timegm(&utc) : 0;
}

static const char *moment_write(int64_t moment, int64_t now, const char *same_year,
				const char *other_year, char *buf)
{
	time_t then = (time_t)moment, today = (time_t)now;
	struct tm a, b;

	buf[0] = '\0';
	if (!moment || !localtime_r(&then, &a) || !localtime_r(&today, &b))
		return buf;
	const char *format = a.tm_year != b.tm_year   ? other_year
			     : a.tm_yday != b.tm_yday ? same_year
						      : "%H:%M";
	strftime(buf, MOMENT_SIZE, format, &a);
	return buf;
}

const char *moment_text(int64_t moment, int64_t now, char buf[static MOMENT_SIZE])
{
	return moment_write(moment, now, "%m-%d", "%m-%d", buf);
}

const char *moment_long_text(int64_t moment, int64_t now, char buf[static MOMENT_SIZE])
{
	return moment_write(moment, now, "%m-%d %H:%M", "%Y-%m-%d", buf);
}

const char *moment_exact_text(int64_t moment, char buf[static MOMENT_SIZE])
{
	time_t then = (time_t)moment;
	struct tm local;

	buf[0] = '\0';
	if (localtime_r(&then, &local))
		strftime(buf, MOMENT_SIZE, "%Y-%m-%d %H:%M:%S", &local);
	return buf;
}
