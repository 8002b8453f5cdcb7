/* Events of Kubernetes, which `kubectl describe` prints. */
#pragma once

#include <jansson.h>

struct api;
struct error;

/* A warning about an object. The caller owns all of it. */
struct event {
	const char *kind;    /* the object's kind of the API's first group: "Node", "Pod" */
	const json_t *about; /* the object, as the API server has it */
	const char *reason;  /* one word */
	const char *message;
};

/* Writes a warning. Blocks. 0, or negative with *err. */
int event_write(struct api *api, const struct event *event, struct error *err);
