/* Parts of the driver that gpus.h opened, for the other files of the backend. */
#pragma once

#include "backend/gpus.h"
#include "base/nvml_abi.h"

/* A function of its NVML; NULL: this driver has none of that name. */
void *gpus_function(const struct gpus *gpus, const char *name);
/* NVML's answer in errno's terms: 0 or negative. */
int gpus_errno(nvmlReturn_t status);
/* 0 or -errno as in gpus.h. */
int gpus_device(const struct gpus *gpus, uint32_t index, nvmlDevice_t *ret);
