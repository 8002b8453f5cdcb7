/* The daemon's log: one line an event on stderr, "TIME level event key=value ...", values quoted
 * and escaped as logfmt has it (log_line.h). */
#pragma once

#include <stdbool.h>

enum log_level { LOG_INFO, LOG_WARNING, LOG_ERROR };

/* A log file that would become larger (bytes) is renamed to *.old first, over the one before. */
#define LOG_FILE_MAX (1 << 20)

/* Makes the file the standard error. `path` must stay valid. 0 or -errno. */
int log_to_file(const char *path);
/* Makes the file anew where somebody removed or renamed it. Returns 1: made; 0: it is there, or
 * there is none; or -errno, and lines go on into the file that was. */
int log_look(void);
/* Whether the file is not where it was. */
bool log_vanished(void);
/* The path of the log; NULL: there is none. */
const char *log_path(void);
/* `format` is the event and its keys, e.g. "session.granted id=%s uid=%u". Newlines and other
 * control characters that arguments bring along are escaped. Never waits: where nobody reads
 * the standard error, the line is dropped, and the next one that is written comes after a line
 * "log.dropped lines=N". Any thread. */
void log_event(enum log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));
