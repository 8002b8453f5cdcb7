/* Another daemon that has a GPU, as the daemon that was asked tells of it: `held_by` of GET
 * /v1/gpus. */
#pragma once

#include <jansson.h>

#define GPU_HOLDER_SIZE 128
/* "held by another daemon (process 12 of ann)", or that it is the system daemon's. Returns buf. */
const char *gpu_holder_text(const json_t *holder, char buf[static GPU_HOLDER_SIZE]);
/* A hint: how to get slices of that GPU. */
const char *gpu_holder_advice(const json_t *holder);
