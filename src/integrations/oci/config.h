/* The parts that carve adds to a container's config.json before the container is made: what a
 * runtime sets up is settled before it runs hooks of the stage createRuntime. So it is with rules
 * of devices, which version 2 of cgroups takes then alone, and which systemd renews from what the
 * runtime told it. */
#pragma once

#include <jansson.h>
#include <stddef.h>

#include "integrations/oci/session.h"
#include "integrations/oci/state.h"

struct error;

/* A configuration, but for its filter of system calls. `text` is zero-terminated. NULL: it is none,
 * or there is no memory. Pure. */
json_t *oci_config_load(const char *text, size_t size);
/* Likewise of a file of OCI_CONFIG_MAX bytes at most. */
json_t *oci_config_read(const char *path);
/* The session that the container asks for. It asks by the arguments of a device's hook, which then
 * leaves it alone, by an annotation or by a label. Returns 0 with *ret as container_wanted() has
 * it, NULL: this container has none of ours. Returns negative with *err set on failure.
 * `session->limits` points into `config`, which has to stay for oci_config_session(). */
int oci_config_wanted(const struct oci_container *container, const json_t *config,
		      struct oci_session *session, json_t **ret, struct error *err);
/* Makes that session. It lives as long as the calling process, until the hook registers the
 * container. 0, or negative with *err set. */
int oci_config_session(struct oci_session *session, json_t *wanted, struct error *err);
/* Replaces *text (of malloc(), zero-terminated) by one that has the session's device nodes and
 * rules, and the hook, which joins the session. Without a session it adds the hook alone, which
 * makes what is asked for. `environment`: the hook's, array of NAME=VALUE. 0, or negative with *err
 * set. */
int oci_config_add(const json_t *environment, const struct oci_session *session, char **text,
		   size_t *size, struct error *err);
