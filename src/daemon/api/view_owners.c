#include "daemon/api/view_owners.h"

#include <stdlib.h>

#include "base/units.h"
#include "daemon/host/names.h"
#include "daemon/node.h"
#include "daemon/session/session.h"

/* The most users that an answer names. To compare groups takes some microseconds for each. */
#define OWNERS_MAX 64u
/* The entry of all others, behind those. */
#define OTHERS OWNERS_MAX

struct held {
	uint64_t bytes;
	int64_t since; /* CLOCK_REALTIME, ns */
	uint32_t sessions;
};

struct view_owners {
	uint32_t count;
	struct {
		uid_t uid;
		bool shown;
	} user[OWNERS_MAX];
	uint32_t gpus;
	struct held held[][OWNERS_MAX + 1]; /* one row for each GPU of the pool */
};

bool view_shows_owner(const struct node *node, const struct peer *viewer, uid_t owner, gid_t gid,
		      const struct groups *groups)
{
	if (peer_permitted(viewer, owner))
		return true;
	switch (node->config.show_owners) {
	case SHOW_OWNERS_ALL:
		return true;
	case SHOW_OWNERS_GROUP:
		return peer_shares_group(viewer, gid, groups);
	default:
		return false;
	}
}

/* The entry of a session's owner. */
static uint32_t owner_find(struct view_owners *owners, const struct node *node,
			   const struct peer *viewer, const struct store_session *record)
{
	uint32_t i = 0;

	while (i < owners->count && owners->user[i].uid != record->uid)
		i++;
	if (i == OWNERS_MAX)
		return OTHERS;
	if (i == owners->count) {
		owners->user[i].uid = record->uid;
		owners->user[i].shown =
			view_shows_owner(node, viewer, record->uid, record->gid, &record->groups);
		owners->count++;
	}
	return owners->user[i].shown ? i : OTHERS;
}

struct view_owners *view_owners_read(const struct node *node, const struct peer *viewer)
{
	struct view_owners *owners =
		calloc(1, sizeof(*owners) + node->pool.count * sizeof(owners->held[0]));

	if (!owners)
		return NULL;
	owners->gpus = node->pool.count;
	for (const struct session *s = node->sessions.first; s; s = s->next) {
		uint32_t at = owner_find(owners, node, viewer, &s->record);

		for (uint32_t i = 0; i < s->record.gpu_count; i++) {
			if (s->pool_gpu[i] < 0)
				continue;
			struct held *held = &owners->held[s->pool_gpu[i]][at];

			held->bytes += s->record.gpu[i].bytes;
			held->sessions++;
			if (!held->since || s->record.created < held->since)
				held->since = s->record.created;
		}
	}
	return owners;
}

static json_t *held_json(const struct view_owners *owners, const struct held *held, uint32_t at)
{
	json_t *json = json_pack("{s:n, s:i, s:I, s:n}", "owner", "sessions", (int)held->sessions,
				 "vram_bytes", (json_int_t)held->bytes, "since");
	char since[UNITS_TEXT_SIZE];

	if (at == OTHERS)
		return json;
	json_object_set_new(json, "owner",
			    json_string(names_of(NAMES_OF_USERS, owners->user[at].uid)));
	json_object_set_new(json, "since",
			    json_string(units_format_time(held->since, UNITS_MILLISECONDS, since)));
	return json;
}

json_t *view_owners_json(const struct view_owners *owners, uint32_t gpu)
{
	json_t *list = json_array();
	bool told[OWNERS_MAX + 1] = {0};

	if (!owners || gpu >= owners->gpus)
		return list;
	const struct held *held = owners->held[gpu];
	for (;;) {
		uint32_t next = OTHERS + 1;

		for (uint32_t i = 0; i < owners->count; i++)
			if (!told[i] && held[i].sessions &&
			    (next > OTHERS || held[i].bytes > held[next].bytes))
				next = i;
		if (next > OTHERS)
			break;
		told[next] = true;
		json_array_append_new(list, held_json(owners, &held[next], next));
	}
	if (held[OTHERS].sessions)
		json_array_append_new(list, held_json(owners, &held[OTHERS], OTHERS));
	return list;
}

void view_owners_free(struct view_owners *owners)
{
	free(owners);
}
