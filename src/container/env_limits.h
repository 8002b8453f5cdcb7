/* The limits that a container's variables name, as KAI and HAMi write them.
 * CUDA_DEVICE_MEMORY_LIMIT and CUDA_DEVICE_SM_LIMIT are for all of its GPUs, and the same with _0
 * to _63 for one of them. NVIDIA_VISIBLE_DEVICES names the GPUs. NVIDIA's and
 * Run:ai's fractions are NVIDIA_GPU_MEMORY_REQUEST and NVIDIA_GPU_MEMORY_LIMIT in MiB, of one
 * value, or one of them alone. KAI without HAMi writes GPU_PORTION and, with the same value,
 * RUNAI_NUM_OF_GPUS: a part of each GPU's memory. The user who makes a container writes them, so
 * they are hints: they lower what it has been granted, and raise nothing. Pure. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

struct error;

/* GPUs of a slice, as many as core/place.h allows. */
#define CONTAINER_LIMITS_GPUS_MAX 64u

struct container_limits {
	/* The limits of each GPU, in the order in which the container has them. */
	uint64_t memory[CONTAINER_LIMITS_GPUS_MAX];  /* bytes; 0: none is named */
	uint32_t percent[CONTAINER_LIMITS_GPUS_MAX]; /* per cent of its time; 0: none is named */
	uint32_t portion_ppm; /* the part of each GPU's memory, in millionths; 0: none is named */
	bool any;
	const char *visible; /* NVIDIA_VISIBLE_DEVICES, of the list; NULL: it is not there */
};

/* Reads a list of "NAME=VALUE". If a name is there twice, the lower value counts. 0, or negative
 * where a value makes no sense; *err names the variable. `ret` points into the list. */
int container_limits_read(const json_t *environment, struct container_limits *ret,
			  struct error *err);
/* The limit that holds for all of the first `gpus` GPUs of a slice, which have one size: the least,
 * without the portion. 0: none.
 */
uint64_t container_limits_memory(const struct container_limits *limits, size_t gpus);
/* The same with the portion, for the GPUs of `ids` ("0,1"; empty: all) in terms of GET /v1/gpus,
 * `count` of which a slice has. */
uint64_t container_limits_memory_of(const struct container_limits *limits, const json_t *gpus,
				    const char *ids, size_t count);
uint32_t container_limits_percent(const struct container_limits *limits, size_t gpus);

/* The GPUs that NVIDIA_VISIBLE_DEVICES names: "0,1" or "GPU-...,GPU-..." in terms of GET /v1/gpus.
 * Returns 0 with the text for "gpu_ids" and how many they are. 0: all, as of a container that has
 * GPUs in spite of the variable; the text is empty.
 * Returns negative with *err set where it names a GPU that is not there, or an instance. */
#define CONTAINER_GPU_IDS_SIZE 256
int container_limits_gpus(const char *visible, const json_t *gpus,
			  char ret_ids[static CONTAINER_GPU_IDS_SIZE], size_t *ret_count,
			  struct error *err);
/* Whether it says that the container has no GPU. */
bool container_limits_no_gpu(const char *visible);
