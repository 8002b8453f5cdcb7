#include "daemon/queue/queue_pods.h"
#include "daemon/queue/agents.h"
#include "daemon/queue/job_entry.h"
#include "daemon/queue/job_files.h"
#include "daemon/queue/queue_context.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/file.h"
#include "base/fnv.h"
#include "base/macros.h"
#include "base/units.h"
#include "proto/shim.h"

#define TEMPLATE_MAX (512u << 10)
#define STATE_MAX 1024
#define POD_NAME_SIZE 64
#define MACHINE_ID "/etc/machine-id"

/* ---- messages to an agent ----------------------------------------------------------------- */

static int text_take(const json_t *object, const char *key, char *to, size_t size,
		     struct error *err)
{
	const json_t *value = json_object_get(object, key);
	const char *text = json_string_value(value);

	to[0] = '\0';
	if (!value || json_is_null(value))
		return 0;
	if (!text || strlen(text) >= size || *text == '-')
		return error_set(err, EXIT_CODE_USAGE,
				 "'pods.%s' takes a text of up to %zu characters", key, size - 1);
	snprintf(to, size, "%s", text);
	return 0;
}

static int namespace_check(const char *name, struct error *err)
{
	static const char allowed[] = "abcdefghijklmnopqrstuvwxyz0123456789-";

	if (*name && *name != '-' && strspn(name, allowed) == strlen(name))
		return 0;
	error_set(err, EXIT_CODE_USAGE, "--namespace: '%.63s' is no name of a namespace", name);
	error_hint(err, "small letters, digits and '-', for example research");
	return -EXIT_CODE_USAGE;
}

static int most_take(const json_t *object, uint32_t *ret, struct error *err)
{
	const json_t *most = json_object_get(object, "max");

	*ret = AGENT_PODS_MOST;
	if (!most || json_is_null(most))
		return 0;
	if (!json_is_integer(most) || json_integer_value(most) < 1 ||
	    json_integer_value(most) > 100000)
		return error_set(err, EXIT_CODE_USAGE,
				 "--max-pods takes a number from 1 to 100000");
	*ret = (uint32_t)json_integer_value(most);
	return 0;
}

static int template_take(const json_t *object, json_t **ret, struct error *err)
{
	json_t *template = json_object_get(object, "template");

	if (!json_is_object(json_object_get(template, "pod")) ||
	    !json_is_object(json_object_get(template, "queues")))
		return error_set(err, EXIT_CODE_USAGE,
				 "'pods.template' takes an object with 'pod' and 'queues'");
	if (json_dumpb(template, NULL, 0, JSON_COMPACT) > TEMPLATE_MAX)
		return error_set(err, EXIT_CODE_USAGE, "the pod template has more than %u KiB",
				 TEMPLATE_MAX >> 10);
	*ret = json_deep_copy(template);
	return *ret ? 0 : error_set(err, EXIT_CODE_FAILED, "out of memory");
}

int agent_pods_read(const json_t *object, struct agent_pods **ret, struct error *err)
{
	struct agent_pods *pods = calloc(1, sizeof(*pods));

	*ret = NULL;
	if (!pods)
		return error_set(err, EXIT_CODE_FAILED, "out of memory");
	int rc = text_take(object, "namespace", pods->namespace, sizeof(pods->namespace), err);
	if (rc == 0)
		rc = namespace_check(pods->namespace, err);
	if (rc == 0)
		rc = text_take(object, "api", pods->api, sizeof(pods->api), err);
	if (rc == 0)
		rc = text_take(object, "token_file", pods->token_file, sizeof(pods->token_file),
			       err);
	if (rc == 0)
		rc = text_take(object, "ca_file", pods->ca_file, sizeof(pods->ca_file), err);
	if (rc == 0)
		rc = most_take(object, &pods->most, err);
	if (rc == 0)
		rc = template_take(object, &pods->template, err);
	if (rc < 0)
		agent_pods_free(pods);
	else
		*ret = pods;
	return rc;
}

