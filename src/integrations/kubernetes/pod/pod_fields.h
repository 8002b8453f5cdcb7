/* The fields of pods and of their containers, as Kubernetes 1.36 has them. Pure. */
#pragma once

#include <stdbool.h>

#include <jansson.h>

/* The Kubernetes whose fields these are. */
#define POD_FIELDS_VERSION "1.36"

bool pod_field_known(const char *name);
/* Whether a key of clearml-agent's chart beside those of the pod is its container's. */
bool pod_field_of_chart_container(const char *name);
/* Whether a field that Kubernetes knows has a value of another type. Says which: "spec.image is no
 * text". Values of fields are not looked into. */
#define POD_FIELDS_WRONG_SIZE 128
bool pod_fields_wrong(const json_t *pod, char ret[static POD_FIELDS_WRONG_SIZE]);
/* Adds "metadata.NAME", "spec.NAME" and "spec.containers[i].NAME" of what the pod has there and no
 * pod has, as keys of `to`, an object. Values of fields are not looked into. */
void pod_fields_unknown(const json_t *pod, json_t *to);
