#include "daemon/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "base/file.h"

void log_event(enum log_level level, const char *format, ...)
{
	static const char *const names[] = {"info", "warning", "error"};
	char line[1024];
	struct timespec now;
	struct tm utc;
	va_list args;

	clock_gettime(CLOCK_REALTIME, &now);
	gmtime_r(&now.tv_sec, &utc);
	size_t used = strftime(line, sizeof(line), "%Y-%m-%dT%H:%M:%S", &utc);
	used += (size_t)snprintf(line + used, sizeof(line) - used, ".%03ldZ %s ",
				 now.tv_nsec / 1000000, names[level]);
	va_start(args, format);
	int length = vsnprintf(line + used, sizeof(line) - used - 1, format, args);
	va_end(args);
	size_t end = used + (length < 0 ? 0 : (size_t)length);
	if (end > sizeof(line) - 2)
		end = sizeof(line) - 2;
	for (size_t i = used; i < end; i++)
		if ((unsigned char)line[i] < ' ' || line[i] == 0x7f)
			line[i] = '?';
	line[end] = '\n';
	(void)write_all(STDERR_FILENO, line, end + 1);
}
