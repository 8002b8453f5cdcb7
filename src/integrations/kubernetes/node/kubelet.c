/* Messages of the kubelet as calls of prepare.h, on the loop's thread pool. */
#include "integrations/kubernetes/node/kubelet.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/macros.h"
#include "daemon/host/log.h"
#include "integrations/kubernetes/claim/prepare.h"
#include "integrations/kubernetes/grpc/grpc.h"
#include "integrations/kubernetes/node/watcher.h"
#include "messages.pb-c.h"

#define REGISTRATION "/pluginregistration.Registration/"
#define DRA_V1 "/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin/"
#define DRA_V1BETA1 "/k8s.io.kubelet.pkg.apis.dra.v1beta1.DRAPlugin/"
#define HEALTH "/v1alpha1.DRAResourceHealth/"
/* Claims of one call: a pod has far fewer. */
#define CLAIMS_MAX 1024
/* Why a claim is neither prepared nor refused. */
#define LATE_WAITS "other claims took all of the time; the kubelet asks again"
#define LATE_RUNS                                                                           \
	"it takes longer than the kubelet waits, and goes on; the kubelet asks again. The " \
	"plugin's log says what does not answer"
/* The kubelet takes what it heard longer ago for unknown. */
#define HEALTH_TIMEOUT_SECONDS 60

enum { HEALTH_UNKNOWN, HEALTH_HEALTHY, HEALTH_UNHEALTHY };

/* Sends a message as the answer. */
static void reply(struct grpc_call *call, const ProtobufCMessage *message)
{
	size_t size = protobuf_c_message_get_packed_size(message);
	uint8_t *data = malloc(size + 1);

	if (!data) {
		grpc_fail(call, GRPC_RESOURCE_EXHAUSTED, "out of memory");
		return;
	}
	protobuf_c_message_pack(message, data);
	grpc_reply(call, data, size);
	free(data);
}

/* ---- registration ------------------------------------------------------------------------ */

static void on_get_info(struct grpc_call *call, const uint8_t *message, size_t size)
{
	const struct kubelet *kubelet = grpc_call_context(call);
	char *versions[] = {"v1.DRAPlugin", "v1beta1.DRAPlugin", "v1alpha1.DRAResourceHealth"};
	Kubelet__PluginInfo info = KUBELET__PLUGIN_INFO__INIT;

	info.type = "DRAPlugin";
	info.name = (char *)kubelet->driver;
	info.endpoint = (char *)kubelet->dra_socket;
	info.n_supported_versions = ARRAY_SIZE(versions);
	info.supported_versions = versions;
	reply(call, &info.base);
}

static void on_registered(struct grpc_call *call, const uint8_t *message, size_t size)
{
	struct kubelet *kubelet = grpc_call_context(call);
	Kubelet__RegistrationStatus *status =
		kubelet__registration_status__unpack(NULL, size, message);

	if (!status) {
		grpc_fail(call, GRPC_INVALID_ARGUMENT, "this is no RegistrationStatus");
		return;
	}
	if (status->plugin_registered)
		log_event(LOG_INFO, "kubelet.registered driver=%s", kubelet->driver);
	else
		log_event(LOG_ERROR, "kubelet.refused error=\"%s\"", status->error);
	/* A kubelet removes all slices when it starts, and those of a plugin that was away for 30
	 * s. */
	if (status->plugin_registered)
		watcher_registered(kubelet->watcher);
	kubelet__registration_status__free_unpacked(status, NULL);
	grpc_reply(call, NULL, 0);
}

/* ---- claims ------------------------------------------------------------------------------ */

/* A call for some claims. */
struct job {
	struct call call;
	struct kubelet *kubelet;
	struct grpc_call *peer; /* to be answered once */
	Kubelet__ClaimsRequest *request;
	/* For each claim; its thread's while that runs: */
	struct error *errors;
	struct stored_claim *stored; /* NULL: the claims are to be released */
};

