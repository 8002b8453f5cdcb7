/* ResourceClaimTemplates for sizes that pods name. The policies of packaging/kubernetes write a
 * template's name into a pod, and the name says all of it. Pure.
 *
 *   carve-fraction-0.5     half of one GPU's memory, and of its time where that is sliced
 *   carve-memory-4096      4096 MiB of one GPU
 *   carve-fraction-0.5-x2  half of each of two GPUs */
#pragma once

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

#define TEMPLATE_NAME_SIZE 64
/* Pods that need one have it as this label. */
#define TEMPLATE_LABEL "carve.dev/template"
/* Alternatives that one request can have. */
#define TEMPLATE_SIZES_MAX 8

struct template_size {
	uint32_t share;     /* millionths of a GPU; 0: sized by memory */
	uint64_t memory;    /* MiB; 0: sized by a share */
	uint32_t gpu_count; /* 1 to 32 */
};

/* 0, or -EINVAL: the name is of no such template. */
int template_parse(const char *name, struct template_size *ret);
/* The template. `gpu_mib` has the sizes of GPUs that the cluster has, up to TEMPLATE_SIZES_MAX; a
 * share is so many bytes of each of them. The caller owns the result. NULL: out of memory, or a
 * share of GPUs that are not known. */
json_t *template_build(const char *driver, const char *namespace, const char *name,
		       const struct template_size *size, const uint64_t *gpu_mib, size_t sizes);
