#include "integrations/oci/config.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/error.h"
#include "base/file.h"
#include "container/edits.h"
#include "container/wanted.h"
#include "integrations/oci/devices.h"
#include "integrations/oci/labels.h"
#include "integrations/oci/slice_mounts.h"
#include "integrations/oci/splice.h"

json_t *oci_config_load(const char *text, size_t size)
{
	cleanup_free char *reduced = oci_seccomp_drop(text, size, &size);

	/* Numbers are not looked at, and some are larger than an integer here: limits of 2^64 - 1.
	 */
	return reduced ? json_loadb(reduced, size, JSON_DECODE_INT_AS_REAL, NULL) : NULL;
}

json_t *oci_config_read(const char *path)
{
	size_t size = 0;
	cleanup_close int fd = oci_file_open(path, OCI_CONFIG_MAX, &size);

	if (fd < 0)
		return NULL;
	cleanup_free char *text = malloc(size + 1);
	ssize_t n = text ? read_all(fd, text, size) : -ENOMEM;

	if (n < 0)
		return NULL;
	text[n] = '\0';
	return oci_config_load(text, (size_t)n);
}

int oci_config_wanted(const struct oci_container *container, const json_t *config,
		      struct oci_session *session, json_t **ret, struct error *err)
{
	struct oci_slice slice;

	*ret = NULL;
	if (oci_config_is_registered(config))
		return 0;
	int rc = oci_slice_find(config, oci_is_pods(container), &slice, err);
	if (rc < 0 || *slice.session)
		return rc;
	json_t *given = oci_config_device_labels(config);
	snprintf(session->stamp, sizeof(session->stamp), "%s", oci_config_device_stamp(config));
	rc = container_limits_read(container->environment, &session->limits, err);
	if (rc == 0)
		rc = oci_session_wanted(session, container, config, given, ret, err);
	json_decref(given);
	return rc;
}

int oci_config_session(struct oci_session *session, json_t *wanted, struct error *err)
{
	int rc = oci_daemon_find(NULL, &session->daemon, err);

	return rc < 0 ? rc : oci_session_get(session, wanted, err);
}

/* `session`: the one that it joins; without an ID it makes what is asked for. */
static char *hook_text(const json_t *environment, const struct oci_session *session)
{
	char program[PATH_MAX];
	ssize_t n = readlink("/proc/self/exe", program, sizeof(program) - 1);

	program[n < 0 ? 0 : n] = '\0';
	json_t *hook = json_pack("{s:s, s:[s], s:O, s:i}", "path", program, "args", "carve-hook",
				 "env", environment, "timeout", CONTAINER_HOOK_TIMEOUT_S);
	if (*oci_session_id(session)) {
		json_t *arguments = json_object_get(hook, "args");

		json_array_append_new(arguments, json_string("--label"));
		json_array_append_new(arguments, json_sprintf(CONTAINER_LABEL_SESSION "=%s",
							      oci_session_id(session)));
		/* The configuration has the nodes that the session has at this moment. */
		json_array_append_new(arguments, json_string("--stamp"));
		json_array_append_new(arguments, json_string(oci_session_stamp(session)));
	}
	char *text = hook ? json_dumps(hook, JSON_COMPACT) : NULL;

	json_decref(hook);
	return text;
}

int oci_config_add(const json_t *environment, const struct oci_session *session, char **text,
		   size_t *size, struct error *err)
{
	struct oci_device list[OCI_DEVICES_MAX];
	json_t *edits = NULL;
	int rc = session->json ? oci_session_edits(session, &edits, err) : 0;
	size_t count = rc == 0 ? oci_devices_list(edits, list) : 0;
	cleanup_free char *hook = hook_text(environment, session), *with_nodes = NULL;

	json_decref(edits);
	if (rc < 0)
		return rc;
	if (count) {
		with_nodes = oci_devices_splice(*text, *size, list, count, size);
		if (!with_nodes)
			return error_set(err, EXIT_CODE_FAILED, "it has no room for device nodes");
	}
	char *made =
		hook ? oci_hook_splice(with_nodes ? with_nodes : *text, *size, hook, size) : NULL;
	if (!made)
		return error_set(err, EXIT_CODE_FAILED, "a hook cannot be added to config.json");
	/* A hook that has been installed has nothing to do beside this one. */
	if (*oci_session_id(session))
		*size = oci_installed_hooks_drop(made, *size);
	free(*text);
	*text = made;
	return 0;
}
