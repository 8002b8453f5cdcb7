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
/* Puts the container into its session. An ephemeral session of this user's comes back if it has
 * ended. Fails where another one has ended, or where the session is another than the container was
 * made for, such as another MIG instance. 0, or negative with *err. */
int oci_again(struct oci_session *session, const struct oci_container *container,
	      const struct oci_slice *slice, struct error *err);
