#include "daemon/log.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/file.h"

static const char *file_path; /* NULL: the standard error is the caller's */

int log_to_file(const char *path)
{
	cleanup_close int fd =
		open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600);

	if (fd < 0 || dup2(fd, STDERR_FILENO) < 0)
		return -errno;
	file_path = path;
	return 0;
}

const char *log_path(void)
{
	return file_path;
}

/* Where that fails, the log goes on in the old file. */
static void file_turn(size_t more)
{
	char old[PATH_MAX];
	struct stat now;

	if (!file_path || fstat(STDERR_FILENO, &now) < 0 ||
	    (size_t)now.st_size + more <= LOG_FILE_MAX)
		return;
	int length = snprintf(old, sizeof(old), "%s.old", file_path);
	if (length > 0 && (size_t)length < sizeof(old) && rename(file_path, old) == 0)
		(void)log_to_file(file_path);
}

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
	/* NOLINTNEXTLINE(clang-analyzer-valist.Uninitialized): clang 14 does not follow va_start */
	int length = vsnprintf(line + used, sizeof(line) - used - 1, format, args);
	va_end(args);
	size_t end = used + (length < 0 ? 0 : (size_t)length);
	if (end > sizeof(line) - 2)
		end = sizeof(line) - 2;
	for (size_t i = used; i < end; i++)
		if ((unsigned char)line[i] < ' ' || line[i] == 0x7f)
			line[i] = '?';
	line[end] = '\n';
	file_turn(end + 1);
	(void)write_all(STDERR_FILENO, line, end + 1);
}