static json_t *agent_pods_json(const struct agent_pods *pods)
{
	return json_pack("{s:s, s:s, s:s, s:s, s:i, s:O}", "namespace", pods->namespace, "api",
			 pods->api, "token_file", pods->token_file, "ca_file", pods->ca_file, "max",
			 (int)pods->most, "template", pods->template);
}

void agent_pods_free(struct agent_pods *pods)
{
	if (pods) {
		json_decref(pods->template);
		free(pods->text);
		free(pods->warrant);
	}
	free(pods);
}

char *agent_text(const struct agent *agent)
{
	json_t *images = json_object();

	for (uint32_t i = 0; i < agent->queue_count; i++)
		if (*agent->queue[i].spec.image)
			json_object_set_new(images, agent->queue[i].spec.name,
					    json_string(agent->queue[i].spec.image));
	json_t *object = json_pack("{s:s, s:o}", "image", agent->image, "images", images);
	if (agent->pods)
		json_object_set_new(object, "pods", agent_pods_json(agent->pods));
	char *text = json_dumps(object, JSON_COMPACT);

	json_decref(object);
	return text;
}

static json_t *warrant_json(const struct warrant *warrant)
{
	const unsigned char *bytes = (const unsigned char *)warrant;
	char text[2 * sizeof(*warrant) + 1];

	for (size_t i = 0; i < sizeof(*warrant); i++)
		snprintf(text + 2 * i, 3, "%02x", bytes[i]);
	return json_string(text);
}

/* malloc'ed; NULL: the text is no warrant. */
static struct warrant *warrant_read(const json_t *text)
{
	const char *hex = json_string_value(text);
	bool is_whole = hex && strlen(hex) == 2 * sizeof(struct warrant);
	struct warrant *warrant = is_whole ? malloc(sizeof(*warrant)) : NULL;
	unsigned char *bytes = (unsigned char *)warrant;

	for (size_t i = 0; warrant && i < sizeof(*warrant); i++)
		// NOLINTNEXTLINE(cert-err34-c): two digits
		if (sscanf(hex + 2 * i, "%2hhx", &bytes[i]) != 1) {
			free(warrant);
			return NULL;
		}
	return warrant;
}

void agent_pods_save(const struct agent_pods *pods, json_t *object)
{
	json_object_set_new(object, "pods", agent_pods_json(pods));
	if (!pods->warrant)
		return;
	json_object_set_new(object, "pods_text", json_string(pods->text));
	json_object_set_new(object, "pods_warrant", warrant_json(pods->warrant));
}

void agent_pods_vouched_read(struct agent_pods *pods, const json_t *object)
{
	const char *text = json_string_value(json_object_get(object, "pods_text"));

	pods->warrant = warrant_read(json_object_get(object, "pods_warrant"));
	pods->text = text && pods->warrant ? strdup(text) : NULL;
	if (pods->text)
		return;
	free(pods->warrant);
	pods->warrant = NULL;
}

/* ---- sizes -------------------------------------------------------------------------------- */

static bool is_within(const struct place_request *own, const struct place_request *queue)
{
	return own->kind != PLACE_BYTES && own->kind != PLACE_PROFILE &&
	       own->share <= queue->share && own->count <= queue->count;
}

int agent_pods_request(const struct agent *agent, uint32_t position, const struct job_spec *spec,
		       struct place_request *ret)
{
	const struct queue_spec *queue = &agent->queue[position].spec;
	struct place_request whole = {.kind = PLACE_FRACTION, .count = 1, .share = queue->share};

