/* The session that a container asks for, and what the container gets of it. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <sys/types.h>

#include "container/env_limits.h"
#include "integrations/oci/daemon.h"
#include "integrations/oci/state.h"
#include "proto/attach.h"

struct error;

struct oci_session {
	const char *host; /* the daemon's socket that was named; NULL: none */
	struct oci_daemon daemon;
	json_t *json;                   /* as the daemon says; owned, NULL: none yet */
	bool one_off;                   /* it was made for this container */
	struct container_limits limits; /* that the container's variables name; zeroed: none */
	/* The stamp of the session that the container was made for (ATTACH_ENV_STAMP); "": that of
	 * `json`, which the container gets only now. */
	char stamp[ATTACH_STAMP_SIZE];
};

/* The request in `given` (object of labels, NULL: none), annotations of the container, or labels of
 * its image. Returns 0 with *ret as container_wanted() has it. NULL: nothing; empty: only variables
 * name a size. */
int oci_session_wanted(const struct oci_session *session, const struct oci_container *container,
		       const json_t *config, const json_t *given, json_t **ret, struct error *err);
/* Makes it, or looks for the one that `wanted` names. The daemon's socket is set. A new one lives
 * as long as the calling process, until another is registered, and has no more than the variables
 * say. 0, or negative with *err. */
int oci_session_get(struct oci_session *session, json_t *wanted, struct error *err);
/* Session `id` has no more than the container's variables say. It may have less already. */
int oci_session_lower(const struct oci_session *session, const char *id, struct error *err);
/* "": none. */
const char *oci_session_id(const struct oci_session *session);
const char *oci_session_stamp(const struct oci_session *session);
/* Fails where the session is another than the container was made for (`stamp`), such as another MIG
 * instance. Else has session `id` live as long as the container's first process, and no longer: a
 * file system of the image may keep this process for ever. All users in there are in it.
 * oci_process_check() has looked at that. */
int oci_session_register(const struct oci_session *session, const char *id,
			 const struct oci_container *container, struct error *err);
/* Gives an ephemeral session back. */
void oci_session_give(const struct oci_session *session);
/* container/edits.h; the caller owns *ret. */
int oci_session_edits(const struct oci_session *session, json_t **ret, struct error *err);
