#include "daemon/metrics/text.h"

#include <stdlib.h>
#include <string.h>

#include "base/macros.h"
#include "base/utf8.h"

#define FIRST_ROOM 16384u
/* A number of 64 bits, a point and nine digits behind it. */
#define NUMBER_SIZE 32u

void metrics_text_free(struct metrics_text *t)
{
	free(t->data);
	*t = (struct metrics_text){0};
}

/* Room for `size` bytes more and a zero byte. */
static bool room_make(struct metrics_text *t, size_t size)
{
	size_t room = t->room ? t->room : FIRST_ROOM;

	if (t->failed)
		return false;
	if (t->size + size < t->room)
		return true;
	while (room <= t->size + size)
		room *= 2;
	char *data = realloc(t->data, room);
	if (!data) {
		t->failed = true;
		return false;
	}
	t->data = data;
	t->room = room;
	return true;
}

void metrics_text_add(struct metrics_text *t, const char *data, size_t size)
{
	if (!room_make(t, size))
		return;
	memcpy(t->data + t->size, data, size);
	t->size += size;
	t->data[t->size] = '\0';
}

static void words_add(struct metrics_text *t, const char *words)
{
	metrics_text_add(t, words, strlen(words));
}

void metrics_family_begin(struct metrics_text *t, const struct metrics_family *family)
{
	words_add(t, "# HELP ");
	words_add(t, family->name);
	words_add(t, " ");
	words_add(t, family->help);
	words_add(t, "\n# TYPE ");
	words_add(t, family->name);
	words_add(t, family->counts ? " counter\n" : " gauge\n");
}

/* Writes the digits so that they end before `end`, at least `least` of them. Returns where they
 * begin. */
static char *digits_put(char *end, uint64_t number, unsigned least)
{
	for (unsigned i = 0; number || i < least; i++) {
		*--end = (char)('0' + number % 10);
		number /= 10;
	}
	return end;
}

static char *number_put(char *end, uint64_t number, enum metrics_unit unit)
{
	unsigned behind = unit == METRICS_SECONDS ? 9 : unit == METRICS_RATIO ? 6 : 0;
	uint64_t one = unit == METRICS_SECONDS ? 1000000000 : 1000000;

	if (!behind)
		return digits_put(end, number, 1);
	end = digits_put(end, number % one, behind);
	*--end = '.';
	return digits_put(end, number / one, 1);
}

void metrics_sample(struct metrics_text *t, const struct metrics_family *family, const char *labels,
		    size_t labels_size, uint64_t number)
{
	char buf[NUMBER_SIZE], *end = buf + sizeof(buf);
	size_t name_size = strlen(family->name);

	if (number == METRICS_NONE || !room_make(t, name_size + labels_size + NUMBER_SIZE + 4))
		return;
	*--end = '\n';
	const char *digits = number_put(end, number, family->unit);
	metrics_text_add(t, family->name, name_size);
	if (labels_size) {
		metrics_text_add(t, "{", 1);
		metrics_text_add(t, labels, labels_size);
		metrics_text_add(t, "}", 1);
	}
	metrics_text_add(t, " ", 1);
	metrics_text_add(t, digits, (size_t)(buf + sizeof(buf) - digits));
}

void metrics_single(struct metrics_text *t, const struct metrics_family *family, uint64_t number)
{
	if (number == METRICS_NONE)
		return;
	metrics_family_begin(t, family);
	metrics_sample(t, family, NULL, 0, number);
}

/* ---- labels ------------------------------------------------------------------------------ */

static void value_add(struct metrics_text *t, const char *value)
{
	const char *at = value;

	while (*at) {
		uint32_t character;
		size_t size = utf8_take(at, &character);

		if (*at == '\\')
			words_add(t, "\\\\");
		else if (*at == '"')
			words_add(t, "\\\"");
		else if (*at == '\n')
			words_add(t, "\\n");
		else if (size)
			metrics_text_add(t, at, size);
		else
			words_add(t, "\xef\xbf\xbd");
		at += MAX(size, 1u);
	}
}

void metrics_label(struct metrics_text *t, size_t begun, const char *name, const char *value)
{
	if (!*value)
		return;
	if (t->size > begun)
		words_add(t, ",");
	words_add(t, name);
	words_add(t, "=\"");
	value_add(t, value);
	words_add(t, "\"");
}
