/* GPU models with MIG for `carve mig simulate`: what NVML would say of them, from the simulated
 * driver's tables. */
#pragma once

#include <jansson.h>
#include <stdint.h>

#include "core/mig.h"

struct error;

/* GPUs of a simulated pool: a host has far fewer, a cluster may have as many. */
#define MIG_MODELS_GPUS_MAX 10000u
#define MIG_NAME_SIZE 32

struct mig_models {
	struct mig_die *dies;                           /* owned */
	char (*names)[MIG_PROFILES_MAX][MIG_NAME_SIZE]; /* owned; of the profiles, by die */
	uint32_t die_count;
	uint16_t *gpu_die; /* owned; of each GPU the number of its die */
	uint32_t gpu_count;
};

/* "MODEL[:COUNT],..." as --gpus has it. 0, or negative with *err set. */
int mig_models_read(const char *spec, struct mig_models *ret, struct error *err);
/* That list; owned by the caller. NULL, or no array: the simulated host's program does not answer.
 */
json_t *mig_models_list(void);
void mig_models_free(struct mig_models *models);
