/* Switching MIG mode on, for a role. */
#pragma once

#include <stdint.h>

struct call;
struct error;

typedef void (*mig_mode_cb)(struct call *call, void *arg, const struct error *err);

/* Switches the mode of GPUs (bit = position in the pool) on, on a thread: the daemon lets go of the
 * driver meanwhile. Defers the call, and calls back unless whoever asked is gone; *err says where
 * it failed. `arg` is from malloc, and freed afterwards. */
void mig_mode_enable(struct call *call, uint64_t mask, mig_mode_cb cb, void *arg);
