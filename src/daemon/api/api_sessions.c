#include "daemon/api/api_sessions.h"

#include <http_parser.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/macros.h"
#include "daemon/api/answer.h"
#include "daemon/api/http.h"
#include "daemon/api/view.h"
#include "daemon/node.h"
#include "daemon/session/session.h"
#include "daemon/waiting/waiting.h"

/* Sessions in one part of a list; a row takes some 50 us. */
#define PAGE_SESSIONS 64u
/* A client that knows no parts gets this many of the newest ended sessions, */
#define UNPAGED_SESSIONS 128u
/* and sessions and requests that have not ended. src/client/sessions.c knows this number: an answer
 * with this many may not be all. */
#define UNPAGED_LIVING 256u

/* The list goes through these in their order. */
enum kind { KIND_ENDED, KIND_LIVING, KIND_WAITING, KINDS };

/* The last row of a part: the next one begins behind it. */
struct place {
	enum kind kind;
	struct store_place ended;
	int64_t created; /* KIND_LIVING: and the ID, of those made in one moment */
	char id[STORE_ID_SIZE];
	int priority; /* KIND_WAITING */
	uint64_t since_ns;
};

struct listing {
	struct node *node;
	json_t *list;
	const struct peer *viewer;
	uid_t uid; /* only this user's; (uid_t)-1: all */
	struct place place;
};

static struct place before_all(enum kind kind)
{
	return (struct place){.kind = kind, .created = INT64_MIN, .priority = INT32_MAX};
}

/* ---- places as text ---------------------------------------------------------------------- */

#define PLACE_SIZE 80

static void place_print(const struct place *place, char buf[static PLACE_SIZE])
{
	switch (place->kind) {
	case KIND_ENDED:
		snprintf(buf, PLACE_SIZE, "%" PRId64 ".%" PRId64 ".%" PRId64, place->ended.ended,
			 place->ended.created, place->ended.row);
		break;
	case KIND_LIVING:
		snprintf(buf, PLACE_SIZE, "l%" PRId64 ".%s", place->created, place->id);
		break;
	default:
		snprintf(buf, PLACE_SIZE, "w%d.%" PRIu64, place->priority, place->since_ns);
		break;
	}
}

static bool place_parse_living(const char *at, struct place *ret)
{
	*ret = before_all(KIND_LIVING);
	if (!answer_number_take(&at, '.', &ret->created))
		return false;
	size_t length = strspn(at, "abcdefghijklmnopqrstuvwxyz0123456789-");
	if (!length || at[length] || length >= sizeof(ret->id))
		return false;
	memcpy(ret->id, at, length + 1);
	return true;
}

static bool place_parse_waiting(const char *at, struct place *ret)
{
	int64_t priority, since;

	*ret = before_all(KIND_WAITING);
	if (!answer_number_take(&at, '.', &priority) || !answer_number_take(&at, '\0', &since) ||
	    priority < INT_MIN || priority > INT_MAX || since < 0)
		return false;
	ret->priority = (int)priority;
	ret->since_ns = (uint64_t)since;
	return true;
}

/* False: it is none that place_print() made. */
static bool place_parse(const char *text, struct place *ret)
{
	switch (*text) {
	case 'l':
		return place_parse_living(text + 1, ret);
	case 'w':
		return place_parse_waiting(text + 1, ret);
	default:
		*ret = before_all(KIND_ENDED);
		return answer_number_take(&text, '.', &ret->ended.ended) &&
		       answer_number_take(&text, '.', &ret->ended.created) &&
		       answer_number_take(&text, '\0', &ret->ended.row);
	}
}

/* ---- rows -------------------------------------------------------------------------------- */

static int ended_add(void *arg, const struct store_session *session)
{
	struct listing *l = arg;

	l->place.ended = (struct store_place){session->ended, session->created, session->row};
	json_array_append_new(l->list, view_ended(l->node->store, session, l->viewer));
	return 0;
}

static int created_compare(int64_t created, const char *id, int64_t other, const char *other_id)
{
	return created != other ? (created > other) - (created < other) : strcmp(id, other_id);
}

static int by_created(const void *a, const void *b)
{
	const struct session *x = *(struct session *const *)a, *y = *(struct session *const *)b;

	return created_compare(x->record.created, x->record.id, y->record.created, y->record.id);
}

static bool is_wanted(const struct listing *l, uid_t owner)
{
	return l->uid == (uid_t)-1 || l->uid == owner;
}

/* At most `room`, the oldest first. */
static void living_add(struct listing *l, size_t room)
{
	struct place *place = &l->place;
	struct session **order = calloc(l->node->sessions.count + 1, sizeof(struct session *));
	size_t count = 0;

	if (!order)
		return;
	for (struct session *s = l->node->sessions.first; s; s = s->next)
		if (is_wanted(l, s->record.uid) &&
		    created_compare(s->record.created, s->record.id, place->created, place->id) > 0)
			order[count++] = s;
	qsort(order, count, sizeof(struct session *), by_created);
	for (size_t i = 0; i < MIN(count, room); i++) {
		json_array_append_new(l->list, view_session(order[i], l->viewer));
		place->created = order[i]->record.created;
		snprintf(place->id, sizeof(place->id), "%s", order[i]->record.id);
	}
	free(order);
}

