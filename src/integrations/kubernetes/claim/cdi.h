/* The CDI spec of a claim: what the container runtime changes in a container that uses a slice. The
 * container gets the layout of all containers with slices (container/layout.h). */
#pragma once

#include <jansson.h>
#include <limits.h>

#include "integrations/kubernetes/claim/checkpoint.h"

struct error;

#define CDI_KIND_PREFIX "k8s."
#define CDI_ID_SIZE 256

/* The parts of this host for every slice; paths as the container runtime sees them. */
struct cdi_host {
	char front_cuda[PATH_MAX], front_nvml[PATH_MAX]; /* carve's libraries */
	char cuda[PATH_MAX], nvml[PATH_MAX];             /* the driver's own */
	char attach[PATH_MAX];                           /* the attach socket */
	char socket[PATH_MAX];                           /* carved's other one, for the hook */
	char hook[PATH_MAX];                             /* carve-hook; empty: there is none */
	char slices[PATH_MAX];                           /* directory of slices' files */
	const char *simulated_host;                      /* NULL, or the directory of `carve sim` */
};

/* "k8s.DRIVER/claim=UID-REQUEST". Returns buf. Pure. */
const char *cdi_id(const char *driver, const struct stored_claim *stored, size_t slice,
		   char buf[static CDI_ID_SIZE]);
/* Writes the slices' files, and makes the spec. For each of the claim's slices `sessions` has its
 * session as carved shows it. 0 with *ret (owned by the caller), or negative with *err. */
int cdi_claim_spec(const char *driver, const struct stored_claim *stored,
		   const struct cdi_host *host, const json_t *sessions, json_t **ret,
		   struct error *err);
/* Removes a slice's files. */
void cdi_slice_remove(const struct cdi_host *host, const char *session);
