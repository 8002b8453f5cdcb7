#include "daemon/api/api_quota.h"

#include <errno.h>
#include <http_parser.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/units.h"
#include "daemon/api/answer.h"
#include "daemon/api/api.h"
#include "daemon/api/http.h"
#include "daemon/events/events.h"
#include "daemon/host/names.h"
#include "daemon/host/unrecorded.h"
#include "daemon/node.h"
#include "daemon/waiting/quotas.h"
#include "daemon/waiting/waiting.h"

/* ---- names ------------------------------------------------------------------------------- */

static int number_parse(const char *text, uint32_t *ret)
{
	char *end;
	unsigned long value = strtoul(text, &end, 10);

	if (*text < '0' || *text > '9' || *end || value > UINT32_MAX - 1)
		return -EINVAL;
	*ret = (uint32_t)value;
	return 0;
}

static enum names_kind names_kind(enum quota_kind kind)
{
	return kind == QUOTA_OF_USER ? NAMES_OF_USERS : NAMES_OF_GROUPS;
}

static bool is_called(enum names_kind kind, uint32_t id, const char *name, bool *unknown)
{
	*unknown |= names_asked(kind, id);
	return strcmp(names_of(kind, id), name) == 0;
}

/* Only an administrator may have any name looked for: others know their own, and the machine's. */
static int own_id_of(const struct peer *peer, enum quota_kind kind, const char *name, uint32_t *ret)
{
	bool unknown = false, found = false;

	*ret = kind == QUOTA_OF_USER ? peer->uid : peer->gid;
	found = is_called(names_kind(kind), *ret, name, &unknown);
	for (unsigned i = 0; kind == QUOTA_OF_GROUP && !found && i < peer->groups.count; i++) {
		*ret = peer->groups.gid[i];
		found = is_called(NAMES_OF_GROUPS, *ret, name, &unknown);
	}
	if (found)
		return 0;
	return unknown ? -EINPROGRESS : names_find_here(names_kind(kind), name, ret);
}

static int id_of(const struct peer *peer, enum quota_kind kind, const char *name, uint32_t *ret)
{
	uint32_t number;

	if (number_parse(name, &number) == 0) {
		if (names_find_here(names_kind(kind), name, ret) < 0)
			*ret = number;
		return 0;
	}
	return peer->admin ? names_find(names_kind(kind), name, ret)
			   : own_id_of(peer, kind, name, ret);
}

static json_t *name_of(enum quota_kind kind, uint32_t id)
{
	return json_string(names_of(names_kind(kind), id));
}

/* The kind that the call's path names. */
static enum quota_kind kind_of(const struct call *call)
{
	static const char of_users[] = "/v1/quotas/user/";

	return strncmp(call->path, of_users, sizeof(of_users) - 1) ? QUOTA_OF_GROUP : QUOTA_OF_USER;
}

static const char *kind_text(enum quota_kind kind)
{
	return kind == QUOTA_OF_USER ? "user" : "group";
}

/* ---- showing ----------------------------------------------------------------------------- */

static json_t *limit_json(uint64_t limit)
{
	return limit == QUOTA_NONE ? json_null() : json_integer((json_int_t)limit);
}

static json_t *quota_json(const struct node *node, const struct store_quota *q)
{
	struct quota_use use = quotas_use(&node->quotas, q->kind, q->id);

	return json_pack(
		"{s:s, s:o, s:I, s:o, s:o, s:o, s:{s:I, s:I, s:I}}", "kind", kind_text(q->kind),
		"name", name_of(q->kind, q->id), "id", (json_int_t)q->id, "vram_bytes",
		limit_json(q->quota.vram_bytes), "sessions", limit_json(q->quota.sessions), "gpus",
		limit_json(q->quota.gpus), "used", "vram_bytes", (json_int_t)use.vram_bytes,
		"sessions", (json_int_t)use.sessions, "gpus", (json_int_t)quota_gpus(use));
}

static bool may_see(const struct call *call, enum quota_kind kind, uint32_t id)
{
	const struct peer *peer = &call->peer;

	if (kind == QUOTA_OF_USER)
		return peer->admin || id == peer->uid;
	return peer->admin || id == peer->gid || groups_have(&peer->groups, id);
}

