#include "cli/columns.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/macros.h"
#include "base/units.h"
#include "cli/moment.h"

/* ---- values ------------------------------------------------------------------------------ */

/* The value at the first step of a path; *rest is the path below it, or NULL. */
static const json_t *step(const json_t *value, const char *path, const char **rest)
{
	size_t length = strcspn(path, ".");
	char key[64];

	snprintf(key, sizeof(key), "%.*s", (int)length, path);
	*rest = path[length] ? path + length + 1 : NULL;
	return json_object_get(value, key);
}

static const json_t *value_at(const json_t *value, const char *path)
{
	while (path && value)
		value = step(value, path, &path);
	return value;
}

static const char *text_at(const json_t *row, const char *path)
{
	const char *text = json_string_value(value_at(row, path));

	return text ? text : "";
}

uint64_t column_number(const json_t *row, const char *path)
{
	uint64_t sum = COLUMN_NONE;
	size_t i;
	json_t *item;

	while (path && !json_is_array(row))
		row = step(row, path, &path);
	if (!path)
		return json_is_integer(row) && json_integer_value(row) >= 0
			       ? (uint64_t)json_integer_value(row)
		       : json_is_array(row) ? json_array_size(row)
					    : COLUMN_NONE;
	json_array_foreach(row, i, item)
	{
		uint64_t number = column_number(item, path);

		if (number != COLUMN_NONE)
			sum = (sum == COLUMN_NONE ? 0 : sum) + number;
	}
	return sum;
}

/* ---- short texts ------------------------------------------------------------------------- */

enum rounding { DOWN, NEAREST, UP };

/* How many times `size / parts` it is. */
static uint64_t parts_of(uint64_t bytes, uint64_t size, unsigned parts, enum rounding rounding)
{
	uint64_t more = rounding == UP ? size - 1 : rounding == NEAREST ? size / 2 : 0;
	unsigned __int128 all = (unsigned __int128)bytes * parts + more;

	return (uint64_t)(all / size);
}

