/* The MIG role of a node's GPUs, by the labels that Run:ai's and ClearML's tools set on the node.
 */
#pragma once

#include <jansson.h>
#include <stdbool.h>

#include "integrations/kubernetes/api/api.h"
#include "integrations/kubernetes/claim/carved.h"

struct error;

enum role_order {
	ROLE_KEEP,   /* as it is: an administrator of the node may have set it */
	ROLE_SET,    /* GPUs in MIG mode are to have it */
	ROLE_REMOVE, /* a label had set it, and says so no more */
};

/* `by_label`: a label set the role. Pure. */
enum role_order role_of_labels(const json_t *labels, bool by_label);

/* For one thread. */
struct role {
	struct api *api;
	struct carved *carved;
	const char *node;
	const char *dir; /* the directory of the file that says that a label set the role */
};

/* The node, as the API server has it; the caller's. Blocks. 0, or negative with *err. */
int role_node_read(const struct role *role, json_t **ret_node, struct error *err);
/* Has carved do what the node's labels say. Blocks. `gpus` are as carved lists them. 0 with whether
 * anything was to be done, or negative with *err. */
int role_follow(const struct role *role, const json_t *labels, const json_t *gpus,
		bool *ret_changed, struct error *err);