void api_get_quotas(struct call *call, const char *name)
{
	json_t *list = json_array();

	for (const struct quota_entry *e = call->node->quotas.first; e; e = e->next)
		if (may_see(call, e->stored.kind, e->stored.id))
			json_array_append_new(list, quota_json(call->node, &e->stored));
	call_reply(call, HTTP_STATUS_OK, list);
}

static void on_name(void *call)
{
	api_handle(call);
}

static void on_gone(struct call *call)
{
	names_forget(call);
}

static void name_await(struct call *call)
{
	if (names_await(on_name, call) == 0)
		call_defer(call, on_gone);
	else
		call_reply(call, HTTP_STATUS_INTERNAL_SERVER_ERROR, NULL); /* "out of memory" */
}

/* False: answered, there is nobody of that name; or that is not known yet, and the call is handled
 * anew. */
static bool id_or_answer(struct call *call, enum quota_kind kind, const char *name, uint32_t *ret)
{
	int rc = id_of(&call->peer, kind, name, ret);

	if (rc == 0)
		return true;
	if (rc == -EINPROGRESS) {
		name_await(call);
		return false;
	}
	answer_failed(call, HTTP_STATUS_NOT_FOUND, EXIT_CODE_USAGE, "there is no %s %.64s",
		      kind_text(kind), name);
	return false;
}

void api_get_quota(struct call *call, const char *name)
{
	enum quota_kind kind = kind_of(call);
	struct store_quota wanted = {.kind = kind};

	if (!id_or_answer(call, kind, name, &wanted.id))
		return;
	if (!may_see(call, kind, wanted.id)) {
		answer_failed(call, HTTP_STATUS_FORBIDDEN, EXIT_CODE_NOT_PERMITTED,
			      "the quota of %s %.64s is shown to %s, root and members of group "
			      "carve",
			      kind_text(kind), name,
			      kind == QUOTA_OF_USER ? "that user" : "its members");
		return;
	}
	wanted.quota = quotas_get(&call->node->quotas, kind, wanted.id);
	call_reply(call, HTTP_STATUS_OK, quota_json(call->node, &wanted));
}

/* ---- setting ----------------------------------------------------------------------------- */

static int count_take(const json_t *value, const char *field, uint64_t *ret, struct error *err)
{
	if (json_is_null(value)) {
		*ret = QUOTA_NONE;
		return 0;
	}
	if (!json_is_integer(value))
		return error_set(err, EXIT_CODE_USAGE, "'%s' takes a whole number", field);
	if (json_integer_value(value) < 0)
		return error_set(err, EXIT_CODE_USAGE, "%s: %" JSON_INTEGER_FORMAT " is negative",
				 field, json_integer_value(value));
	*ret = (uint64_t)json_integer_value(value);
	return 0;
}

static int vram_take(const json_t *value, uint64_t *ret, struct error *err)
{
	if (json_is_string(value))
		return units_parse_vram(json_string_value(value), ret, err);
	return count_take(value, "vram_bytes", ret, err);
}

static int unknown_field(const char *key, struct error *err)
{
	error_set(err, EXIT_CODE_USAGE, "unknown field '%.64s'", key);
	error_hint(err, "there are vram, vram_bytes, sessions, gpus");
	return -EXIT_CODE_USAGE;
}

/* All fields that are named; the others stay as they are in *quota_at. */
static int quota_parse(const json_t *root, struct quota *quota_at, struct error *err)
{
	struct quota quota = *quota_at;
	const char *key;
	json_t *value;
	int rc = 0;

	if (!json_is_object(root))
		return error_set(err, EXIT_CODE_USAGE, "the body is not a JSON object");
	json_object_foreach((json_t *)root, key, value)
	{
		if (!strcmp(key, "vram") || !strcmp(key, "vram_bytes"))
			rc = vram_take(value, &quota.vram_bytes, err);
		else if (!strcmp(key, "sessions"))
			rc = count_take(value, key, &quota.sessions, err);
		else if (!strcmp(key, "gpus"))
			rc = count_take(value, key, &quota.gpus, err);
		else
			rc = unknown_field(key, err);
		if (rc < 0)
			return rc;
	}
	*quota_at = quota;
	return 0;
}

