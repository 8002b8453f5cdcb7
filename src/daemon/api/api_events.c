#include "daemon/api/api_events.h"

#include <http_parser.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "daemon/api/answer.h"
#include "daemon/api/http.h"
#include "daemon/api/view.h"
#include "daemon/events/events.h"
#include "daemon/host/owner.h"
#include "daemon/node.h"
#include "daemon/session/session.h"

/* ---- adding -------------------------------------------------------------------------------- */

void api_deed_record(struct node *node, const struct peer *actor, const struct api_deed *deed)
{
	char subject[160];

	if (actor->uid == deed->owner || actor->uid == owner_of(deed->owner))
		return;
	snprintf(subject, sizeof(subject), "%s %s", deed->what, deed->id);
	events_add(node->events, &(struct event){.kind = deed->kind,
						 .actor = actor,
						 .owner = &deed->owner,
						 .subject = subject,
						 .before = deed->before,
						 .after = deed->after});
}

const char *api_held_text(const struct session *s, char buf[static API_HELD_TEXT_SIZE])
{
	char bytes[UNITS_TEXT_SIZE];
	uint64_t sum = 0;

	for (uint32_t i = 0; i < s->record.gpu_count; i++)
		sum += s->record.gpu[i].bytes;
	snprintf(buf, API_HELD_TEXT_SIZE, "%s on %u GPU%s", units_format_bytes(sum, bytes),
		 s->record.gpu_count, s->record.gpu_count == 1 ? "" : "s");
	return buf;
}

/* ---- answering ----------------------------------------------------------------------------- */

/* In one answer: an event takes some 5 us to be shown, and the loop waits meanwhile. */
#define ANSWER_EVENTS 64u

/* Which events a call asks for. */
struct filter {
	const struct peer *viewer;
	const char *kind; /* NULL: any */
	uid_t uid;        /* the user who did it or whom it concerns; (uid_t)-1: any */
	bool changes;     /* changes alone */
	int64_t since;    /* CLOCK_REALTIME, ns */
	json_t *list;
};

static json_t *id_json(int64_t id)
{
	return id < 0 ? json_null() : json_integer(id);
}

static json_t *user_json(int64_t uid)
{
	return uid < 0 ? json_null() : json_string(view_user((uid_t)uid));
}

static json_t *text_json(const char *text)
{
	return *text ? json_string(text) : json_null();
}

/* Which of an administrator's processes it was is for administrators to know. */
static json_t *event_json(const struct store_event *e, const struct peer *viewer)
{
	bool details = events_admin(viewer);

	return json_pack("{s:I, s:o, s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}",
			 "number", (json_int_t)e->number, "at", view_time(e->at), "kind", e->kind,
			 "uid", id_json(e->uid), "user", user_json(e->uid), "login",
			 details ? user_json(e->login) : json_null(), "pid",
			 details ? id_json(e->pid) : json_null(), "process",
			 details ? text_json(e->process) : json_null(), "parents",
			 details ? text_json(e->parents) : json_null(), "owner",
			 user_json(e->owner), "subject", text_json(e->subject), "before",
			 text_json(e->before), "after", text_json(e->after), "text",
			 text_json(e->text));
}

static bool is_wanted(const struct filter *filter, const struct store_event *e)
{
	enum event_kind kind = event_kind_find(e->kind);

	if (!events_visible(e, filter->viewer) || e->at < filter->since)
		return false;
	if (filter->kind && strcmp(e->kind, filter->kind) != 0)
		return false;
	if (filter->uid != (uid_t)-1 && e->uid != filter->uid && e->owner != filter->uid)
		return false;
	return !filter->changes || kind == EVENT_KINDS || event_kind_row(kind)->change;
}

static int event_take(void *arg, const struct store_event *event)
{
	struct filter *filter = arg;

	if (is_wanted(filter, event))
		json_array_append_new(filter->list, event_json(event, filter->viewer));
	return json_array_size(filter->list) == ANSWER_EVENTS;
}

static void events_answer(void *call);

static void on_gone(struct call *call)
{
	events_unlisten(call->node->events, call);
}

static bool is_set(const char *argument)
{
	return argument && strcmp(argument, "0") != 0;
}

static bool number_or_answer(struct call *call, const char *name, int64_t *ret)
{
	const char *text = call_argument(call, name);

	if (!text || (answer_number_take(&text, '\0', ret) && *ret >= 0))
		return true;
	answer_failed(call, HTTP_STATUS_BAD_REQUEST, EXIT_CODE_USAGE,
		      "%s: takes a whole number from 0 on", name);
	return false;
}

/* False: answered. */
static bool filter_read(struct call *call, struct filter *filter)
{
	struct error err = {0};

	if (!number_or_answer(call, "since", &filter->since) ||
	    !answer_uid_argument(call, &filter->uid))
		return false;
	if (!filter->kind || event_kind_find(filter->kind) != EVENT_KINDS)
		return true;
	error_set(&err, EXIT_CODE_USAGE, "kind: there are no events of kind %.32s", filter->kind);
	error_hint(&err, "for example: quota.set, gpu.drained or config.read; carve-events(1) "
			 "lists the kinds");
	call_reply_error(call, HTTP_STATUS_BAD_REQUEST, &err);
	return false;
}

/* From where to read. False: answered. */
static bool from_read(struct call *call, const struct filter *filter, uint64_t *ret)
{
	const struct events *events = call->node->events;
	int64_t from = (int64_t)events_next(events);
	int rc = 0;

	if (!number_or_answer(call, "from", &from))
		return false;
	*ret = (uint64_t)from;
	if (filter->since && !call_argument(call, "from"))
		rc = events_since(events, filter->since, ret);
	if (rc == 0)
		return true;
	answer_failed(call, HTTP_STATUS_INTERNAL_SERVER_ERROR, EXIT_CODE_FAILED,
		      "the events cannot be read: %s", strerrordesc_np(-rc));
	return false;
}

static void events_run(struct call *call, void *arg)
{
	struct events *events = call->node->events;
	struct filter filter = {.viewer = &call->peer,
				.kind = call_argument(call, "kind"),
				.changes = is_set(call_argument(call, "changes"))};
	uint64_t from, next;

	if (!filter_read(call, &filter) || !from_read(call, &filter, &from))
		return;
	if (is_set(call_argument(call, "wait")) && from == events_next(events) &&
	    events_listen(events, events_answer, call) == 0) {
		call_defer(call, on_gone);
		return;
	}
	filter.list = json_array();
	int rc = events_each(events, from, event_take, &filter, &next);
	if (rc < 0) {
		json_decref(filter.list);
		answer_failed(call, HTTP_STATUS_INTERNAL_SERVER_ERROR, EXIT_CODE_FAILED,
			      "the events cannot be read: %s", strerrordesc_np(-rc));
		return;
	}
	call_reply(call, HTTP_STATUS_OK,
		   json_pack("{s:s, s:o, s:o}", "database", events_database(events), "next",
			     answer_number(next), "events", filter.list));
}

static void events_answer(void *call)
{
	call_fairly(call, events_run, NULL);
}

void api_get_events(struct call *call, const char *id)
{
	events_run(call, NULL);
}
