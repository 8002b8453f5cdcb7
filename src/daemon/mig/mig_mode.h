/* Switching MIG mode on, for a role. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct error;
struct mig;

typedef void (*mig_mode_cb)(void *asker, void *arg, const struct error *err);

/* Switches MIG mode of GPUs (bit = position in the pool) on, on a thread: the daemon lets go of the
 * driver meanwhile. Calls cb once, unless the asker is forgotten before; *err says why it failed,
 * and its code is 0 on success. False: the callback was called before this returned. `arg` is from
 * malloc, and freed after the callback. */
bool mig_mode_enable(struct mig *mig, uint64_t mask, mig_mode_cb cb, void *asker, void *arg);
/* The asker is gone: it is not called back. */
void mig_mode_forget(struct mig *mig, const void *asker);
