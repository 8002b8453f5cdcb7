#include "integrations/oci/session.h"
#include <sys/random.h>

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/macros.h"
#include "container/layout.h"
#include "container/wanted.h"
#include "integrations/oci/labels.h"
#include "slice/driver_files.h"
#include "slice/driver_find.h"
#include "slice/places.h"

/* How long the daemon may take to have the driver limit the container's cgroup: shorter than the
 * hook's own life (main.c), so that the words are of this. */
#define REGISTER_PATIENCE_S 10

static int join_refuse(struct error *err)
{
	error_set(err, EXIT_CODE_NOT_PERMITTED,
		  CONTAINER_LABEL_SESSION ": a pod joins no session by an annotation or a label");
	error_hint(err, "containers share a claim: /usr/share/doc/carve/user/kubernetes.md");
	return -err->code;
}

static int image_refuse(struct error *err)
{
	error_set(err, EXIT_CODE_NOT_PERMITTED,
		  CONTAINER_LABEL_SESSION ": an image names sizes, and no session");
	error_hint(err,
		   "name one when you start the container: --annotation " CONTAINER_LABEL_SESSION
		   "=ID, or carve podman run --session ID");
	return -err->code;
}

/* Whether the one who starts the container named the session, and not an image. */
static int join_check(const struct oci_container *container, const json_t *given,
		      const struct oci_labels *labels, struct error *err)
{
	if (json_object_get(given, CONTAINER_LABEL_SESSION))
		return 0;
	/* Pods are of users who do not trust each other, and the hook may join any session. */
	if (oci_is_pods(container))
		return join_refuse(err);
	return oci_labels_image_joins(labels, container->annotations) ? image_refuse(err) : 0;
}

int oci_session_wanted(const struct oci_session *session, const struct oci_container *container,
		       const json_t *config, const json_t *given, json_t **ret, struct error *err)
{
	struct oci_labels labels;

	*ret = NULL;
	/* A pod's slice is its containers'. */
	if (oci_is_sandbox(container))
		return 0;
	int rc = oci_labels_find(container, &labels, err);
	const json_t *sources[] = {given, container->annotations, labels.all};
	if (rc == 0)
		rc = container_wanted(sources, ARRAY_SIZE(sources), ret, err);
	if (rc == 0 && json_object_get(*ret, "session") &&
	    (rc = join_check(container, given, &labels, err)) < 0) {
		json_decref(*ret);
		*ret = NULL;
	}
	oci_labels_clear(&labels);
	/* NVIDIA_VISIBLE_DEVICES may be the image's, or of NVIDIA's CDI spec (void), which gives
	 * the container GPUs all the same. */
	if (rc == 0 && !*ret && session->limits.any &&
	    (!container_limits_no_gpu(session->limits.visible) || oci_config_has_gpu(config)))
		*ret = json_object();
	return rc;
}

const char *oci_session_id(const struct oci_session *session)
{
	const char *id = json_string_value(json_object_get(session->json, "id"));

	return id ? id : "";
}

const char *oci_session_stamp(const struct oci_session *session)
{
	const char *stamp = json_string_value(json_object_get(session->json, "stamp"));

	return *session->stamp ? session->stamp : stamp ? stamp : "";
}

