#include "integrations/kubernetes/api/event.h"

#include <stdio.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/units.h"
#include "client/client.h"
#include "integrations/kubernetes/api/api.h"

#define TIMEOUT_MS 15000L
#define COMPONENT "carve-kubernetes"

static const char *text_of(const json_t *object, const char *key)
{
	return json_string_value(json_object_get(json_object_get(object, "metadata"), key));
}

/* *ret is the caller's; NULL: there is no memory, or the object has no name. */
static json_t *event_build(const struct event *event, const char *namespace)
{
	const char *name = text_of(event->about, "name");
	int64_t now = now_realtime_ns();
	char its[320], at[UNITS_TEXT_SIZE];

	snprintf(its, sizeof(its), "%.253s.%llx", name ? name : "", (unsigned long long)now);
	units_format_time(now, UNITS_SECONDS, at);
	return json_pack("{s:s, s:s, s:{s:s, s:s}, s:{s:s, s:s, s:s*, s:s, s:s}, s:s, s:s, s:s, "
			 "s:{s:s}, s:s, s:s, s:i}",
			 "apiVersion", "v1", "kind", "Event", "metadata", "name", its, "namespace",
			 namespace, "involvedObject", "apiVersion", "v1", "kind", event->kind,
			 "namespace", text_of(event->about, "namespace"), "name", name, "uid",
			 text_of(event->about, "uid"), "type", "Warning", "reason", event->reason,
			 "message", event->message, "source", "component", COMPONENT,
			 "firstTimestamp", at, "lastTimestamp", at, "count", 1);
}

int event_write(struct api *api, const struct event *event, struct error *err)
{
	/* Events of objects that are in no namespace are in this one. */
	const char *its = text_of(event->about, "namespace"), *namespace = its ? its : "default";
	cleanup_json json_t *body = event_build(event, namespace), *answer = NULL;
	char path[128];
	struct api_call call = {
		.method = "POST", .path = path, .body = body, .timeout_ms = TIMEOUT_MS};
	long status;

	if (!body)
		return error_set(err, EXIT_CODE_FAILED, "no event of a %s without name and UID",
				 event->kind);
	snprintf(path, sizeof(path), "/api/v1/namespaces/%.63s/events", namespace);
	int rc = api_call(api, &call, &status, &answer, err);
	return rc == 0 && (status < 200 || status > 299)
		       ? api_status_error(&call, status, answer, err)
		       : rc;
}
