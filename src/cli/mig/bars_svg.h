/* Bars from left to right, one below the other, as SVG. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct bar {
	const char *name, *note; /* plain ASCII: nothing is escaped */
	double value;            /* from 0 */
	bool marked, pale;
};

struct bar_picture {
	const char *title, *subtitle;
	const struct bar *bars;
	uint32_t count;
};

/* 0; whether the file took it, ferror() says. */
int bars_svg_write(FILE *file, const struct bar_picture *picture);
