/* Claims on a node: made into sessions and CDI specs, and given back. Functions block, and several
 * threads may call them at once; two calls for one claim go one after the other. Each is safe to
 * repeat, and safe to be killed at any instruction: what it finds of an earlier one it takes up. */
#pragma once

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "integrations/kubernetes/api/api.h"
#include "integrations/kubernetes/claim/carved.h"
#include "integrations/kubernetes/claim/cdi.h"
#include "integrations/kubernetes/claim/checkpoint.h"
#include "integrations/kubernetes/claim/reserve.h"

struct error;

/* The kubelet gives a call 45 s, and has its answer after these. */
#define PREPARE_SECONDS 40
/* A call asks again for room for this long, as memory of a container that just ended comes back
 * late. It does so as well where carved or the API server is away, as in an upgrade. The kubelet
 * itself calls again after 60 to 90 s only. */
#define PREPARE_ROOM_SECONDS 10
#define PREPARE_BUSY_MAX 256

struct prepare {
	struct api *api;
	struct carved *carved;
	const char *driver, *node;
	unsigned replicas;  /* the number that this node's administrator gave; 0: see its label */
	const char *state;  /* the plugin's own directory */
	const char *claims; /* directory of checkpoints */
	const char *cdi;    /* directory of CDI specs */
	const char
		*pod_resources; /* the kubelet's socket that tells what device plugins gave away */
	struct cdi_host host;
	struct reserve reserve; /* the reservations of claims' GPUs */
	pthread_mutex_t lock;   /* guards the fields below; no other is taken under it */
	pthread_cond_t freed;
	char busy[PREPARE_BUSY_MAX][CLAIM_LABEL_SIZE]; /* claims in a call; "": a free entry */
	bool pods_denied; /* this account may not read pods; read and set without the lock */
};

/* A claim as the kubelet names it. */
struct prepare_claim {
	const char *namespace, *name, *uid;
	bool known; /* only where it has a checkpoint: it may be released meanwhile */
};

/* 0 with what the claim has, or negative with *err. */
int prepare_claim(struct prepare *prepare, const struct prepare_claim *claim,
		  struct stored_claim *ret, struct error *err);
/* 0 also where nothing was prepared. Processes that are left in the claim's slices are ended. */
int prepare_release(struct prepare *prepare, const struct prepare_claim *claim, struct error *err);
/* Whether a claim that has a checkpoint has a device of the GPU with this UUID: reserve.wanted. */
bool prepare_wants(void *arg, const char *uuid);
/* Whether a claim that is prepared has a device of that GPU. */
bool prepare_has(struct prepare *prepare, const char *uuid);
/* Makes what prepared claims have once more where it is gone: after a boot of the host the kubelet
 * does not ask for it. Returns how many could not be. */
unsigned prepare_restore(struct prepare *prepare);
/* Gives back what claims have that the API server does not know any more: their node was deleted
 * and came back, and no kubelet will ask. Nobody is ended for that. Returns how many were. */
unsigned prepare_collect(struct prepare *prepare);
