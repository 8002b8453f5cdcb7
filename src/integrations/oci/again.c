#include "integrations/oci/again.h"

#include <limits.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/json_text.h"
#include "integrations/oci/session.h"
#include "integrations/oci/slice_mounts.h"
#include "integrations/oci/state.h"

/* How long, and how often, a session is looked at that is just ending. */
#define LOOKS 80
#define LOOK_EVERY_MS 100
#define GPUS_TEXT 128

/* The daemon is the container's, whose directory oci_slice_find() has looked at: where the hook
 * finds another one by itself, the container's is asked all the same. The sources of carve's mounts
 * are without links. */
static int daemon_find(struct oci_session *session, const struct oci_slice *slice,
		       struct error *err)
{
	struct oci_daemon *daemon = &session->daemon;
	int rc = oci_daemon_find(session->host, daemon, err);
	const char *slash = strrchr(daemon->attach, '/');
	int length = (int)(strrchr(slice->attach, '/') - slice->attach);
	char directory[PATH_MAX], real[PATH_MAX];

	if (rc < 0)
		return rc;
	snprintf(directory, sizeof(directory), "%.*s", slash ? (int)(slash - daemon->attach) : 0,
		 daemon->attach);
	if (realpath(directory, real) && strlen(real) == (size_t)length &&
	    !memcmp(real, slice->attach, (size_t)length))
		return 0;
	snprintf(directory, sizeof(directory), "%.*s/carved.sock", length, slice->attach);
	rc = oci_daemon_find(directory, daemon, err);
	daemon->vouched = false;
	return rc;
}

/* "0,3". False: one of them is a MIG instance, or there are none. */
static bool gpus_list(const json_t *gpus, char *buf, size_t size)
{
	size_t used = 0, i;
	json_t *gpu;

	json_array_foreach((json_t *)gpus, i, gpu)
	{
		json_int_t index = json_integer_value(json_object_get(gpu, "index"));

		if (*json_text(gpu, "instance") || json_object_get(gpu, "gpu_instance") ||
		    used >= size)
			return false;
		used += (size_t)snprintf(buf + used, size - used, "%s%d", i ? "," : "", (int)index);
	}
	return used > 0 && used < size;
}

int oci_again_request(const json_t *ended, json_t **ret, struct error *err)
{
	const json_t *gpus = json_object_get(ended, "gpus");
	double share = json_number_value(json_object_get(ended, "compute_request"));
	char list[GPUS_TEXT], percent[16];

	if (!gpus_list(gpus, list, sizeof(list))) {
		error_set(err, EXIT_CODE_FAILED,
			  "the slice of this container, %.40s, has ended, and a MIG instance does "
			  "not come back",
			  json_text(ended, "id"));
		error_hint(err, "make a new container");
		return -err->code;
	}
	*ret = json_pack("{s:s, s:b, s:b, s:O, s:b, s:s, s:i}", "id", json_text(ended, "id"),
			 "again", 1, "ephemeral", 1, "vram_bytes",
			 json_object_get(ended, "vram_bytes"), "vram_strict", 1, "gpu_ids", list,
			 "gpus", (int)json_array_size(gpus));
	if (!*ret)
		return error_set(err, EXIT_CODE_FAILED, "the daemon's answer cannot be read");
	snprintf(percent, sizeof(percent), "%d%%", (int)(share * 100 + 0.5));
	if (share > 0 && share < 1)
		json_object_set_new(*ret, "gpu_compute", json_string(percent));
	return 0;
}

static int ended_error(const json_t *ended, struct error *err)
{
	error_set(err, EXIT_CODE_FAILED,
		  "the slice of this container, %.40s, has ended and does not come back",
		  json_text(ended, "id"));
	error_hint(err, "make a new container");
	return -err->code;
}

static int come_back(struct oci_session *session, const json_t *ended, struct error *err)
{
	json_t *request = NULL;
	int rc = oci_again_request(ended, &request, err);

	if (rc == 0)
		rc = oci_daemon_call(&session->daemon, "POST", "/v1/sessions", request,
				     &session->json, err);
	json_decref(request);
	if (rc < 0)
		return rc;
	session->one_off = true;
	if (!strcmp(oci_session_id(session), json_text(ended, "id")))
		return 0;
	return ended_error(ended, err);
}

/* Whether the session comes back when it has ended. One that somebody released, resizes or shares
 * by hand does not: that one is its user's. */
static bool is_meant(const json_t *now)
{
	const json_t *owner = json_object_get(json_object_get(now, "owner"), "uid");

	return json_is_true(json_object_get(now, "ephemeral")) &&
	       (!owner || json_integer_value(owner) == (json_int_t)geteuid());
}

int oci_again(struct oci_session *session, const struct oci_container *container,
	      const struct oci_slice *slice, struct error *err)
{
	const char *id = slice->session;
	char path[128];
	int rc = daemon_find(session, slice, err);

	if (rc < 0)
		return rc;
	memcpy(session->stamp, slice->stamp, sizeof(session->stamp));
	snprintf(path, sizeof(path), "/v1/sessions/%.64s", id);
	for (int i = 0; i < LOOKS; i++) {
		json_t *now = NULL;

		rc = oci_daemon_call(&session->daemon, "GET", path, NULL, &now, err);
		bool meant = rc == 0 && is_meant(now),
		     ended = !strcmp(json_text(now, "state"), "ended");
		bool active = !strcmp(json_text(now, "state"), "active");

		if (rc == 0 && ended)
			rc = meant ? come_back(session, now, err) : ended_error(now, err);
		json_decref(now);
		if (rc < 0)
			return rc;
		if ((active || ended) &&
		    (rc = oci_session_register(session, id, container, err)) == 0)
			return 0;
		/* The end of one that is meant may begin just now: it is looked at once more. */
		if (ended || (active && !meant))
			return rc;
		(void)poll(NULL, 0, LOOK_EVERY_MS);
	}
	return error_set(err, EXIT_CODE_FAILED, "the slice of this container, %.40s, does not end",
			 id);
}
