#include "daemon/host/log_line.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/macros.h"

/* The line that is being put together. */
struct line {
	char *text;
	size_t size, used;
	bool full;
};

/* How many bytes the beginning of a format comes to. An argument may hold whatever the format
 * does, so where a value ends is known by its length alone. */
static size_t length_of(const char *format, size_t count, va_list args)
{
	char begin[LOG_LINE_MAX];
	va_list own;

	if (count >= sizeof(begin))
		return SIZE_MAX;
	memcpy(begin, format, count);
	begin[count] = '\0';
	va_copy(own, args);
	/* NOLINTNEXTLINE(clang-analyzer-valist.Uninitialized): clang 14 does not follow va_copy */
	int length = vsnprintf(NULL, 0, begin, own);
	va_end(own);
	return length < 0 ? SIZE_MAX : (size_t)length;
}

/* All or nothing; `kept` bytes stay free for what has to follow. */
static void put(struct line *line, const char *text, size_t count, size_t kept)
{
	if (line->full || count + kept >= line->size - line->used) {
		line->full = true;
		return;
	}
	memcpy(line->text + line->used, text, count);
	line->used += count;
}

static bool is_control(char c)
{
	return (unsigned char)c < ' ' || c == 0x7f;
}

static void put_plain(struct line *line, const char *text, size_t count)
{
	for (size_t i = 0; i < count; i++)
		put(line, is_control(text[i]) ? "?" : &text[i], 1, 0);
}

static void put_quoted(struct line *line, const char *text, size_t count)
{
	static const char names[] = "\"\\\n\r\t", letters[] = "\"\\nrt";
	char escaped[8];

	if (line->full || line->size - line->used < 3)
		return;
	put(line, "\"", 1, 1);
	for (size_t i = 0; i < count; i++) {
		const char *name = memchr(names, text[i], sizeof(names) - 1);
		size_t length = 1;

		if (name)
			length = (size_t)snprintf(escaped, sizeof(escaped), "\\%c",
						  letters[name - names]);
		else if (is_control(text[i]))
			length = (size_t)snprintf(escaped, sizeof(escaped), "\\u%04x", text[i]);
		else
			escaped[0] = text[i];
		put(line, escaped, length, 1);
	}
	line->text[line->used++] = '"';
}

static bool is_bare(const char *text, size_t count)
{
	for (size_t i = 0; i < count; i++)
		if (is_control(text[i]) || strchr(" =\"", text[i]))
			return false;
	return true;
}

size_t log_line(char *text, size_t size, const char *format, va_list args)
{
	struct line line = {.text = text, .size = size};
	char all[LOG_LINE_MAX];
	size_t from = 0; /* in `all`: what is in the line */
	va_list own;

	va_copy(own, args);
	/* NOLINTNEXTLINE(clang-analyzer-valist.Uninitialized): clang 14 does not follow va_copy */
	int length = vsnprintf(all, sizeof(all), format, own);
	va_end(own);
	size_t end = length < 0 ? 0 : MIN((size_t)length, sizeof(all) - 1);
	for (const char *at = format; (at = strchr(at, '='));) {
		bool quoted = *++at == '"';
		const char *value = at + quoted,
			   *stop = value + strcspn(value, quoted ? "\"" : " ");
		size_t begins = MIN(length_of(format, (size_t)(at - format), args), end);
		size_t first = MIN(begins + quoted, end);
		size_t last = MIN(length_of(format, (size_t)(stop - format), args), end);

		put_plain(&line, all + from, begins - from);
		if (quoted || !is_bare(all + first, last - first))
			put_quoted(&line, all + first, last - first);
		else
			put_plain(&line, all + first, last - first);
		at = stop + (quoted && *stop);
		from = MIN(last + (quoted && *stop), end);
	}
	put_plain(&line, all + from, end - from);
	text[line.used] = '\0';
	return line.used;
}