static struct job *job_of(struct call *call)
{
	return CONTAINER_OF(call, struct job, call);
}

static void job_free(struct call *call)
{
	struct job *job = job_of(call);

	if (job->request)
		kubelet__claims_request__free_unpacked(job->request, NULL);
	free(job->errors);
	free(job->stored);
	free(job);
}

static void job_run(struct call *call)
{
	struct job *job = job_of(call);

	for (size_t i = 0; i < job->request->n_claims; i++) {
		const Kubelet__Claim *its = job->request->claims[i];
		struct prepare_claim claim = {
			.namespace = its->namespace_, .name = its->name, .uid = its->uid};
		struct error *err = &job->errors[i];
		int rc;

		/* The answer is given already. */
		if (call_is_late(call))
			return;
		rc = job->stored
			     ? prepare_claim(job->kubelet->prepare, &claim, &job->stored[i], err)
			     : prepare_release(job->kubelet->prepare, &claim, err);
		if (rc == 0)
			*err = (struct error){0};
		else if (!err->message[0])
			error_set(err, EXIT_CODE_FAILED, "it failed");
	}
}

/* One device of a claim, with the one CDI device of the slice that it belongs to. */
struct device_text {
	Kubelet__Device message;
	char cdi[CDI_ID_SIZE];
	char *requests[1], *ids[1];
};

static void device_fill(const struct job *job, struct stored_claim *stored, size_t slice,
			struct claim_device *device, struct device_text *to)
{
	kubelet__device__init(&to->message);
	to->requests[0] = device->request;
	to->ids[0] = (char *)cdi_id(job->kubelet->driver, stored, slice, to->cdi);
	to->message.n_request_names = to->message.n_cdi_device_ids = 1;
	to->message.request_names = to->requests;
	to->message.cdi_device_ids = to->ids;
	to->message.pool_name = device->pool;
	to->message.device_name = device->name;
	to->message.share_id = device->share;
}

/* A claim's entry of the answer. */
struct prepared_entry {
	Kubelet__PreparedEntry entry;
	Kubelet__Prepared value;
	Kubelet__Device *devices[CLAIM_DEVICES_MAX];
	struct device_text text[CLAIM_DEVICES_MAX];
	char error[sizeof(((struct error *)0)->message) + sizeof(((struct error *)0)->hint) + 4];
};

/* `late`: why nothing of it is known; NULL: it is. */
static void prepared_fill(struct job *job, size_t i, const char *late, struct prepared_entry *to)
{
	struct stored_claim *stored = &job->stored[i];
	const struct error *err = &job->errors[i];

	kubelet__prepared_entry__init(&to->entry);
	kubelet__prepared__init(&to->value);
	to->entry.key = job->request->claims[i]->uid;
	to->entry.value = &to->value;
	to->value.devices = to->devices;
	if (late) {
		to->value.error = (char *)late;
		return;
	}
	if (err->code) {
		snprintf(to->error, sizeof(to->error), "%s%s%s", err->message,
			 *err->hint ? "; " : "", err->hint);
		to->value.error = to->error;
		return;
	}
	for (size_t slice = 0; slice < stored->slices; slice++)
		for (size_t d = stored->slice[slice].first; d < stored->slice[slice].end; d++) {
			device_fill(job, stored, slice, &stored->claim.device[d], &to->text[d]);
			to->devices[to->value.n_devices++] = &to->text[d].message;
		}
}

static void prepared_reply(struct job *job, const char *late)
{
	size_t count = job->request->n_claims;
	struct prepared_entry *entries = calloc(count + 1, sizeof(*entries));
	Kubelet__PreparedEntry **list = calloc(count + 1, sizeof(Kubelet__PreparedEntry *));
	Kubelet__PrepareResponse response = KUBELET__PREPARE_RESPONSE__INIT;

	if (!entries || !list) {
		grpc_fail(job->peer, GRPC_RESOURCE_EXHAUSTED, "out of memory");
	} else {
		for (size_t i = 0; i < count; i++) {
			prepared_fill(job, i, late, &entries[i]);
			list[i] = &entries[i].entry;
		}
		response.n_claims = count;
		response.claims = list;
		reply(job->peer, &response.base);
	}
	free(entries);
	free(list);
}

