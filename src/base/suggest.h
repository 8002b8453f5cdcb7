/* "Did you mean ...?" */
#pragma once

#include <stddef.h>

/* The best of some words so far; start from a zeroed one. */
struct suggestion {
	const char *word; /* NULL: none is near enough; `length` bytes, not terminated */
	size_t length;
	size_t distance;
};

/* Offers a candidate of `length` bytes for what the user typed. Keeps the pointer of the nearest
 * one that differs in at most a third of its letters. */
void suggest_offer(struct suggestion *s, const char *typed, const char *candidate, size_t length);
