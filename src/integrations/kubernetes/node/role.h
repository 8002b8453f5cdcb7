/* The MIG role of a node's GPUs, by the labels that Run:ai's and ClearML's tools set on the node.
 */
#pragma once

#include <jansson.h>
#include <stdbool.h>

#include "integrations/kubernetes/api/api.h"
#include "integrations/kubernetes/claim/carved.h"

struct error;

#define ROLE_LABEL_RUNAI "node-role.kubernetes.io/runai-mig-enabled" /* "true" */
#define ROLE_LABEL_CLEARML "cdmo.clear.ml/gpu-partitioning"          /* "mig" */

/* How many pods NVIDIA's device plugin shares a GPU among: its feature discovery writes the
 * `replicas` of its time-slicing there, 1 where that is off. */
#define ROLE_LABEL_REPLICAS "nvidia.com/gpu.replicas"
#define ROLE_REPLICAS_MAX 1000

enum role_order {
	ROLE_KEEP,   /* as it is: an administrator of the node may have set it */
	ROLE_SET,    /* GPUs in MIG mode are to have it */
	ROLE_REMOVE, /* a label had set it, and says so no more */
};

/* `by_label`: a label set the role. Pure. */
enum role_order role_of_labels(const json_t *labels, bool by_label);

/* The most slices of a GPU that the labels of a node name; 0: none. Pure. */
unsigned role_replicas(const json_t *labels);

/* Of one thread. */
struct role {
	struct api *api;
	struct carved *carved;
	const char *node;
	const char *dir; /* of the file that says that a label set the role */
};

/* Reads the node's labels, and has carved do what they say. Blocks. `gpus` are as carved lists
 * them. 0 with whether anything was to be done, or negative with *err. *ret_replicas is set once
 * the labels are read, also where carved does not obey. */
int role_follow(const struct role *role, const json_t *gpus, bool *ret_changed,
		unsigned *ret_replicas, struct error *err);
