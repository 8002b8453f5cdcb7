/* A picture of who had a GPU when: one lane a client, time to the right, as SVG. */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum lane_kind {
	LANE_LEASE,   /* a block in the lane's colour */
	LANE_OVERRUN, /* the part of a lease after it was to end: darker */
	LANE_WAIT,    /* wanted, but had no lease: a thin line */
	LANE_IDLE,    /* nobody may use, or nobody wants: hatched */
};

/* Spans of one lane do not overlap; they stand in order of their start within a lane. */
struct lane_span {
	uint32_t lane;
	uint64_t start_ns, end_ns;
	enum lane_kind kind;
	const char *label; /* for the pointer's tooltip; may be NULL */
};

struct lane {
	const char *name;
	const char *note; /* to the right: "25.0%"; may be NULL */
};

struct lane_picture {
	const char *title, *subtitle;
	const struct lane *lanes;
	uint32_t count;
	uint64_t from_ns, to_ns;        /* the time that is shown; from < to */
	uint64_t plan_from_ns, plan_ns; /* plan boundaries are marked; plan_ns 0: none */
	const struct lane_span *spans;
	size_t span_count;
};

/* Any text is escaped. 0; whether the file took it, ferror() says. */
int lanes_svg_write(FILE *file, const struct lane_picture *picture);
