/* The pod of a command, as JSON. Pure. */
#pragma once

#include <jansson.h>
#include <stdbool.h>

/* A label with the pod's name: the pod was made here. */
#define RUN_POD_LABEL "carve.dev/pod"

struct error;
struct run_options;

enum run_phase {
	RUN_WAITS,   /* for a node, its image, its slice */
	RUN_STARTED, /* it has a log */
	RUN_ENDED,
};

/* The pod, of a template (an object, or NULL). 0 with *ret (owned by the caller), or negative. */
int run_pod_make(const json_t *template, const struct run_options *options, const char *name,
		 json_t **ret, struct error *err);
/* The name of its first container, which the command is; "": it is no name that Kubernetes takes.
 */
const char *run_pod_container(const json_t *pod);
/* How far a pod is: it has ended once its first container has, whatever others do. Where it has
 * ended *ret_code is its first container's exit code; negative: it has none, as after an eviction.
 */
enum run_phase run_pod_phase(const json_t *pod, int *ret_code);
/* Why its first container, which has ended, never ran; NULL: it ran. */
const char *run_pod_unstarted(const json_t *pod);
/* Why it waits or has failed, in words; "": it does not say. */
const char *run_pod_reason(const json_t *pod);