static int session_join(struct oci_session *session, const char *id, struct error *err)
{
	char path[128];

	/* It becomes a part of a path. */
	if (strspn(id, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") !=
		    strlen(id) ||
	    strlen(id) > CONTAINER_LABEL_MAX)
		return error_set(err, EXIT_CODE_FAILED, "there is no session %.64s", id);
	snprintf(path, sizeof(path), "/v1/sessions/%s", id);
	int rc = oci_daemon_call(&session->daemon, "GET", path, NULL, &session->json, err);
	const char *state = json_string_value(json_object_get(session->json, "state"));
	if (rc < 0 || (state && !strcmp(state, "active")))
		return rc;
	return error_set(err, EXIT_CODE_FAILED, "session %.64s is not active", id);
}

/* The size that nothing but the container's variables names. 0, or negative with *err set. */
static int wanted_of_limits(const struct oci_session *session, json_t *wanted, struct error *err)
{
	char ids[CONTAINER_GPU_IDS_SIZE], percent[16];
	json_t *gpus = NULL;
	size_t count;
	int rc = oci_daemon_call(&session->daemon, "GET", "/v1/gpus", NULL, &gpus, err);

	if (rc == 0)
		rc = container_limits_gpus(session->limits.visible, gpus, ids, &count, err);
	uint64_t memory =
		rc == 0 ? container_limits_memory_of(&session->limits, gpus, ids, count ? count : 1)
			: 0;
	json_decref(gpus);
	if (rc < 0)
		return rc;
	unsigned share = container_limits_percent(&session->limits, count ? count : 1);
	if (!memory) {
		error_set(err, EXIT_CODE_USAGE,
			  "the variables of this container limit no memory of its GPU");
		error_hint(err, "right would be CUDA_DEVICE_MEMORY_LIMIT=2027m");
		return -EXIT_CODE_USAGE;
	}
	json_object_set_new(wanted, "vram_bytes", json_integer((json_int_t)memory));
	json_object_set_new(wanted, "vram_strict", json_true());
	if (count) {
		json_object_set_new(wanted, "gpu_ids", json_string(ids));
		json_object_set_new(wanted, "gpus", json_integer((json_int_t)count));
	}
	snprintf(percent, sizeof(percent), "%u%%", share);
	if (share)
		json_object_set_new(wanted, "gpu_compute", json_string(percent));
	return 0;
}

/* "0,1": the GPUs of a session. */
static void session_ids(const json_t *session, char ret[static CONTAINER_GPU_IDS_SIZE])
{
	const json_t *gpu;
	size_t used = 0, i;

	ret[0] = '\0';
	json_array_foreach(json_object_get(session, "gpus"), i, gpu)
	{
		if (used < CONTAINER_GPU_IDS_SIZE)
			used += (size_t)snprintf(
				ret + used, CONTAINER_GPU_IDS_SIZE - used, "%s%d", used ? "," : "",
				(int)json_integer_value(json_object_get(gpu, "index")));
	}
}

/* The memory of each GPU of a session that the variables allow; 0: any. 0 or negative with *err. */
static int memory_allowed(const struct oci_session *session, const json_t *now, uint64_t *ret,
			  struct error *err)
{
	size_t count = json_array_size(json_object_get(now, "gpus"));
	char ids[CONTAINER_GPU_IDS_SIZE];
	json_t *gpus = NULL;
	int rc = session->limits.portion_ppm
			 ? oci_daemon_call(&session->daemon, "GET", "/v1/gpus", NULL, &gpus, err)
			 : 0;

	session_ids(now, ids);
	*ret = rc == 0 ? container_limits_memory_of(&session->limits, gpus, ids, count) : 0;
	json_decref(gpus);
	return rc;
}

int oci_session_lower(const struct oci_session *session, const char *id, struct error *err)
{
	char path[128], percent[16];
	json_t *now = NULL;

	if (!session->limits.any)
		return 0;
	snprintf(path, sizeof(path), "/v1/sessions/%.100s", id);
	int rc = oci_daemon_call(&session->daemon, "GET", path, NULL, &now, err);
	size_t gpus = json_array_size(json_object_get(now, "gpus"));
	json_int_t has = json_integer_value(json_object_get(now, "vram_bytes"));
	unsigned share = container_limits_percent(&session->limits, gpus);
	uint64_t memory = 0;

	if (rc == 0)
		rc = memory_allowed(session, now, &memory, err);
	json_decref(now);
	if (rc < 0 || (!memory && !share))
		return rc;
	json_t *body = json_pack("{s:I, s:b}", "vram_bytes", memory ? (json_int_t)memory : has,
				 "lower", 1);
	snprintf(percent, sizeof(percent), "%u%%", share);
	if (share)
		json_object_set_new(body, "gpu_compute", json_string(percent));
	rc = oci_daemon_call(&session->daemon, "PATCH", path, body, NULL, err);
	json_decref(body);
	return rc;
}

/* The ID is chosen here: a request whose answer was lost with its daemon gets the session that it
 * got. Without one the daemon chooses. */
static void id_choose(json_t *wanted)
{
	static const char letters[] = "abcdefghjkmnpqrstuvwxyz23456789";
	unsigned char random[6];
	char id[sizeof("s-") + sizeof(random)] = "s-";

	if (getrandom(random, sizeof(random), 0) != sizeof(random))
		return;
	for (size_t i = 0; i < sizeof(random); i++)
		id[2 + i] = letters[random[i] % (sizeof(letters) - 1)];
	json_object_set_new(wanted, "id", json_string(id));
}

int oci_session_get(struct oci_session *session, json_t *wanted, struct error *err)
{
	const char *joined = json_string_value(json_object_get(wanted, "session"));

	if (joined)
		return session_join(session, joined, err);
	bool by_labels = json_object_size(wanted) != 0;
	int rc = by_labels ? 0 : wanted_of_limits(session, wanted, err);
	if (rc < 0)
		return rc;
	session->one_off = true;
	json_object_set_new(wanted, "ephemeral", json_true());
	id_choose(wanted);
	rc = oci_daemon_call(&session->daemon, "POST", "/v1/sessions", wanted, &session->json, err);
	if (rc < 0 && by_labels)
		container_error_name_label(wanted, err);
	return rc < 0 ? rc : oci_session_lower(session, oci_session_id(session), err);
}

int oci_session_register(const struct oci_session *session, const char *id,
			 const struct oci_container *container, struct error *err)
{
	json_t *body = json_pack("{s:s, s:i, s:I, s:b}", "session", id, "pid", (int)container->pid,
				 "birth", (json_int_t)container->birth, "instead", 1);
	struct oci_daemon daemon = session->daemon;

	if (*oci_session_stamp(session))
		json_object_set_new(body, "stamp", json_string(oci_session_stamp(session)));
	daemon.patience_s = REGISTER_PATIENCE_S;
	int rc = oci_daemon_call(&daemon, "POST", "/v1/commands", body, NULL, err);
	json_decref(body);
	if (rc == -EXIT_CODE_UNREACHABLE)
		error_hint(err, "the driver may be slow to take the limit of the container: "
				"carve check; a container does not start without it");
	return rc;
}

void oci_session_give(const struct oci_session *session)
{
	char path[128];
	struct error ignored;

	if (!session->one_off || !*oci_session_id(session))
		return;
	snprintf(path, sizeof(path), "/v1/sessions/%.100s", oci_session_id(session));
	(void)oci_daemon_call(&session->daemon, "DELETE", path, NULL, NULL, &ignored);
}

static int driver_locate(struct driver_libs *ret, const struct places *places, struct error *err)
{
	struct driver_files files = {0};
	const struct driver_libs none = {0};
	int rc = driver_files_find(&files, &none, places, err);

	*ret = none;
	for (size_t i = files.count; rc == 0 && i-- > 0;)
		snprintf(files.file[i].nvml ? ret->nvml : ret->cuda, PATH_MAX, "%s",
			 files.file[i].path);
	driver_files_clear(&files);
	return rc;
}

int oci_session_edits(const struct oci_session *session, json_t **ret, struct error *err)
{
	struct places places;
	struct driver_libs driver;
	int rc = places_find(&places, err);

	if (rc < 0 || (rc = driver_locate(&driver, &places, err)) < 0)
		return rc;
	return container_slice_edits(
		&(struct container_slice){
			.session = oci_session_id(session),
			.stamp = oci_session_stamp(session),
			.gpus = json_object_get(session->json, "gpus"),
			.front_cuda = places.front_cuda,
			.front_nvml = places.front_nvml,
			.cuda = driver.cuda,
			.nvml = driver.nvml,
			.attach = session->daemon.attach,
			.simulated_host = secure_getenv("SIMGPU_HOST"),
		},
		ret, err);
}
