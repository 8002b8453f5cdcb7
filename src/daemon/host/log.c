#include "daemon/host/log.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/macros.h"
#include "base/units.h"
#include "daemon/host/log_line.h"

static const char *file_path; /* NULL: the standard error is the caller's */
static bool is_file;          /* a regular one, whose writer waits for no reader */

int log_to_file(const char *path)
{
	cleanup_close int fd =
		open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600);

	struct stat st;

	if (fd < 0 || dup2(fd, STDERR_FILENO) < 0)
		return -errno;
	is_file = fstat(fd, &st) == 0 && S_ISREG(st.st_mode);
	file_path = path;
	return 0;
}

const char *log_path(void)
{
	return file_path;
}

bool log_vanished(void)
{
	return file_path && !file_is_at(STDERR_FILENO, file_path);
}

int log_look(void)
{
	if (!log_vanished())
		return 0;
	int rc = log_to_file(file_path);
	return rc < 0 ? rc : 1;
}

/* Where that fails, the log goes on in the old file. */
static void file_turn(size_t more)
{
	char old[PATH_MAX];
	struct stat now;

	if (!file_path || fstat(STDERR_FILENO, &now) < 0 ||
	    (uint64_t)now.st_size + more <= MIN(file_size_limit(), LOG_FILE_MAX))
		return;
	int length = snprintf(old, sizeof(old), "%s.old", file_path);
	if (length > 0 && (size_t)length < sizeof(old) && rename(file_path, old) == 0)
		(void)log_to_file(file_path);
}

/* Whether the standard error is the journal's, which has times of its own and takes a level from
 * "<N>". */
static bool is_journal(void)
{
	static int known = -1;
	const char *stream =
		getenv("JOURNAL_STREAM"); // NOLINT(concurrency-mt-unsafe): never changed
	char own[64];
	struct stat st;

	if (known < 0 && fstat(STDERR_FILENO, &st) == 0) {
		snprintf(own, sizeof(own), "%ju:%ju", (uintmax_t)st.st_dev, (uintmax_t)st.st_ino);
		known = stream && strcmp(stream, own) == 0;
	}
	return known > 0 && !file_path;
}

/* The beginning of a line. */
static size_t head_write(enum log_level level, char *line, size_t size)
{
	static const struct {
		const char *name;
		int priority; /* syslog's */
	} levels[] = {{"info", 6}, {"warning", 4}, {"error", 3}};
	char now[UNITS_TEXT_SIZE];

	if (is_journal())
		return (size_t)snprintf(line, size, "<%d>", levels[level].priority);
	units_format_time(now_realtime_ns(), UNITS_MILLISECONDS, now);
	return (size_t)snprintf(line, size, "%s %s ", now, levels[level].name);
}

/* The reader of the standard error may have stopped: a journal whose disk hangs, a terminal, a
 * pipe. The daemon serves all the same, and says later how many lines were lost. */
static bool has_room(void)
{
	struct pollfd to = {.fd = STDERR_FILENO, .events = POLLOUT};

	return is_file || poll(&to, 1, 0) != 0;
}

static void line_write(const char *line, size_t size)
{
	static atomic_uint dropped;
	char text[128];

	if (!has_room()) {
		atomic_fetch_add(&dropped, 1);
		return;
	}
	unsigned lost = atomic_exchange(&dropped, 0);
	if (lost) {
		size_t used = head_write(LOG_WARNING, text, sizeof(text));
		used += (size_t)snprintf(text + used, sizeof(text) - used, "log.dropped lines=%u\n",
					 lost);
		(void)write_all(STDERR_FILENO, text, used);
	}
	if (!lost || has_room())
		(void)write_all(STDERR_FILENO, line, size);
	else
		atomic_fetch_add(&dropped, 1);
}

void log_event(enum log_level level, const char *format, ...)
{
	char line[LOG_LINE_MAX];
	va_list args;

	size_t end = head_write(level, line, sizeof(line));
	va_start(args, format);
	/* NOLINTNEXTLINE(clang-analyzer-valist.Uninitialized): clang 14 does not follow va_start */
	end += log_line(line + end, sizeof(line) - end - 1, format, args);
	va_end(args);
	line[end] = '\n';
	file_turn(end + 1);
	line_write(line, end + 1);
}
