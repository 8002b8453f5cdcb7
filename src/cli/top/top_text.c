#include "cli/top/top_text.h"

#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <wchar.h>

/* One character: its bytes, as they can be shown, and its columns. 0 at the end. Characters that
 * take no column (accents that combine) are dropped: they may be of any number. */
static size_t character_next(const char **text, const char **ret_bytes, int *ret_width)
{
	mbstate_t state = {0};
	wchar_t wide;
	size_t length;

	do {
		if (!**text)
			return 0;
		length = mbrtowc(&wide, *text, MB_LEN_MAX, &state);
		*ret_bytes = *text;
		*ret_width = length == (size_t)-1 || length == (size_t)-2 ? -1 : wcwidth(wide);
		if (*ret_width < 0) {
			bool malformed = length == (size_t)-1 || length == (size_t)-2;

			*text += malformed ? 1 : length;
			*ret_bytes = "?";
			*ret_width = 1;
			return 1;
		}
		*text += length;
	} while (*ret_width == 0);
	return length;
}

int top_text_width(const char *text)
{
	const char *bytes;
	int width, total = 0;

	while (character_next(&text, &bytes, &width))
		total += width;
	return total;
}

const char *top_text_fit(const char *text, int width, bool right, char *buf, size_t size)
{
	int whole = top_text_width(text), used = 0, columns;
	bool cut = whole > width;
	const char *bytes;
	size_t length, at = 0;

	for (int i = 0; right && i < width - whole && at + 1 < size; i++, used++)
		buf[at++] = ' ';
	while ((length = character_next(&text, &bytes, &columns)) > 0) {
		if (used + columns > width - cut || at + length + 1 >= size)
			break;
		memcpy(buf + at, bytes, length);
		at += length;
		used += columns;
	}
	if (cut && used < width && at + 1 < size) {
		buf[at++] = '~';
		used++;
	}
	for (; used < width && at + 1 < size; used++)
		buf[at++] = ' ';
	buf[at] = '\0';
	return buf;
}

/* The end of the line with which a text begins. It has one character at least. */
static const char *line_end(const char *text, int width)
{
	const char *at = text, *blank = NULL, *bytes;
	int used = 0, columns;

	for (const char *before = at; character_next(&at, &bytes, &columns); before = at) {
		used += columns;
		/* Spaces at the end of a line take no room. */
		if (*before == ' ')
			blank = at;
		else if (used > width)
			return blank ? blank : before > text ? before : at;
	}
	return at;
}

bool top_text_line(const char **text, int width, char *buf, size_t size)
{
	const char *from = *text + strspn(*text, " ");
	const char *end = line_end(from, width);
	size_t length = (size_t)(end - from);

	while (length && from[length - 1] == ' ')
		length--;
	snprintf(buf, size, "%.*s", (int)length, from);
	*text = end;
	return length > 0;
}
