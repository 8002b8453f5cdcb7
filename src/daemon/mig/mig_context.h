/* The cost of one CUDA context in instances. Where a GPU model was seen out of MIG mode, its cost
 * there is taken. Else a process makes a context in an instance that nobody has yet. It does so
 * when a request shares one of that profile, or asks for several, for the first time. The store
 * keeps the cost by model, driver and profile. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "daemon/host/child.h"

struct mig;

/* After a failure a profile is not tried again for this long, as its GPU gives nothing meanwhile.
 */
#define MIG_CONTEXT_AGAIN_NS 600000000000ull

struct mig_probe {
	struct child child;
	struct mig *mig;
	struct mig_probe *next; /* the next one that runs */
	uint32_t gpu;           /* position in the pool */
	uint8_t profile;
	void (*on_done)(struct mig_probe *probe);
	void *arg; /* the owner's */
};

/* The board of a GPU is known: what the store has of its profiles. */
void mig_contexts_load(struct mig *mig, uint32_t gpu);
/* Makes the pool's costs follow what is known. */
void mig_contexts_publish(struct mig *mig, uint32_t gpu);
/* Whether it is not known, and to be found out. */
bool mig_context_wanted(const struct mig *mig, uint32_t gpu, uint8_t profile);
/* Begins; on_done follows on the loop, also after a failure, in PROBE_TIMEOUT_MS (probe.h) at most.
 * The instance is nobody's until then. */
void mig_context_probe(struct mig *mig, struct mig_probe *probe, const char *uuid_text);
/* The daemon stops: running ones are killed, and on_done follows. */
void mig_contexts_stop(struct mig *mig);