/* True where the caller may set quotas; else it is answered. */
static bool admin_or_answer(struct call *call)
{
	if (!call->peer.admin)
		answer_failed(call, HTTP_STATUS_FORBIDDEN, EXIT_CODE_NOT_PERMITTED,
			      "quotas are set by root and members of group carve");
	return call->peer.admin;
}

#define QUOTA_TEXT_SIZE 160

static const char *limit_text(uint64_t limit, char buf[static UNITS_TEXT_SIZE])
{
	if (limit == QUOTA_NONE)
		return "no limit";
	snprintf(buf, UNITS_TEXT_SIZE, "%" PRIu64, limit);
	return buf;
}

/* "vram 8 GiB, sessions 2, gpus no limit" */
static const char *quota_text(const struct quota *q, char buf[static QUOTA_TEXT_SIZE])
{
	char vram[UNITS_TEXT_SIZE], sessions[UNITS_TEXT_SIZE], gpus[UNITS_TEXT_SIZE];

	snprintf(buf, QUOTA_TEXT_SIZE, "vram %s, sessions %s, gpus %s",
		 q->vram_bytes == QUOTA_NONE ? "no limit" : units_format_bytes(q->vram_bytes, vram),
		 limit_text(q->sessions, sessions), limit_text(q->gpus, gpus));
	return buf;
}

static void record(struct call *call, const struct store_quota *quota, const struct quota *before)
{
	char subject[NAMES_SIZE + 8], old[QUOTA_TEXT_SIZE], new[QUOTA_TEXT_SIZE];

	if (!strcmp(quota_text(before, old), quota_text(&quota->quota, new)))
		return;
	snprintf(subject, sizeof(subject), "%s %s", kind_text(quota->kind),
		 names_of(names_kind(quota->kind), quota->id));
	events_add(call->node->events,
		   &(struct event){
			   .kind = EVENT_QUOTA_SET,
			   .actor = &call->peer,
			   .owner = quota->kind == QUOTA_OF_USER ? &quota->id : NULL,
			   .subject = subject,
			   .before = old,
			   .after = new,
		   });
}

static void set(struct call *call, const struct store_quota *wanted)
{
	struct quota before = quotas_get(&call->node->quotas, wanted->kind, wanted->id);
	int rc = quotas_set(&call->node->quotas, wanted);

	if (rc < 0) {
		struct error err = {0};

		unrecorded_set(&err, "the quota cannot be recorded", rc);
		call_reply_error(call, answer_status(&err), &err);
		return;
	}
	record(call, wanted, &before);
	waiting_kick(&call->node->waiting);
	call_reply(call, HTTP_STATUS_OK, quota_json(call->node, wanted));
}

static const struct quota unlimited = {QUOTA_NONE, QUOTA_NONE, QUOTA_NONE};

/* Sets the limits that the body names; the others stay, or with `whole` are none. */
static void change(struct call *call, const char *name, bool whole)
{
	enum quota_kind kind = kind_of(call);
	struct store_quota wanted = {.kind = kind};
	struct error err = {0};

	if (!admin_or_answer(call) || !id_or_answer(call, kind, name, &wanted.id))
		return;
	json_t *root = answer_body(call, &err);
	wanted.quota = whole ? unlimited : quotas_get(&call->node->quotas, kind, wanted.id);
	int rc = root ? quota_parse(root, &wanted.quota, &err) : -1;

	json_decref(root);
	if (rc < 0)
		call_reply_error(call, answer_status(&err), &err);
	else
		set(call, &wanted);
}

void api_put_quota(struct call *call, const char *name)
{
	change(call, name, true);
}

void api_patch_quota(struct call *call, const char *name)
{
	change(call, name, false);
}

void api_delete_quota(struct call *call, const char *name)
{
	struct store_quota wanted = {.kind = kind_of(call), .quota = unlimited};

	if (admin_or_answer(call) && id_or_answer(call, wanted.kind, name, &wanted.id))
		set(call, &wanted);
}
