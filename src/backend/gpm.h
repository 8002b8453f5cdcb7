/* The use of GPUs in MIG mode and of their instances, by the driver's GPU performance monitoring
 * (GPM). Hopper and newer GPUs have it. There is no other figure: in MIG mode
 * nvmlDeviceGetUtilizationRates is not supported. One thread at a time a GPU; calls may block for
 * milliseconds. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "backend/instances.h"

/* Not known: the GPU has no GPM, or was not looked at twice. */
#define GPM_UNKNOWN ((int8_t)-1)

struct gpm;

/* 0; -ENOTSUP: this driver has no GPM; -ENOMEM. The GPUs stay open for as long as this is. */
int gpm_open(const struct gpus *gpus, struct gpm **ret);
void gpm_close(struct gpm *gpm);
/* The part of the time since the last look, in per cent, in which a GPU computed, and each of the
 * instances that it has now. Less than a tenth of a second after the last look, it is that of the
 * last one. An instance that the last look did not see is not known. */
void gpm_look(struct gpm *gpm, uint32_t gpu, const struct instance *list, size_t count,
	      int8_t *ret_gpu, int8_t *ret_instances);
