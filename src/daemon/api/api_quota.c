#include "daemon/api/api_quota.h"

#include <http_parser.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "daemon/api/answer.h"
#include "daemon/api/api_name.h"
#include "daemon/api/http.h"
#include "daemon/events/events.h"
#include "daemon/host/unrecorded.h"
#include "daemon/node.h"
#include "daemon/waiting/quota_fields.h"
#include "daemon/waiting/quotas.h"
#include "daemon/waiting/waiting.h"

/* ---- kinds ------------------------------------------------------------------------------- */

static const char *const event_subjects[] = {[QUOTA_OF_USER] = "user",
					     [QUOTA_OF_GROUP] = "group",
					     [QUOTA_OF_EACH] = "each of group",
					     [QUOTA_OF_EVERYONE] = "everyone"};

/* The kind that the call's path names. */
static enum quota_kind kind_of(const struct call *call)
{
	const char *word = call->path + strlen("/v1/quotas/");
	enum quota_kind kind = QUOTA_OF_USER;

	while (kind < QUOTA_OF_EVERYONE &&
	       strncmp(word, quota_fields_kind(kind), strcspn(word, "/")) != 0)
		kind++;
	return kind;
}

/* False: answered, or the call is handled anew. */
static bool id_find(struct call *call, enum quota_kind kind, const char *name, uint32_t *ret)
{
	*ret = 0;
	return kind == QUOTA_OF_EVERYONE ||
	       api_name_find(call, quota_is_of_group(kind) ? NAMES_OF_GROUPS : NAMES_OF_USERS, name,
			     ret);
}

/* ---- showing ----------------------------------------------------------------------------- */

/* A quota that limits each of several users has no use of its own: null. */
static json_t *used_json(const struct node *node, const struct store_quota *q)
{
	json_t *used = json_object();

	if (q->kind > QUOTA_OF_GROUP) {
		json_decref(used);
		return json_null();
	}
	struct quota_use use = quotas_use(&node->quotas, q->kind, q->id);
	for (enum quota_limit i = 0; i < QUOTA_LIMITS; i++)
		json_object_set_new(used, quota_fields_name(i),
				    quota_fields_amount(i, quota_used(use, i)));
	return used;
}

static json_t *quota_json(const struct node *node, const struct store_quota *q)
{
	json_t *root = json_pack("{s:s, s:s, s:I, s:o}", "kind", quota_fields_kind(q->kind), "name",
				 quota_fields_owner(q->kind, q->id), "id", (json_int_t)q->id,
				 "used", used_json(node, q));

	for (enum quota_limit i = 0; i < QUOTA_LIMITS; i++)
		json_object_set_new(root, quota_fields_name(i),
				    quota_fields_limit(i, q->quota.most[i]));
	return root;
}

static bool may_see(const struct call *call, enum quota_kind kind, uint32_t id)
{
	const struct peer *peer = &call->peer;

	if (kind == QUOTA_OF_USER)
		return peer->admin || id == peer->uid;
	return peer->admin || !quota_is_of_group(kind) || id == peer->gid ||
	       groups_have(&peer->groups, id);
}

void api_get_quotas(struct call *call, const char *name)
{
	const struct quotas *quotas = &call->node->quotas;
	const struct store_quota defaults = {.kind = QUOTA_OF_DEFAULTS, .quota = quotas->defaults};
	json_t *list = json_array();

	for (const struct quota_entry *e = quotas->first; e; e = e->next)
		if (may_see(call, e->stored.kind, e->stored.id))
			json_array_append_new(list, quota_json(call->node, &e->stored));
	if (memcmp(&defaults.quota, &quota_none, sizeof(quota_none)) != 0)
		json_array_append_new(list, quota_json(call->node, &defaults));
	call_reply(call, HTTP_STATUS_OK, list);
}

void api_get_quota(struct call *call, const char *name)
{
	enum quota_kind kind = kind_of(call);
	struct store_quota wanted = {.kind = kind};

	if (!id_find(call, kind, name, &wanted.id))
		return;
	if (!may_see(call, kind, wanted.id)) {
		answer_failed(call, HTTP_STATUS_FORBIDDEN, EXIT_CODE_NOT_PERMITTED,
			      "the quota of %s %.64s is shown to %s, root and members of group "
			      "carve",
			      quota_is_of_group(kind) ? "group" : "user", name,
			      quota_is_of_group(kind) ? "its members" : "that user");
		return;
	}
	wanted.quota = quotas_get(&call->node->quotas, kind, wanted.id);
	call_reply(call, HTTP_STATUS_OK, quota_json(call->node, &wanted));
}

/* ---- setting ----------------------------------------------------------------------------- */

/* All fields that are named; the others stay as they are in *quota_at. */
static int quota_parse(const json_t *root, struct quota *quota_at, struct error *err)
{
	struct quota quota = *quota_at;
	const char *key;
	json_t *value;

	if (!json_is_object(root))
		return error_set(err, EXIT_CODE_USAGE, "the body is not a JSON object");
	json_object_foreach((json_t *)root, key, value)
	{
		const struct record_field *field = record_find(quota_fields, key);
		int rc = field ? record_take(field, value, &quota, err)
			       : record_unknown(quota_fields, SIZE_MAX, "field", "", key, err);

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

static void record(struct call *call, const struct store_quota *quota, const struct quota *before)
{
	char subject[NAMES_SIZE + 16], old[QUOTA_FIELDS_TEXT_SIZE], new[QUOTA_FIELDS_TEXT_SIZE];
	const char *name = quota_fields_owner(quota->kind, quota->id);

	if (!strcmp(quota_fields_text(before, old), quota_fields_text(&quota->quota, new)))
		return;
	snprintf(subject, sizeof(subject), "%s%s%s", event_subjects[quota->kind], *name ? " " : "",
		 name);
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

/* Sets the limits that the body names; the others stay, or with `whole` are none. */
static void change(struct call *call, const char *name, bool whole)
{
	enum quota_kind kind = kind_of(call);
	struct store_quota wanted = {.kind = kind};
	struct error err = {0};

	if (!admin_or_answer(call) || !id_find(call, kind, name, &wanted.id))
		return;
	json_t *root = answer_body(call, &err);
	wanted.quota = whole ? quota_none : quotas_get(&call->node->quotas, kind, wanted.id);
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
	struct store_quota wanted = {.kind = kind_of(call), .quota = quota_none};

	if (admin_or_answer(call) && id_find(call, wanted.kind, name, &wanted.id))
		set(call, &wanted);
}
