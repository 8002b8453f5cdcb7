/* A row of GET /v1/limits: one limit of a user, and from where it comes. Policies add their rows
 * here; the table of policies is in api_limits.c. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "daemon/host/peer.h"

struct node;

enum limit_unit {
	LIMIT_BYTES,
	LIMIT_COUNT,
	LIMIT_NS,
	LIMIT_HOURS, /* GPU-hours; the numbers of the row are milliseconds */
	LIMIT_TEXT,  /* a word, as "report" or "kill" */
};

struct limit_row {
	const char *limit; /* the name in JSON: "vram_bytes" */
	const char *title; /* for people: "GPU memory" */
	enum limit_unit unit;
	uint64_t most;    /* LIMITS_NONE: there is no limit */
	const char *text; /* for LIMIT_TEXT in place of a number */
	uint64_t used;    /* LIMITS_NONE: nothing is counted */
	/* From where the limit comes: "user", "group" (all members together), "each" (each member
	 * of a group), "everyone", "defaults" (of carved.json), "carved.json", "default" (of
	 * carve); NULL: nobody set one. */
	const char *from;
	const char *name; /* the name of that user or group, or the key in carved.json; NULL: it has
			     none */
	int64_t renews;   /* when the use counts anew, CLOCK_REALTIME in ns; 0: never */
};
#define LIMITS_NONE UINT64_MAX

/* The answer while it is made. */
struct limits_view {
	const struct node *node;
	struct peer whose; /* the user; without groups where another user asks */
	json_t *rows;
};

void limits_add(struct limits_view *view, const struct limit_row *row);
