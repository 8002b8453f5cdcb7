/* A unit that was typed apart from its number: `--vram 4 GB`. */
#pragma once

#include <stdbool.h>

struct cli;

#define SPLIT_UNIT_SIZE 96

/* Whether `unit` makes a size, a time or a part of `number`: "4" and "GB". Writes both as one word
 * into `buf`. Thread-safe. */
bool split_unit_size(const char *number, const char *unit, char buf[static SPLIT_UNIT_SIZE]);
/* Whether `word` is the unit that the number of an option lacks: of any option that was given, or,
 * with `last`, of the one that stands right before the word. Writes what was meant into `buf`:
 * "--vram 4GB". Thread-safe. */
bool split_unit_option(const struct cli *cli, const char *word, bool last,
		       char buf[static SPLIT_UNIT_SIZE]);
