#include "daemon/api_quota.h"

#include <errno.h>
#include <grp.h>
#include <microhttpd.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/units.h"
#include "daemon/answer.h"
#include "daemon/http.h"
#include "daemon/node.h"
#include "daemon/quotas.h"
#include "daemon/waiting.h"

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

static int id_of(enum quota_kind kind, const char *name, uint32_t *ret)
{
	struct passwd user, *found_user = NULL;
	struct group group, *found_group = NULL;
	char buffer[4096];

	if (kind == QUOTA_OF_USER &&
	    getpwnam_r(name, &user, buffer, sizeof(buffer), &found_user) == 0 && found_user)
		*ret = user.pw_uid;
	else if (kind == QUOTA_OF_GROUP &&
		 getgrnam_r(name, &group, buffer, sizeof(buffer), &found_group) == 0 && found_group)
		*ret = group.gr_gid;
	else
		return number_parse(name, ret);
	return 0;
}

static json_t *name_of(enum quota_kind kind, uint32_t id)
{
	struct passwd user, *found_user = NULL;
	struct group group, *found_group = NULL;
	char buffer[4096], number[16];

	if (kind == QUOTA_OF_USER &&
	    getpwuid_r(id, &user, buffer, sizeof(buffer), &found_user) == 0 && found_user)
		return json_string(user.pw_name);
	if (kind == QUOTA_OF_GROUP &&
	    getgrgid_r(id, &group, buffer, sizeof(buffer), &found_group) == 0 && found_group)
		return json_string(group.gr_name);
	snprintf(number, sizeof(number), "%u", id);
	return json_string(number);
}

/* ---- showing ----------------------------------------------------------------------------- */

static json_t *limit_json(uint64_t limit)
{
	return limit == QUOTA_NONE ? json_null() : json_integer((json_int_t)limit);
}

static json_t *quota_json(const struct node *node, const struct store_quota *q)
{
	struct quota_use use = quotas_use(node, q->kind, q->id);

	return json_pack("{s:s, s:o, s:I, s:o, s:o, s:o, s:{s:I, s:I, s:I}}", "kind",
			 q->kind == QUOTA_OF_USER ? "user" : "group", "name",
			 name_of(q->kind, q->id), "id", (json_int_t)q->id, "vram_bytes",
			 limit_json(q->quota.vram_bytes), "sessions", limit_json(q->quota.sessions),
			 "gpus", limit_json(q->quota.gpus), "used", "vram_bytes",
			 (json_int_t)use.vram_bytes, "sessions", (json_int_t)use.sessions, "gpus",
			 (json_int_t)quota_gpus(use));
}

void api_get_quotas(struct call *call, const char *name)
{
	json_t *list = json_array();

	for (const struct quota_entry *e = call->node->quotas; e; e = e->next) {
		bool own = e->stored.id ==
			   (e->stored.kind == QUOTA_OF_USER ? call->peer.uid : call->peer.gid);

		if (own || call->peer.admin)
			json_array_append_new(list, quota_json(call->node, &e->stored));
	}
	call_reply(call, MHD_HTTP_OK, list);
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

/* All fields that are named; the others have no limit. */
static int quota_parse(const json_t *root, struct quota *ret, struct error *err)
{
	struct quota quota = {QUOTA_NONE, QUOTA_NONE, QUOTA_NONE};
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
			rc = error_set(err, EXIT_CODE_USAGE, "unknown field '%.64s'", key);
		if (rc < 0)
			return rc;
	}
	*ret = quota;
	return 0;
}

/* True where the caller may set quotas; else it is answered. */
static bool admin_or_answer(struct call *call)
{
	if (!call->peer.admin)
		answer_failed(call, MHD_HTTP_FORBIDDEN, EXIT_CODE_NOT_PERMITTED,
			      "quotas are set by root and members of group carve");
	return call->peer.admin;
}

static void set(struct call *call, enum quota_kind kind, const char *name,
		const struct quota *quota)
{
	struct store_quota wanted = {.kind = kind, .quota = *quota};

	if (id_of(kind, name, &wanted.id) < 0) {
		answer_failed(call, MHD_HTTP_NOT_FOUND, EXIT_CODE_USAGE, "there is no %s %.64s",
			      kind == QUOTA_OF_USER ? "user" : "group", name);
		return;
	}
	int rc = quotas_set(call->node, &wanted);
	if (rc < 0) {
		answer_failed(call, MHD_HTTP_CONFLICT, EXIT_CODE_FAILED,
			      "the quota cannot be recorded: %s", strerrordesc_np(-rc));
		return;
	}
	waiting_kick(call->node);
	call_reply(call, MHD_HTTP_OK, quota_json(call->node, &wanted));
}

static void put(struct call *call, enum quota_kind kind, const char *name)
{
	struct error err = {0};
	struct quota quota;

	if (!admin_or_answer(call))
		return;
	json_t *root = answer_body(call, &err);
	int rc = root ? quota_parse(root, &quota, &err) : -1;

	json_decref(root);
	if (rc < 0)
		call_reply_error(call, answer_status(&err), &err);
	else
		set(call, kind, name, &quota);
}

static const struct quota unlimited = {QUOTA_NONE, QUOTA_NONE, QUOTA_NONE};

void api_put_user_quota(struct call *call, const char *name)
{
	put(call, QUOTA_OF_USER, name);
}

void api_put_group_quota(struct call *call, const char *name)
{
	put(call, QUOTA_OF_GROUP, name);
}

void api_delete_user_quota(struct call *call, const char *name)
{
	if (admin_or_answer(call))
		set(call, QUOTA_OF_USER, name, &unlimited);
}

void api_delete_group_quota(struct call *call, const char *name)
{
	if (admin_or_answer(call))
		set(call, QUOTA_OF_GROUP, name, &unlimited);
}
