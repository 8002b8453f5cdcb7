/* The pod that has a claim, as labels of its slices' metrics. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

struct prepare;

/* "NAMESPACE/POD/CONTAINER", with the longest names that the API server allows. */
#define CLAIM_POD_SIZE 384

/* The pod that the claim is reserved for, "NAMESPACE/POD"; "": none is told. Pure. */
void claim_pod_read(const json_t *claim, char ret[static CLAIM_POD_SIZE]);
/* The first container of the pod that uses the claim; NULL: none does. Pure. */
const char *claim_pod_container(const json_t *pod, const char *claim);
/* Appends the container to `pod`, where this plugin's account may read pods. Blocks. */
void claim_pod_find_container(struct prepare *prepare, const char *claim,
			      char pod[static CLAIM_POD_SIZE]);
