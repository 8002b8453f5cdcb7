/* The file of --pod-template, and how pods are made of it. Pure but for reading the file. */
#pragma once

#include <jansson.h>

struct error;

/* Reads a file, YAML or JSON:
 *   - a pod, or a PodTemplate;
 *   - values as clearml-agent's chart has them: basePodTemplate, and queues.NAME with
 *     templateOverrides (or podTemplate) and queueSettings.maxPods, below agentk8sglue or not.
 * 0 with *ret (owned by the caller): {"pod": P, "queues": {NAME: {"pod": P, "max_pods": N}}}, each
 * P an object with `metadata` and `spec`, all of the base in it. Negative with *err: one line. */
int pod_template_read(const char *path, json_t **ret, struct error *err);
/* The same for what is read already. */
int pod_template_parse(const json_t *file, json_t **ret, struct error *err);
/* The pod for a queue (NULL, or one that is not named: the base). Borrowed. */
const json_t *pod_template_of(const json_t *template, const char *queue);
