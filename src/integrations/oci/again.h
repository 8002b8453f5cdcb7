/* A container that carve's command made is started again: its slice, which has ended, comes back.
 */
#pragma once

#include <jansson.h>
#include <stdbool.h>

struct error;
struct oci_container;
struct oci_session;

/* The session that the variables of the container name; NULL: none. Pure. */
const char *oci_again_id(const json_t *environment);
/* The request for a session like `ended`, on the same GPUs, whose nodes the container has. The
 * caller owns *ret. 0, or negative with *err: it cannot come back. Pure. */
int oci_again_request(const json_t *ended, json_t **ret, struct error *err);
/* Whether the container mounts the attach socket of the daemon with that runtime directory, or its
 * directory for containers, where programs of a slice expect it. An image alone has volumes and
 * variables only. Pure. */
bool oci_again_attaches(const json_t *config, const char *directory);
/* Has the container's ephemeral session be active, and live as long as its first process. Sessions
 * of another kind, or of others, are left alone, and so is a container to which carve gave none.
 * 0, or negative with *err. */
int oci_again(struct oci_session *session, const struct oci_container *container,
	      const json_t *config, struct error *err);
