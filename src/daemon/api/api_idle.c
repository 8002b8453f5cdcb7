#include "daemon/api/api_idle.h"

#include "base/units.h"
#include "daemon/idle/idle.h"
#include "daemon/node.h"

static json_t *time_json(int64_t ns)
{
	char text[UNITS_TEXT_SIZE];

	return ns ? json_string(units_format_time(ns, UNITS_MILLISECONDS, text)) : json_null();
}

static json_t *duration_json(bool known, uint64_t ns)
{
	return known ? json_integer((json_int_t)ns) : json_null();
}

void api_idle_add(const struct session *session, json_t *json)
{
	struct idle_standing standing = {0};

	if (session && session->state == SESSION_ACTIVE)
		idle_standing(node_of(session)->idle, session, &standing);
	json_object_set_new(json, "idle_since", time_json(standing.since));
	json_object_set_new(json, "idle_release_at", time_json(standing.release_at));
	json_object_set_new(json, "idle_warned", json_boolean(standing.warned));
	json_object_set_new(json, "idle_timeout_ns",
			    duration_json(standing.bound, standing.timeout_ns));
	json_object_set_new(json, "idle_warning_ns",
			    duration_json(standing.bound, standing.warning_ns));
	json_object_set_new(json, "idle_unknown",
			    standing.unknown_why ? json_string(standing.unknown_why) : json_null());
}
