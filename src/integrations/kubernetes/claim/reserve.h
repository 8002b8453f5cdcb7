/* Reservations: each GPU that claims have slices of gets a pod that holds the whole GPU as others
 * count it (nvidia.com/gpu: 1). So schedulers and device plugins that do not know DRA give it to
 * nobody. The device plugin chooses a pod's GPU, and the pod's log tells which. So pods are made
 * until one has the GPU that is wanted, and the others are deleted. A GPU that no pod gets is
 * another's, and the claim is refused. Functions block; thread-safe. */
#pragma once

#include <jansson.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>

#include "integrations/kubernetes/api/api.h"

struct device_gpu;
struct error;

/* The first line of a reservation pod: this, its NVIDIA_VISIBLE_DEVICES, and a newline. */
#define RESERVE_LINE "carve-reservation "
#define RESERVE_LABEL "carve.dev/reservation"
/* GPUs of a node, at most. */
#define RESERVE_GPUS_MAX 64
#define RESERVE_UUID_SIZE 96

struct reserve {
	struct api *api;
	const char *node;
	const char *namespace; /* NULL: no reservations */
	const char *image;
	const char *resource; /* "nvidia.com/gpu" */
	const char *label;    /* KEY=VALUE, beside carve's own; NULL: none */
	pthread_mutex_t lock; /* guards the API server's state: one draws at a time */
	bool (*wanted)(void *arg, const char *uuid); /* by a claim; called under the lock */
	void *arg;
};

enum reserve_state {
	RESERVE_STARTS, /* its container does not run, or has not told its GPU yet */
	RESERVE_HOLDS,  /* it has `uuid` */
	RESERVE_FAILED, /* it got no GPU, or does not tell which: it ends, or names no GPU */
	RESERVE_GOING,  /* it is being deleted */
};

struct reserve_pod {
	char name[64];
	char uuid[RESERVE_UUID_SIZE];
	enum reserve_state state;
	bool wanted; /* a claim has a slice of its GPU */
};

enum reserve_step {
	RESERVE_DONE,      /* a pod has the GPU */
	RESERVE_WAIT,      /* pods start or go */
	RESERVE_MAKE,      /* one more pod is to be made */
	RESERVE_EXHAUSTED, /* there is no GPU left, and none has the one that is wanted */
};

/* The work to be done for a GPU. Pure. */
enum reserve_step reserve_decide(const struct reserve_pod *pods, size_t count, const char *uuid);
/* Makes the reservations of GPUs that claims want and no pod holds: somebody deleted a pod, or the
 * kubelet evicted it. True: each such GPU is held. False with *err. */
bool reserve_keep(struct reserve *reserve, const struct device_gpu *gpus, size_t gpu_count,
		  struct error *err);
/* Whether a pod of that name is a reservation of carve's. Pure. */
bool reserve_is_pod(const struct reserve *reserve, const char *namespace, const char *name);
/* Whether a reservation pod, as the API server has it, has or gets a GPU. Pure. */
bool reserve_pod_holds(const json_t *pod);
/* The selectors of a node's reservation pods in a path; %s is the node. */
#define RESERVE_SELECTOR "labelSelector=carve.dev%%2Freservation&fieldSelector=spec.nodeName%%3D%s"
/* Checks what the user gave. 0, or negative with *err. */
int reserve_check(const struct reserve *reserve, struct error *err);
/* Returns once a pod holds the GPU: 0, or negative with *err, also where it takes longer than the
 * kubelet waits: the next call goes on from there. */
int reserve_hold(struct reserve *reserve, const char *uuid, struct error *err);
/* Deletes the reservations of GPUs that no claim wants. */
void reserve_tidy(struct reserve *reserve);
/* The reservation pod's program: prints its line, and waits for a signal. Returns the exit code. */
int reserve_pod_run(void);