struct unprepared_entry {
	Kubelet__UnpreparedEntry entry;
	Kubelet__Unprepared value;
};

static void unprepared_reply(struct job *job, const char *late)
{
	size_t count = job->request->n_claims;
	struct unprepared_entry *entries = calloc(count + 1, sizeof(*entries));
	Kubelet__UnpreparedEntry **list = calloc(count + 1, sizeof(Kubelet__UnpreparedEntry *));
	Kubelet__UnprepareResponse response = KUBELET__UNPREPARE_RESPONSE__INIT;

	if (!entries || !list) {
		grpc_fail(job->peer, GRPC_RESOURCE_EXHAUSTED, "out of memory");
	} else {
		for (size_t i = 0; i < count; i++) {
			kubelet__unprepared_entry__init(&entries[i].entry);
			kubelet__unprepared__init(&entries[i].value);
			entries[i].entry.key = job->request->claims[i]->uid;
			entries[i].entry.value = &entries[i].value;
			if (late)
				entries[i].value.error = (char *)late;
			else if (job->errors[i].code)
				entries[i].value.error = job->errors[i].message;
			list[i] = &entries[i].entry;
		}
		response.n_claims = count;
		response.claims = list;
		reply(job->peer, &response.base);
	}
	free(entries);
	free(list);
}

static void job_answer(struct job *job, const char *late)
{
	if (job->stored)
		prepared_reply(job, late);
	else
		unprepared_reply(job, late);
}

static void job_done(struct call *call)
{
	/* A claim that was not begun has no error, and must not pass for one that is done. */
	job_answer(job_of(call), call_is_late(call) ? LATE_RUNS : NULL);
}

static void job_late(struct call *call, bool runs)
{
	struct job *job = job_of(call);

	log_event(LOG_WARNING, "kubelet.late claims=%zu uid=%s runs=%d", job->request->n_claims,
		  job->request->n_claims ? job->request->claims[0]->uid : "", runs);
	job_answer(job, runs ? LATE_RUNS : LATE_WAITS);
}

static void job_start(struct grpc_call *peer, const uint8_t *message, size_t size, bool prepare)
{
	struct kubelet *kubelet = grpc_call_context(peer);
	struct job *job = calloc(1, sizeof(*job));

	if (job)
		job->request = kubelet__claims_request__unpack(NULL, size, message);
	if (!job || !job->request || job->request->n_claims > CLAIMS_MAX) {
		grpc_fail(peer, GRPC_INVALID_ARGUMENT, "this is no list of up to 1024 claims");
		if (job)
			job_free(&job->call);
		return;
	}
	size_t count = job->request->n_claims + 1;
	job->call = (struct call){.kind = prepare ? CALL_TAKES : CALL_GIVES,
				  .run = job_run,
				  .done = job_done,
				  .late = job_late,
				  .free = job_free};
	job->kubelet = kubelet;
	job->peer = peer;
	job->errors = calloc(count, sizeof(*job->errors));
	job->stored = prepare ? calloc(count, sizeof(*job->stored)) : NULL;
	if (!job->errors || (prepare && !job->stored)) {
		grpc_fail(peer, GRPC_RESOURCE_EXHAUSTED, "out of memory");
		job_free(&job->call);
		return;
	}
	calls_add(&kubelet->calls, &job->call);
}

void kubelet_open(struct kubelet *kubelet, uv_loop_t *loop)
{
	calls_open(&kubelet->calls, loop, PREPARE_SECONDS * 1000u);
}

void kubelet_close(struct kubelet *kubelet)
{
	calls_close(&kubelet->calls);
}

