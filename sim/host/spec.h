/* The parts of a simulated host, as users write it. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "host/models.h"
#include "host/wire.h"

struct error;

#define SPEC_DEFAULT "h100-80gb"

struct spec_gpu {
	const struct sim_model *model;
	bool mig; /* MIG mode is on from the start */
};

struct spec {
	uint32_t gpu_count;
	struct spec_gpu gpu[WIRE_GPUS_MAX];
};

/* "MODEL[:COUNT][+mig],...". 0, or negative with *err naming the offending part and a right one. */
int spec_parse(const char *text, struct spec *ret, struct error *err);

struct spec_driver {
	uint32_t branch;     /* 550 */
	const char *version; /* "550.163.01" */
	int cuda_version;    /* 12040 */
};

#define SPEC_DRIVER_DEFAULT "550"
/* "535", "550", "580", "595", "610", "615". NULL with *err set: no such driver. */
const struct spec_driver *spec_driver_find(const char *text, struct error *err);
