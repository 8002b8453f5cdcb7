/* Labels of a container that containerd made. It takes an image's labels over to the container, and
 * tells them at its socket alone: hooks get no annotation of them. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "integrations/oci/state.h"

struct error;

/* The namespaces of Kubernetes' containers, and of docker's. */
#define CONTAINERD_KUBERNETES "k8s.io"
#define CONTAINERD_DOCKER "moby"

struct containerd_place {
	char socket[108]; /* "STATE/containerd.sock" */
	char namespace[80];
	char id[OCI_ID_SIZE];
};

/* A container's place by its bundle, STATE/io.containerd.runtime.v2.task/NAMESPACE/ID. Pure. False:
 * it is not containerd's. */
bool containerd_place(const char *bundle, struct containerd_place *ret);
/* The labels in gRPC's answer to Get: 0 with *ret as containerd_labels() has it, or -EPROTO. Pure.
 */
int containerd_answer_parse(const uint8_t *answer, size_t size, json_t **ret);
/* Asks containerd, for a few seconds at most. Returns 0 with *ret (object; owned by the caller).
 * NULL: it has none, or containerd has no socket there. Negative with *err: it does not answer. */
int containerd_labels(const struct containerd_place *place, json_t **ret, struct error *err);