static void on_prepare(struct grpc_call *call, const uint8_t *message, size_t size)
{
	job_start(call, message, size, true);
}

static void on_unprepare(struct grpc_call *call, const uint8_t *message, size_t size)
{
	job_start(call, message, size, false);
}

/* ---- health ------------------------------------------------------------------------------ */

struct health_stream {
	struct health_stream *next;
	struct kubelet *kubelet;
	struct grpc_call *call;
};

struct health_text {
	Kubelet__DeviceHealth health;
	Kubelet__DeviceIdentifier id;
};

static void health_fill(const struct kubelet *kubelet, struct watcher_view *view, size_t i,
			struct health_text *to)
{
	kubelet__device_health__init(&to->health);
	kubelet__device_identifier__init(&to->id);
	to->id.pool_name = (char *)kubelet->node;
	to->id.device_name = view->gpu[i].name;
	to->health.device = &to->id;
	to->health.last_updated_time = (int64_t)time(NULL);
	to->health.health_check_timeout_seconds = HEALTH_TIMEOUT_SECONDS;
	if (!view->reached) {
		to->health.health = HEALTH_UNKNOWN;
		to->health.message = "carved does not answer";
	} else if (!view->gpu[i].answers) {
		to->health.health = HEALTH_UNHEALTHY;
		to->health.message = "the GPU's driver does not answer";
	} else {
		to->health.health = HEALTH_HEALTHY;
	}
}

static void health_send(struct health_stream *stream)
{
	struct health_text text[DEVICE_GPUS_MAX];
	Kubelet__DeviceHealth *list[DEVICE_GPUS_MAX];
	Kubelet__HealthReport report = KUBELET__HEALTH_REPORT__INIT;
	struct watcher_view view;

	watcher_view(stream->kubelet->watcher, &view);
	for (size_t i = 0; i < view.count; i++) {
		health_fill(stream->kubelet, &view, i, &text[i]);
		list[i] = &text[i].health;
	}
	report.n_devices = view.count;
	report.devices = list;
	size_t size = kubelet__health_report__get_packed_size(&report);
	uint8_t *data = malloc(size + 1);
	if (!data)
		return;
	kubelet__health_report__pack(&report, data);
	(void)grpc_send(stream->call, data, size);
	free(data);
}

static void on_watcher_gone(struct grpc_call *call, void *arg)
{
	struct health_stream *stream = arg, **at = &stream->kubelet->streams;

	while (*at != stream)
		at = &(*at)->next;
	*at = stream->next;
	free(stream);
	grpc_fail(call, GRPC_UNAVAILABLE, "");
}

static void on_watch_health(struct grpc_call *call, const uint8_t *message, size_t size)
{
	struct kubelet *kubelet = grpc_call_context(call);
	struct health_stream *stream = calloc(1, sizeof(*stream));

	if (!stream) {
		grpc_fail(call, GRPC_RESOURCE_EXHAUSTED, "out of memory");
		return;
	}
	stream->kubelet = kubelet;
	stream->call = call;
	stream->next = kubelet->streams;
	kubelet->streams = stream;
	grpc_on_gone(call, on_watcher_gone, stream);
	health_send(stream);
}

void kubelet_report_health(struct kubelet *kubelet)
{
	for (struct health_stream *stream = kubelet->streams; stream; stream = stream->next)
		health_send(stream);
}

const struct grpc_method kubelet_registration[] = {
	{REGISTRATION "GetInfo", on_get_info},
	{REGISTRATION "NotifyRegistrationStatus", on_registered},
	{0},
};

const struct grpc_method kubelet_dra[] = {
	{DRA_V1 "NodePrepareResources", on_prepare},
	{DRA_V1 "NodeUnprepareResources", on_unprepare},
	{DRA_V1BETA1 "NodePrepareResources", on_prepare},
	{DRA_V1BETA1 "NodeUnprepareResources", on_unprepare},
	{HEALTH "NodeWatchResources", on_watch_health},
	{0},
};
