#include "base/suggest.h"

#include <string.h>

#include "base/macros.h"

#define WORD_MAX 64

/* Insertions, deletions, replacements and swaps of neighbours that make `b` of `a`. */
static size_t edit_distance(const char *a, size_t a_length, const char *b, size_t b_length)
{
	size_t rows[3][WORD_MAX + 1];
	size_t *before = rows[0], *above = rows[1], *row = rows[2];

	for (size_t j = 0; j <= b_length; j++)
		above[j] = j;
	for (size_t i = 1; i <= a_length; i++) {
		row[0] = i;
		for (size_t j = 1; j <= b_length; j++) {
			size_t best = above[j - 1] + (a[i - 1] != b[j - 1]);

			best = MIN(best, MIN(above[j], row[j - 1]) + 1);
			if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
				best = MIN(best, before[j - 2] + 1);
			row[j] = best;
		}
		size_t *oldest = before;

		before = above;
		above = row;
		row = oldest;
	}
	return above[b_length];
}

void suggest_offer(struct suggestion *s, const char *typed, const char *candidate, size_t length)
{
	size_t typed_length = strlen(typed);

	if (typed_length > WORD_MAX || length > WORD_MAX)
		return;
	size_t distance = edit_distance(typed, typed_length, candidate, length);
	if (distance > MAX(length / 3, 1) || (s->word && distance >= s->distance))
		return;
	s->word = candidate;
	s->length = length;
	s->distance = distance;
}
