/* The inside of mig.h: idle instances that nobody has used for long are removed. */
#pragma once

#include <stdint.h>

struct mig;

/* Removes those of one GPU that were idle for at least `older_ns`. Returns how many are to go.
 * Removals that are under way come first. */
unsigned mig_collect_start(struct mig *mig, uint32_t gpu, uint64_t older_ns);
/* Likewise, where the daemon looks after its instances. */
unsigned mig_collect_board(struct mig *mig, uint32_t gpu, uint64_t older_ns);
