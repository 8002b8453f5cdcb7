/* carve agent --on kubernetes: what the daemon is told of the pods. */
#pragma once

#include <jansson.h>

struct cli;
struct error;

/* 0, or negative with *err where options do not go together. */
int agent_pods_check(const struct cli *cli, struct error *err);
/* Adds `pods` to the request, with the template as carve-kubernetes read and checked it. Queues for
 * which the template says maxPods get it as their limit. 0, or negative with *err. */
int agent_pods_body(const struct cli *cli, json_t *body, struct error *err);
