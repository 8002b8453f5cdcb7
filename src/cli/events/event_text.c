#include "cli/events/event_text.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/macros.h"
#include "client/sessions.h"

struct line {
	char text[EVENT_LINE_SIZE];
	size_t used;
};

__attribute__((format(printf, 2, 3))) static void add(struct line *line, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	int n = vsnprintf(line->text + line->used, sizeof(line->text) - line->used, format, args);
	va_end(args);
	if (n > 0)
		line->used = MIN(line->used + (size_t)n, sizeof(line->text) - 1);
}

static void actor_add(struct line *line, const json_t *event)
{
	const char *user = session_text(event, "user"), *login = session_text(event, "login");
	const json_t *pid = json_object_get(event, "pid");

	if (!*user)
		return;
	add(line, "; by %s", user);
	if (*login && strcmp(login, user) != 0)
		add(line, " (logged in as %s)", login);
	if (json_is_integer(pid))
		add(line, " (%s%sPID %" JSON_INTEGER_FORMAT "%s%s)", session_text(event, "process"),
		    *session_text(event, "process") ? ", " : "", json_integer_value(pid),
		    *session_text(event, "parents") ? ", of " : "", session_text(event, "parents"));
}

const char *event_line(const json_t *event, char buf[static EVENT_LINE_SIZE])
{
	const char *before = session_text(event, "before"), *after = session_text(event, "after"),
		   *text = session_text(event, "text");
	struct line line = {.used = 0};

	add(&line, "%s %s", session_text(event, "kind"), session_text(event, "subject"));
	if (*before || *after)
		add(&line, ": %s%s%s", before, *before && *after ? " -> " : "", after);
	if (*text)
		add(&line, "%s %s", *before || *after ? ";" : ":", text);
	actor_add(&line, event);
	memcpy(buf, line.text, line.used + 1);
	return buf;
}
