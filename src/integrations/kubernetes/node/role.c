#include "integrations/kubernetes/node/role.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "client/client.h"
#include "container/json_file.h"
#include "integrations/kubernetes/object/node_labels.h"

#define TIMEOUT_MS 15000L
#define FILE_NAME "role-by-label"

enum role_order role_of_labels(const json_t *labels, bool by_label)
{
	if (node_labels_mig(labels))
		return ROLE_SET;
	return by_label ? ROLE_REMOVE : ROLE_KEEP;
}

int role_node_read(const struct role *role, json_t **ret_node, struct error *err)
{
	char path[512];
	struct api_call call = {.method = "GET", .path = path, .timeout_ms = TIMEOUT_MS};
	long status;

	snprintf(path, sizeof(path), "/api/v1/nodes/%s", role->node);
	int rc = api_call(role->api, &call, &status, ret_node, err);
	return rc == 0 && status != 200 ? api_status_error(&call, status, *ret_node, err) : rc;
}

/* How many GPUs are in MIG mode, and how many of these have no role. */
static size_t count_mig(const json_t *gpus, size_t *ret_missing)
{
	const json_t *gpu;
	size_t i, count = 0;

	*ret_missing = 0;
	json_array_foreach((json_t *)gpus, i, gpu)
	{
		bool mig = json_is_true(json_object_get(gpu, "mig"));

		count += mig;
		*ret_missing += mig && !json_is_string(json_object_get(gpu, "role"));
	}
	return count;
}

static int role_put(const struct role *role, bool on, struct error *err)
{
	cleanup_json json_t *body =
		json_pack("{s:o}", "role", on ? json_string("dynamic-mig") : json_null());

	return carved_call(role->carved, "PUT", "/v1/mig/roles", body, NULL, err);
}

int role_follow(const struct role *role, const json_t *labels, const json_t *gpus,
		bool *ret_changed, struct error *err)
{
	cleanup_json json_t *file = NULL, *mark = json_object();
	size_t missing = 0;
	int rc = json_file_read(role->dir, FILE_NAME, &file, err);

	*ret_changed = false;
	if (rc < 0 && rc != -ENOENT)
		return rc;
	enum role_order order = role_of_labels(labels, rc == 0);

	if (order == ROLE_KEEP)
		return 0;
	if (order == ROLE_SET && !count_mig(gpus, &missing)) {
		error_set(err, EXIT_CODE_FAILED,
			  "a label asks for the MIG role, and no GPU here is in MIG mode");
		error_hint(err, "carve node set-role --dynamic-mig-enabled --enable-mode on the "
				"node switches it on");
		return -EXIT_CODE_FAILED;
	}
	if (order == ROLE_SET && !missing)
		return 0;
	*ret_changed = true;
	if (order == ROLE_REMOVE) {
		rc = role_put(role, false, err);
		return rc < 0 ? rc : json_file_remove(role->dir, FILE_NAME, err);
	}
	/* The mark first: a role that a label set is never without it. */
	rc = json_file_write(role->dir, FILE_NAME, mark, 0600, err);
	return rc < 0 ? rc : role_put(role, true, err);
}
