/* All that a container of a slice gets, in the shape of CDI's containerEdits: {env, mounts,
 * deviceNodes, hooks}. `carve podman run` makes options of the runtime from it. A CDI spec has it
 * as it stands. All are pure. */
#pragma once

#include <jansson.h>

/* Longer than the hook's own patience, which ends with a message. */
#define CONTAINER_HOOK_TIMEOUT_S 30

/* Empty ones, owned by the caller; NULL: out of memory. */
json_t *container_edits_new(void);
/* A file or directory of the host at this path of the container, read-only. An empty `from` adds
 * nothing. */
void container_edits_mount(json_t *edits, const char *from, const char *to);
void container_edits_mount_writable(json_t *edits, const char *from, const char *to);
/* NAME=VALUE. */
void container_edits_env(json_t *edits, const char *name, const char *value);
/* A device node of the host, at the same path, with that mode; 0: with the host's. */
void container_edits_node(json_t *edits, const char *path, unsigned mode);
/* Has the runtime run carve-hook when the container is made: its path, its arguments (without its
 * name, ended by NULL), and its environment (array, taken over; NULL: none). */
void container_edits_hook(json_t *edits, const char *program, const char *const *arguments,
			  json_t *environment);
