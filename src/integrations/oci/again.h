/* A container that carve's command made is started again: its slice, which has ended, comes back.
 */
#pragma once

#include <jansson.h>

struct error;
struct oci_container;
struct oci_session;
struct oci_slice;

/* The request for a session like `ended`, on the same GPUs, whose nodes the container has. The
 * caller owns *ret. 0, or negative with *err: it cannot come back. Pure. */
int oci_again_request(const json_t *ended, json_t **ret, struct error *err);
/* Has the container's ephemeral session be active, and live as long as its first process. Sessions
 * of another kind, or of others, are left alone, and so is a container whose
 * daemon is another.
 * 0, or negative with *err. */
int oci_again(struct oci_session *session, const struct oci_container *container,
	      const struct oci_slice *slice, struct error *err);
