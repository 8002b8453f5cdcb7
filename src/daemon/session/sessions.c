#include "daemon/session/sessions.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "daemon/session/session.h"
#include "daemon/session/session_private.h"

void sessions_begin(struct sessions *sessions, uint32_t most)
{
	budget_begin(&sessions->watched, WATCHED_MAX);
	budget_begin_any(&sessions->living, most);
	uv_timer_init(sessions->loop, &sessions->reap);
	sessions->reap.data = sessions;
}

static uint32_t id_bucket(const char *id)
{
	uint32_t hash = 2166136261u;

	for (; *id; id++)
		hash = (hash ^ (unsigned char)*id) * 16777619u;
	return hash % SESSIONS_BUCKETS;
}

struct session *session_find(const struct sessions *sessions, const char *id)
{
	struct session *s = sessions->by_id[id_bucket(id)];

	while (s && strcmp(s->record.id, id) != 0)
		s = s->next_id;
	return s;
}

struct session *session_current(const struct sessions *sessions, uid_t uid)
{
	struct session *s = sessions->current[uid % SESSIONS_BUCKETS];

	while (s && s->record.uid != uid)
		s = s->next_current;
	return s;
}

struct session *session_named(const struct sessions *sessions, uid_t uid, const char *name)
{
	struct session *s = *name ? sessions->first : NULL;

	while (s && (s->record.uid != uid || strcmp(s->record.name, name) != 0))
		s = s->next;
	return s;
}

void sessions_set_timed(struct session *s)
{
	s->sessions->timed_count += !s->timed;
	s->timed = true;
}

void sessions_insert(struct sessions *sessions, struct session *s)
{
	struct session **by_id = &sessions->by_id[id_bucket(s->record.id)];
	struct session **current = &sessions->current[s->record.uid % SESSIONS_BUCKETS];

	s->next_id = *by_id;
	*by_id = s;
	if (store_session_is_current(&s->record)) {
		s->next_current = *current;
		*current = s;
	}
	s->next = sessions->first;
	if (s->next)
		s->next->previous = s;
	sessions->first = s;
	sessions->count++;
}

void sessions_remove(struct sessions *sessions, struct session *s)
{
	struct session **at;

	for (at = &sessions->by_id[id_bucket(s->record.id)]; *at != s; at = &(*at)->next_id)
		;
	*at = s->next_id;
	for (at = &sessions->current[s->record.uid % SESSIONS_BUCKETS]; *at && *at != s;
	     at = &(*at)->next_current)
		;
	if (*at)
		*at = s->next_current;
	for (at = &sessions->attached; books_exist(&s->books) && *at && *at != s;
	     at = &(*at)->next_attached)
		;
	if (*at == s)
		*at = s->next_attached;
	if (s->next)
		s->next->previous = s->previous;
	*(s->previous ? &s->previous->next : &sessions->first) = s->next;
	sessions->count--;
	sessions->timed_count -= s->timed;
}

void session_make_id(const struct sessions *sessions, char ret[static STORE_ID_SIZE])
{
	/* Without letters and digits that look alike. */
	static const char letters[32] = "abcdefghjkmnpqrstuvwxyz23456789x";
	unsigned char random[6];

	do {
		if (getrandom(random, sizeof(random), 0) != sizeof(random))
			memset(random, 0, sizeof(random));
		snprintf(ret, STORE_ID_SIZE, "s-%c%c%c%c%c%c", letters[random[0] % 31],
			 letters[random[1] % 31], letters[random[2] % 31], letters[random[3] % 31],
			 letters[random[4] % 31], letters[random[5] % 31]);
	} while (session_find(sessions, ret));
}

void sessions_free(struct sessions *sessions)
{
	for (struct session *s = sessions->first, *next; s; s = next) {
		next = s->next;
		session_free(s);
	}
	sessions->first = sessions->attached = NULL;
	memset(sessions->by_id, 0, sizeof(sessions->by_id));
	memset(sessions->current, 0, sizeof(sessions->current));
	sessions->count = sessions->timed_count = 0;
	budget_free(&sessions->living);
	session_promises_free(sessions);
}
