/* One of several controllers acts: the holder of a Lease (coordination.k8s.io/v1). */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "integrations/kubernetes/api/api.h"

struct error;

#define LEADER_LEASE_MS 15000
#define LEADER_RENEW_MS 5000
#define LEADER_NAME_SIZE 128

/* A candidate's knowledge of the lease. Times are its own clock's (CLOCK_MONOTONIC, ms): clocks of
 * other hosts are not believed. */
struct leader {
	struct api *api;
	const char *namespace, *name;
	char identity[LEADER_NAME_SIZE];
	char seen[256];       /* the lease's holder and version, when last it changed */
	long long seen_ms;    /* when that was seen */
	long long renewed_ms; /* when it was last written by this one */
	bool leads;
};

/* Whether the lease may be taken: nobody holds it, this one does, or its holder has not renewed it
 * for LEADER_LEASE_MS of this clock. Keeps in `leader` what was seen. Pure but for that. */
bool leader_may_take(struct leader *leader, const json_t *lease, long long now_ms);
/* Tries once to take or to renew it: call it each LEADER_RENEW_MS. Then leader->leads says whether
 * it is the leader now. It is none once it could not renew for LEADER_LEASE_MS less two tries. 0,
 * or negative with *err. */
int leader_turn(struct leader *leader, struct error *err);
/* Gives it up, so that another one need not wait. */
void leader_resign(struct leader *leader);
