/* The setup of `carve timeslicing simulate`, and its results. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "core/lease_sim.h"

struct cli;
struct error;

#define SIMULATION_CLIENTS_MAX 64u
/* The part of the timeline that is shown. */
#define SIMULATION_PLANS_SHOWN 2u
/* To open a gate after another was closed; docs: switch p50 <= 300 us. */
#define SIMULATION_SWITCH_NS 300000ull

struct simulation {
	struct lease_setting setting;
	struct lease_sim_client clients[SIMULATION_CLIENTS_MAX];
	uint32_t count;
	uint64_t length_ns;

	struct lease_sim_result results[SIMULATION_CLIENTS_MAX];
	struct lease_sim_span
		*spans; /* the spans of the plans shown, in the order of their starts */
	size_t span_count, span_room;
	uint64_t idle_ns; /* nobody had the GPU, and nobody could have had it */
};

/* From the options. 0, or negative with *err set. */
int simulation_read(const struct cli *cli, struct simulation *s, struct error *err);
int simulation_run(struct simulation *s, struct error *err);
void simulation_free(struct simulation *s);
