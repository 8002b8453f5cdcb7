/* ResourceClaimTemplates for sizes that pods name. The policies of packaging/kubernetes write a
 * template's name into a pod, and the name says all of it. Pure.
 *
 *   carve-fraction-0.5     half of one GPU's memory, and of its time where that is sliced
 *   carve-memory-4096      4096 MiB of one GPU; where the cluster has MIG instances, else the
 *                          smallest of these that has so much
 *   carve-fraction-0.5-x2  half of each of two GPUs
 *   carve-memory-4096-c30  with 30 per cent of the GPU's time
 *   carve-memory-4096.use.a100.l40.not.pcie
 *                          of a GPU whose product has "a100" or "l40" in its name, and no "pcie".
 *                          Case and blanks do not count */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "integrations/kubernetes/object/claim.h"

#define TEMPLATE_NAME_SIZE 64
/* Pods that need one have it as this label, and claims that were made of one as this annotation. */
#define TEMPLATE_LABEL "carve.dev/template"
/* The name of the claim that the policies add to a pod. */
#define TEMPLATE_ENTRY "carve-gpu"
/* The label of templates that carve made. */
#define TEMPLATE_OWNER_LABEL "app.kubernetes.io/managed-by"
#define TEMPLATE_OWNER "carve"
/* That label and value in a request for a list. */
#define TEMPLATE_SELECTOR "labelSelector=app.kubernetes.io%2Fmanaged-by%3Dcarve"
/* Alternatives that one request can have. */
#define TEMPLATE_SIZES_MAX 8
#define TEMPLATE_INSTANCES_MAX 32
#define TEMPLATE_MIG_CLASS "mig.carve.dev"

struct template_size {
	uint32_t share;     /* millionths of a GPU; 0: sized by memory */
	uint64_t memory;    /* MiB; 0: sized by a share */
	uint32_t gpu_count; /* 1 to 32 */
	uint32_t
		time_ppm; /* millionths of a GPU's time; 0: a share has its part, memory has none */
	char use[TEMPLATE_NAME_SIZE];   /* words of products, with a point between two; "": any */
	char avoid[TEMPLATE_NAME_SIZE]; /* such words of products that the GPU is not to be */
};

/* 0, or -EINVAL: the name is of no such template. */
int template_parse(const char *name, struct template_size *ret);

/* "namespace/name" of the template of that name in an object's namespace, with its 0. */
#define TEMPLATE_KEY_SIZE (CLAIM_LABEL_SIZE + TEMPLATE_NAME_SIZE)
/* False: it can be no template of carve's. */
bool template_key(const json_t *object, const char *name, char ret[static TEMPLATE_KEY_SIZE]);

/* Sizes that the cluster has, in MiB, smallest first. */
struct template_sizes {
	uint64_t gpu[TEMPLATE_SIZES_MAX]; /* a share is so many bytes of each of them */
	size_t gpus;
	uint64_t instance[TEMPLATE_INSTANCES_MAX]; /* the bytes of each MIG instance */
	size_t instances;
};

/* Whether carve made a template that the API server has. */
bool template_is_ours(const json_t *template);
/* The template. The caller owns the result. NULL: out of memory, or a share of GPUs that are not
 * known. */
json_t *template_build(const char *driver, const char *namespace, const char *name,
		       const struct template_size *size, const struct template_sizes *sizes);