/* Three digits, or four of a unit that has as many. */
static const char *bytes_text(uint64_t bytes, enum rounding rounding,
			      char buf[static COLUMN_SHORT_SIZE])
{
	static const char *const units[] = {"B", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"};
	uint64_t size = 1;
	size_t unit = 0;

	if (bytes == COLUMN_NONE || bytes == 0) {
		snprintf(buf, COLUMN_SHORT_SIZE, "%s", bytes ? "-" : "0");
		return buf;
	}
	/* A number that would be rounded up to 1024 takes the next unit. */
	for (; parts_of(bytes, size, 1, rounding) >= 1024 && unit + 1 < ARRAY_SIZE(units); unit++)
		size *= 1024;
	uint64_t tenths = parts_of(bytes, size, 10, rounding);
	if (tenths >= 1000 || unit == 0)
		snprintf(buf, COLUMN_SHORT_SIZE, "%" PRIu64 "%s",
			 parts_of(bytes, size, 1, rounding), units[unit]);
	else if (tenths % 10)
		snprintf(buf, COLUMN_SHORT_SIZE, "%" PRIu64 ".%u%s", tenths / 10,
			 (unsigned)(tenths % 10), units[unit]);
	else
		snprintf(buf, COLUMN_SHORT_SIZE, "%" PRIu64 "%s", tenths / 10, units[unit]);
	return buf;
}

const char *column_bytes_text(uint64_t bytes, char buf[static COLUMN_SHORT_SIZE])
{
	return bytes_text(bytes, UP, buf);
}

const char *column_room_text(uint64_t bytes, char buf[static COLUMN_SHORT_SIZE])
{
	return bytes_text(bytes, DOWN, buf);
}

const char *column_average_text(uint64_t bytes, char buf[static COLUMN_SHORT_SIZE])
{
	return bytes_text(bytes, NEAREST, buf);
}

const char *column_seconds_text(int64_t seconds, char buf[static COLUMN_SHORT_SIZE])
{
	int s = (int)MIN(MAX(seconds, 0), 999 * (int64_t)86400);

	if (s < 60)
		snprintf(buf, COLUMN_SHORT_SIZE, "%ds", s);
	else if (s < 3600)
		snprintf(buf, COLUMN_SHORT_SIZE, "%dm%02ds", s / 60, s % 60);
	else if (s < 86400)
		snprintf(buf, COLUMN_SHORT_SIZE, "%dh%02dm", s / 3600, s / 60 % 60);
	else
		snprintf(buf, COLUMN_SHORT_SIZE, "%dd%02dh", s / 86400, s / 3600 % 24);
	return buf;
}

/* ---- cells ------------------------------------------------------------------------------- */

void column_print(struct cell *cell, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	/* NOLINTNEXTLINE(clang-analyzer-valist.Uninitialized): clang 14 does not follow va_start */
	vsnprintf(cell->text, sizeof(cell->text), format, args);
	va_end(args);
}

static double fraction(uint64_t part, uint64_t whole)
{
	return whole && whole != COLUMN_NONE && part != COLUMN_NONE
		       ? MIN((double)part / (double)whole, 1.0)
		       : 0;
}

void column_bar(struct cell *cell, uint64_t part, uint64_t light, uint64_t whole)
{
	cell->bar = fraction(part, whole);
	cell->bar_light = fraction(light, whole);
}

/* False: it is not known, and the cell says so. */
static bool cell_number(struct cell *cell, uint64_t number)
{
	cell->numeric = true;
	cell->number = number == COLUMN_NONE ? -1 : (double)number;
	if (number == COLUMN_NONE)
		column_print(cell, "-");
	return number != COLUMN_NONE;
}

static void cell_part(struct cell *cell, uint64_t part, uint64_t whole)
{
	char a[COLUMN_SHORT_SIZE], b[COLUMN_SHORT_SIZE];

	(void)cell_number(cell, part);
	column_print(cell, "%s", column_bytes_text(part, a));
	if (whole == COLUMN_NONE)
		return;
	column_print(cell, "%s/%s", a, column_bytes_text(whole, b));
	cell->bar = fraction(part, whole);
}

static void cell_share(struct cell *cell, const json_t *value, int digits)
{
	cell->numeric = true;
	cell->number = json_is_number(value) ? json_number_value(value) : -1;
	if (cell->number < 0)
		column_print(cell, "-");
	else
		column_print(cell, "%.*f%%", digits, cell->number * 100);
}

static void cell_seconds(struct cell *cell, int64_t seconds)
{
	char text[COLUMN_SHORT_SIZE];

	cell->numeric = true;
	cell->number = (double)seconds;
	column_print(cell, "%s", column_seconds_text(seconds, text));
}

static void cell_duration(struct cell *cell, uint64_t ns)
{
	if (!cell_number(cell, ns))
		return;
	if (ns < 10000000000ull)
		column_print(cell, "%.2fs", (double)ns / 1e9);
	else
		cell_seconds(cell, (int64_t)(ns / 1000000000));
}

static void cell_moment(struct cell *cell, int64_t moment, int64_t now, bool as_age)
{
	char text[MOMENT_SIZE];

	if (as_age)
		cell_seconds(cell, moment ? now - moment : 0);
	if (!as_age || !moment)
		column_print(cell, "%s", moment ? moment_long_text(moment, now, text) : "-");
}

void column_cell(const struct column *c, const json_t *row, int64_t now, struct cell *ret)
{
	const json_t *value = value_at(row, c->path);
	uint64_t number = c->path ? column_number(row, c->path) : COLUMN_NONE;
	uint64_t whole = c->whole ? column_number(row, c->whole) : COLUMN_NONE;
	const char *text = text_at(row, c->path);
	char units[UNITS_TEXT_SIZE], bytes[COLUMN_SHORT_SIZE];

	*ret = (struct cell){.bar = -1, .bar_light = -1};
	switch (c->format) {
	case FORMAT_TEXT:
		column_print(ret, "%s", text);
		break;
	case FORMAT_KNOWN:
		column_print(ret, "%s", *text ? text : "-");
		break;
	case FORMAT_COUNT:
	case FORMAT_LIMITED:
		if (cell_number(ret, number) && whole != COLUMN_NONE)
			column_print(ret, "%" PRIu64 "/%" PRIu64, number, whole);
		else if (number != COLUMN_NONE)
			column_print(ret, "%" PRIu64, number);
		break;
	case FORMAT_BYTES:
		if (cell_number(ret, number))
			column_print(ret, "%s", column_bytes_text(number, bytes));
		break;
	case FORMAT_ROOM:
		if (cell_number(ret, number))
			column_print(ret, "%s", column_room_text(number, bytes));
		break;
	case FORMAT_AVERAGE:
		if (cell_number(ret, number))
			column_print(ret, "%s", column_average_text(number, bytes));
		break;
	case FORMAT_LONG_BYTES:
		if (cell_number(ret, number))
			column_print(ret, "%s", units_format_bytes(number, units));
		break;
	case FORMAT_PART:
		cell_part(ret, number, whole);
		break;
	case FORMAT_SHARE:
		cell_share(ret, value, 0);
		break;
	case FORMAT_PERCENT:
		cell_share(ret, value, 1);
		break;
	case FORMAT_AGE:
	case FORMAT_MOMENT:
		cell_moment(ret, moment_parse(text), now, c->format == FORMAT_AGE);
		break;
	case FORMAT_DURATION:
		cell_duration(ret, number);
		break;
	}
	if (c->fill)
		c->fill(row, now, ret);
}
