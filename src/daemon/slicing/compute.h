/* Promises of compute: what stands against dividing a GPU's time. */
#pragma once

#include <stdint.h>

struct error;
struct node;

/* Whether time may be promised from now on by the GPUs of `mask` (bits: positions in the pool).
 * Requests of sessions from before count as they were made; where those on one GPU come to more
 * than all of its time: negative, with *err (EXIT_CODE_FAILED) naming the sessions. */
int compute_switch_check(const struct node *node, uint64_t mask, struct error *err);