static bool waits_behind(const struct waiter *w, const struct place *place)
{
	int priority = w->request.priority;

	return priority != place->priority ? priority < place->priority
					   : w->since_ns > place->since_ns;
}

static void waiting_add_rows(struct listing *l, size_t room)
{
	unsigned position = 0;

	for (const struct waiter *w = l->node->waiting.first; w && room; w = w->next) {
		position++;
		if (!waits_behind(w, &l->place) || !is_wanted(l, w->peer.uid))
			continue;
		json_array_append_new(l->list, view_waiter(l->node, w, position, l->viewer));
		l->place.priority = w->request.priority;
		l->place.since_ns = w->since_ns;
		room--;
	}
}

/* ---- in parts ---------------------------------------------------------------------------- */

static void rows_add(struct listing *l, size_t room)
{
	struct store_place after = l->place.ended;

	switch (l->place.kind) {
	case KIND_ENDED:
		(void)store_sessions_page(l->node->store, &after, (uint32_t)room, ended_add, l);
		break;
	case KIND_LIVING:
		living_add(l, room);
		break;
	default:
		waiting_add_rows(l, room);
		break;
	}
}

/* {sessions, next}: `next` is where the next part begins, or null with the last one. */
static void reply_part(struct call *call, const struct place *after, uid_t uid)
{
	struct listing l = {.node = call->node,
			    .list = json_array(),
			    .viewer = &call->peer,
			    .uid = uid,
			    .place = *after};
	char next[PLACE_SIZE] = "";

	while (l.place.kind < KINDS) {
		rows_add(&l, PAGE_SESSIONS - json_array_size(l.list));
		if (json_array_size(l.list) == PAGE_SESSIONS) {
			place_print(&l.place, next);
			break;
		}
		l.place = before_all(l.place.kind + 1);
	}
	call_reply(call, HTTP_STATUS_OK,
		   json_pack("{s:o, s:o}", "sessions", l.list, "next",
			     *next ? json_string(next) : json_null()));
}

static void reply_part_at(struct call *call, const char *text, enum kind first, const char *name,
			  uid_t uid)
{
	struct place place = before_all(first);

	if (!*text || place_parse(text, &place))
		reply_part(call, &place, uid);
	else
		answer_failed(call, HTTP_STATUS_BAD_REQUEST, EXIT_CODE_USAGE,
			      "%s: takes what `next` of the part before said; empty: the first",
			      name);
}

/* ---- in one ------------------------------------------------------------------------------ */

/* The caller's own first, as others' must not push them out. */
static void own_and_others_add(struct listing *l, bool own, size_t most)
{
	size_t living = json_array_size(l->list) + most;

	for (struct session *s = l->node->sessions.first; s && json_array_size(l->list) < living;
	     s = s->next)
		if ((s->record.uid == l->viewer->uid) == own)
			json_array_append_new(l->list, view_session(s, l->viewer));
	unsigned position = 0;
	for (const struct waiter *w = l->node->waiting.first;
	     w && json_array_size(l->list) < living; w = w->next) {
		position++;
		if ((w->peer.uid == l->viewer->uid) == own)
			json_array_append_new(l->list,
					      view_waiter(l->node, w, position, l->viewer));
	}
}

static void reply_unpaged(struct call *call, bool ended)
{
	struct listing l = {.node = call->node,
			    .list = json_array(),
			    .viewer = &call->peer,
			    .uid = (uid_t)-1,
			    .place = before_all(KIND_LIVING)};

	if (ended)
		(void)store_sessions_each(l.node->store, true, UNPAGED_SESSIONS, ended_add, &l);
	size_t before = json_array_size(l.list);
	if (l.node->sessions.count + l.node->waiting.budget.total <= UNPAGED_LIVING) {
		living_add(&l, UNPAGED_LIVING);
		l.place = before_all(KIND_WAITING);
		waiting_add_rows(&l, UNPAGED_LIVING);
	} else {
		own_and_others_add(&l, true, UNPAGED_LIVING);
		own_and_others_add(&l, false, UNPAGED_LIVING - (json_array_size(l.list) - before));
	}
	call_reply(call, HTTP_STATUS_OK, l.list);
}

void api_get_sessions(struct call *call, const char *id)
{
	const char *all = call_argument(call, "all"), *page = call_argument(call, "page");
	const char *living = call_argument(call, "living");
	uid_t uid;

	if (!answer_uid_argument(call, &uid))
		return;
	if (uid != (uid_t)-1 && !living)
		answer_failed(call, HTTP_STATUS_BAD_REQUEST, EXIT_CODE_USAGE,
			      "uid: goes with living alone");
	else if (living)
		reply_part_at(call, living, KIND_LIVING, "living", uid);
	else if (page)
		reply_part_at(call, page, KIND_ENDED, "page", uid);
	else
		reply_unpaged(call, all && strcmp(all, "0") != 0);
}
