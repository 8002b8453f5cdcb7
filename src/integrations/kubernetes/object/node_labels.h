/* The labels of a node that say what carve makes of its GPUs. Pure. */
#pragma once

#include <jansson.h>
#include <stdbool.h>

struct error;

#define NODE_LABEL_RUNAI "node-role.kubernetes.io/runai-mig-enabled" /* "true" */
#define NODE_LABEL_CLEARML "cdmo.clear.ml/gpu-partitioning"          /* "mig" */

/* The label that says how many pods NVIDIA's device plugin shares a GPU among. Its feature
 * discovery writes the `replicas` of its time-slicing there, 1 where that is off, and 0 where no
 * GPU is whole. */
#define NODE_LABEL_REPLICAS "nvidia.com/gpu.replicas"
#define NODE_REPLICAS_MAX 1000

/* Whether one of them asks for the MIG role. `labels` may be NULL. */
bool node_labels_mig(const json_t *labels);
/* The most slices of a GPU that they name; 0: none. */
unsigned node_labels_replicas(const json_t *labels);
/* Writes an error for each of the labels whose value means nothing, at the label's place; others
 * have the code 0. `ret` has room for NODE_LABELS. Returns the number of errors. `replicas`: that
 * label counts, too. */
#define NODE_LABELS 3
unsigned node_labels_check(const json_t *labels, bool replicas, struct error *ret);