	if (queue->size == QUEUE_SIZE_WHOLE)
		whole = (struct place_request){
			.kind = PLACE_WHOLE, .share = SHARE_ONE, .count = queue->gpus_max};
	*ret = whole;
	if (queue->size == QUEUE_SIZE_OF_JOB)
		*ret = (struct place_request){.kind = PLACE_FRACTION};
	if (!spec->sized)
		return 0;
	*ret = spec->request;
	/* A pod can ask for part of one GPU, or for whole ones. */
	if (ret->kind == PLACE_PROFILE || (ret->kind != PLACE_WHOLE && ret->count > 1))
		return -ERANGE;
	if (ret->kind == PLACE_WHOLE)
		ret->share = SHARE_ONE;
	return queue->size == QUEUE_SIZE_OF_JOB || is_within(ret, &whole) ? 0 : -ERANGE;
}

uint32_t agent_pods_running(const struct agent *agent)
{
	uint32_t running = 0;

	for (uint32_t i = 0; i < agent->queue_count; i++)
		running += agent->queue[i].running;
	return running;
}

/* ---- a job's pod -------------------------------------------------------------------------- */

/* Daemons of many hosts share a namespace: machine, user and time of enqueueing tell their jobs
 * apart. None of these changes while a job lives. */
static uint64_t pod_key(const struct job_record *record)
{
	char machine[64] = "";
	uint64_t hash = FNV_BASIS;

	(void)file_read(MACHINE_ID, machine, sizeof(machine));
	hash = fnv_add(hash, machine, strlen(machine));
	hash = fnv_add(hash, &record->uid, sizeof(record->uid));
	hash = fnv_add(hash, &record->enqueued, sizeof(record->enqueued));
	return fnv_add(hash, &record->id, sizeof(record->id));
}

/* The name of the pod of the job's attempt. No other attempt of any daemon has it. */
static const char *pod_name(const struct job_record *record, char buf[static POD_NAME_SIZE])
{
	snprintf(buf, POD_NAME_SIZE, SHIM_POD_NAME, (uint64_t)record->id, pod_key(record),
		 record->attempt);
	return buf;
}

static void size_fill(const struct place_request *request, struct shim_run *ret)
{
	if (request->kind == PLACE_BYTES) {
		ret->pod_unit = SHIM_UNIT_MIB;
		ret->pod_size = (request->bytes + 1048575) >> 20;
	} else if (request->count && request->kind == PLACE_WHOLE) {
		ret->pod_unit = SHIM_UNIT_GPUS;
		ret->pod_size = request->count;
	} else if (request->count) {
		ret->pod_unit = SHIM_UNIT_MILLIONTHS;
		ret->pod_size = request->share * UINT64_C(1000000) / SHARE_ONE;
	}
}

void job_pod_fill(const struct job *job, const struct place_request *request, struct shim_run *ret)
{
	ret->grace_ns = AGENT_PODS_GRACE_NS;
	ret->pod_key = pod_key(&job->record);
	ret->pod_grace_s = (uint32_t)(job->spec->grace_ns / 1000000000);
	size_fill(request, ret);
}

char *job_pod_place(const struct job *job, const struct agent *agent)
{
	char name[POD_NAME_SIZE];
	json_t *place = json_pack("{s:s, s:s}", "pod", pod_name(&job->record, name), "namespace",
				  agent->pods->namespace);
	char *text = json_dumps(place, JSON_COMPACT);

	json_decref(place);
	return text;
}

bool job_is_pod(const struct job_record *record)
{
	return record->place && record->place[0] == '{';
}

json_t *job_pod_state(const struct queues *q, const struct job_record *record)
{
	char text[STATE_MAX];
	ssize_t n = job_file_read(q, record, SHIM_POD_STATE, text, sizeof(text));

	return n > 0 ? json_loadb(text, (size_t)n, 0, NULL) : NULL;
}

bool job_pod_is_there(const struct queues *q, const struct job_record *record)
{
	json_t *state = job_is_pod(record) ? job_pod_state(q, record) : NULL;
	const char *phase = json_string_value(json_object_get(state, "phase"));
	bool is_there =
		phase && (!strcmp(phase, SHIM_POD_CREATED) || !strcmp(phase, SHIM_POD_ENDED));

	json_decref(state);
	return is_there;
}
