/* The functions of the simulated drivers of all versions, CUDA's and NVML's. */
#pragma once

#include <stddef.h>

/* In the order of strcmp(). */
extern const char *const call_names[];
extern const size_t call_name_count;
