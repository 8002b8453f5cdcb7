/* Writes Prometheus's text format (version 0.0.4): families with HELP and TYPE, and their samples.
 * Numbers are written without floating point: a scrape has thousands. Pure, but for memory. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define METRICS_CONTENT_TYPE "text/plain; version=0.0.4; charset=utf-8"

struct metrics_text {
	char *data; /* owned; ends with a zero byte once something was written */
	size_t size, room;
	bool failed; /* there was no memory: what follows is dropped */
};

/* The unit of a number; samples have the base units of Prometheus. */
enum metrics_unit {
	METRICS_PLAIN,   /* bytes, counts */
	METRICS_SECONDS, /* the number is in nanoseconds */
	METRICS_RATIO,   /* the number is in millionths */
};

/* A number that nobody knows: there is no sample of it. */
#define METRICS_NONE UINT64_MAX

struct metrics_family {
	const char *name, *help;
	enum metrics_unit unit;
	bool counts; /* a counter; else a gauge */
};

void metrics_text_free(struct metrics_text *text);
void metrics_text_add(struct metrics_text *text, const char *data, size_t size);
/* Writes HELP and TYPE. All samples of the family have to follow at once. */
void metrics_family_begin(struct metrics_text *text, const struct metrics_family *family);
/* `labels` is what metrics_label() wrote; NULL: there are none. */
void metrics_sample(struct metrics_text *text, const struct metrics_family *family,
		    const char *labels, size_t labels_size, uint64_t number);
/* A family with one sample without labels. */
void metrics_single(struct metrics_text *text, const struct metrics_family *family,
		    uint64_t number);
/* Appends name="value". A value that is empty is left out, as Prometheus takes it for absent.
 * Bytes that are not UTF-8 become U+FFFD. `begun`: where the labels of this sample begin in `text`.
 */
void metrics_label(struct metrics_text *text, size_t begun, const char *name, const char *value);
