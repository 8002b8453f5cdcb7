/* The CDI spec of a claim: what the container runtime changes in a container that uses a slice. The
 * container gets the layout of `carve run --isolation mount` (proto/attach.h): /run/carve-slice
 * with the slice's variables, the driver's own two libraries and, in `front`, carve's. */
#pragma once

#include <jansson.h>
#include <limits.h>

#include "integrations/kubernetes/checkpoint.h"

struct driver_libs;
struct error;

#define CDI_KIND_PREFIX "k8s."
#define CDI_ID_SIZE 256

/* What this host has for every slice; paths as the container runtime sees them. */
struct cdi_host {
	char front[PATH_MAX]; /* directory with carve's libraries */
	char cuda[PATH_MAX];  /* the driver's own libraries; empty: there is none */
	char nvml[PATH_MAX];
	char attach[PATH_MAX]; /* the attach socket */
	char slices[PATH_MAX]; /* directory of files with slices' variables */
	json_t *mounts;        /* more files of the driver: array of paths, owned */
};

/* "k8s.DRIVER/claim=UID-REQUEST". Returns buf. Pure. */
const char *cdi_id(const char *driver, const struct stored_claim *stored, size_t slice,
		   char buf[static CDI_ID_SIZE]);
/* The spec. `nodes` has, for each of the claim's slices, an array of paths of device nodes. The
 * caller owns the result; NULL: out of memory. Pure. */
json_t *cdi_claim_spec(const char *driver, const struct stored_claim *stored,
		       const struct cdi_host *host, const json_t *nodes);

/* Finds the driver's other files. 0, or negative with *err. */
int cdi_host_find(struct cdi_host *host, const struct driver_libs *driver, struct error *err);
/* The device nodes of the GPUs with these PCI addresses (array of texts). The caller owns it. */
json_t *cdi_nodes_find(const json_t *pci_bus_ids);
/* The file with a slice's variables: written and removed. 0, or negative with *err. */
int cdi_slice_write(const struct cdi_host *host, const char *session, struct error *err);
void cdi_slice_remove(const struct cdi_host *host, const char *session);
