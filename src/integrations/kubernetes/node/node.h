/* The plugin of a node: the kubelet's sockets, and a thread that looks after carved and the
 * ResourceSlices. */
#pragma once

#include "integrations/kubernetes/object/node_labels.h" /* NODE_REPLICAS_MAX */

struct error;

struct node_options {
	const char *node;        /* the node's name */
	const char *driver;      /* the driver's */
	const char *kubelet_dir; /* /var/lib/kubelet */
	const char *cdi_dir;     /* /var/run/cdi */
	const char *front_dir;   /* carve's libraries, as the container runtime sees them; NULL:
				    where they are here */
	const char *hook_dir;    /* carve-hook, likewise; NULL: there is none */
	const char *host;        /* carved's socket; NULL: as for every command */
	unsigned replicas;       /* slices of one GPU, at most; 0: as the node's label says */
	/* reserve.h; namespace NULL: GPUs are not reserved. */
	const char *reserve_namespace, *reserve_image, *reserve_resource, *reserve_label;
	const char *api_url, *token, *ca; /* api_open() */
};

/* Serves until SIGTERM or SIGINT. 0, or negative with *err. */
int node_run(const struct node_options *options, struct error *err);
