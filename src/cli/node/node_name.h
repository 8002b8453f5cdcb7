/* NODE in the verbs of `carve node`: they are about this host. */
#pragma once

#include <limits.h>
#include <stdbool.h>

struct error;

/* Whether NODE (NULL: none was given) is this host. `name` is this host's either way. */
bool node_is_here(const char *node, char name[static HOST_NAME_MAX + 1]);
/* Whether it can be the name of a node: names of nodes are names of DNS, and none is taken for an
 * option. */
bool node_is_name(const char *node);
/* Refuses a NODE that is not this host, which is `name`. `advice` (or NULL) is for a node of a
 * cluster: a command that ends in the node's name. Negative, with *err set. */
int node_refuse(const char *node, const char *name, const char *advice, const char *after,
		struct error *err);
