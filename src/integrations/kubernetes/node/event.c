#include "integrations/kubernetes/node/event.h"

#include <stdio.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/units.h"
#include "client/client.h"
#include "integrations/kubernetes/api/api.h"

#define TIMEOUT_MS 15000L
/* The namespace for events of objects that are in no namespace. */
#define EVENTS "/api/v1/namespaces/default/events"
#define COMPONENT "carve-kubernetes"

/* *ret is the caller's; NULL: there is no memory, or the node has no name. */
static json_t *event_build(const json_t *node, const char *reason, const char *message)
{
	json_t *metadata = json_object_get(node, "metadata");
	const char *name = json_string_value(json_object_get(metadata, "name"));
	const char *uid = json_string_value(json_object_get(metadata, "uid"));
	int64_t now = now_realtime_ns();
	char its[320], at[UNITS_TEXT_SIZE];

	snprintf(its, sizeof(its), "%.253s.%llx", name ? name : "", (unsigned long long)now);
	units_format_time(now, UNITS_SECONDS, at);
	return json_pack("{s:s, s:s, s:{s:s, s:s}, s:{s:s, s:s, s:s, s:s}, s:s, s:s, s:s, s:{s:s, "
			 "s:s}, s:s, s:s, s:i}",
			 "apiVersion", "v1", "kind", "Event", "metadata", "name", its, "namespace",
			 "default", "involvedObject", "apiVersion", "v1", "kind", "Node", "name",
			 name, "uid", uid, "type", "Warning", "reason", reason, "message", message,
			 "source", "component", COMPONENT, "host", name, "firstTimestamp", at,
			 "lastTimestamp", at, "count", 1);
}

int event_write(struct api *api, const json_t *node, const char *reason, const char *message,
		struct error *err)
{
	cleanup_json json_t *event = event_build(node, reason, message), *answer = NULL;
	struct api_call call = {
		.method = "POST", .path = EVENTS, .body = event, .timeout_ms = TIMEOUT_MS};
	long status;

	if (!event)
		return error_set(err, EXIT_CODE_FAILED, "no event of a node without name and UID");
	int rc = api_call(api, &call, &status, &answer, err);
	return rc == 0 && (status < 200 || status > 299)
		       ? api_status_error(&call, status, answer, err)
		       : rc;
}
