/* Shared by the files of carve-metrics. One thread, one loop. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "daemon/metrics/metrics_config.h"
#include "integrations/door/door.h"

struct upstream;

/* A connection on which nothing moves for this long ends; so does one that has not proved who it is
 * after this time. Prometheus keeps its connection between two scrapes. */
#define READER_SILENCE_NS 90000000000ull
#define READER_PROOF_NS 10000000000ull

struct exporter {
	struct door door; /* first, so that the door leads to its exporter */
	struct upstream *upstream;
	uint64_t scrapes, unanswered;
};

/* The program's. */
extern struct exporter exporter_program;

static inline struct exporter *exporter_of(struct door *door)
{
	return (struct exporter *)door;
}
