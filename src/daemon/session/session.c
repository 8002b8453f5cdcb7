#include "daemon/session/session.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/macros.h"
#include "daemon/gpu/pool.h"
#include "daemon/lease/leases.h"
#include "daemon/session/process.h"
#include "daemon/session/session_hooks.h"
#include "daemon/session/session_private.h"
#include "daemon/session/sessions.h"

/* ---- making ------------------------------------------------------------------------------ */

void session_free(struct session *s)
{
	if (!s)
		return;
	session_holders_free(s);
	s->sessions->hooks->freeing(s);
	while (s->processes)
		process_free(s->processes);
	while (s->listeners) {
		struct session_listener *listener = s->listeners;

		s->listeners = listener->next;
		free(listener);
	}
	s->sessions->hooks->freed(s);
	close_fd(&s->wake_fd);
	books_clear(&s->books);
	free(s->pool_gpu);
	free(s->used_ns);
	free(s->record.gpu);
	free(s);
}

static struct session *session_new(struct sessions *sessions, const struct store_session *record)
{
	struct session *s = calloc(1, sizeof(*s));

	if (!s)
		return NULL;
	s->sessions = sessions;
	s->record = *record;
	s->books = BOOKS_NONE;
	s->wake_fd = -1;
	idle_begin(&s->idle.clock, now_monotonic_ns());
	s->record.gpu = calloc(record->gpu_count, sizeof(*record->gpu));
	s->pool_gpu = calloc(record->gpu_count, sizeof(*s->pool_gpu));
	s->used_ns = calloc(record->gpu_count, sizeof(*s->used_ns));
	if (!s->record.gpu || !s->pool_gpu || !s->used_ns) {
		session_free(s);
		return NULL;
	}
	for (uint32_t i = 0; i < record->gpu_count; i++) {
		s->record.gpu[i] = record->gpu[i];
		s->pool_gpu[i] = pool_find(sessions->pool, record->gpu[i].uuid_text);
	}
	return s;
}

static void session_insert(struct session *s)
{
	sessions_insert(s->sessions, s);
	s->owner = budget_add(&s->sessions->living, s->record.uid);
	if (s->record.ends_at)
		sessions_set_timed(s);
	for (uint32_t i = 0; i < s->record.gpu_count; i++)
		session_promise_add(s, i);
}

int session_create(struct sessions *sessions, const struct store_session *record,
		   const struct process_id *owner, struct session **ret)
{
	struct session *s = session_new(sessions, record);

	if (!s)
		return -ENOMEM;
	int rc = owner ? session_holder_add(s, owner) : 0;
	if (rc == 0)
		rc = store_session_add(sessions->store, &s->record, owner);
	if (rc < 0) {
		session_free(s);
		return rc;
	}
	s->counted_from = s->record.created;
	session_insert(s);
	*ret = s;
	return 0;
}

int session_restore(struct sessions *sessions, const struct store_session *record,
		    struct session **ret)
{
	struct session *s = session_new(sessions, record);

	if (!s)
		return -ENOMEM;
	int rc = store_inherited_get(sessions->store, record->id, &s->over_inherited_bytes);
	if (rc < 0) {
		session_free(s);
		return rc;
	}
	s->over_inherited_stored = s->over_inherited_bytes;
	s->over_killed_stored = s->record.over_killed;
	s->counted_from = now_realtime_ns();
	session_insert(s);
	*ret = s;
	return 0;
}

/* ---- the ledger -------------------------------------------------------------------------- */

void session_set_attached(struct session *s)
{
	s->next_attached = s->sessions->attached;
	s->sessions->attached = s;
	s->sessions->hooks->attached(s);
}

bool session_is_one_of_several(const struct session *s, uint32_t position)
{
	bool several = false;

	for (uint32_t i = 0; s->record.gpu[position].instance[0] && i < s->record.gpu_count; i++)
		several |= i != position && s->pool_gpu[i] == s->pool_gpu[position];
	return several;
}

/* In an instance the driver's figures tell it, except in one of several. */
static uint64_t context_bytes(const struct session *s, uint32_t position)
{
	if (!s->record.gpu[position].instance[0])
		return s->sessions->pool->gpu[s->pool_gpu[position]].context_bytes;
	return session_is_one_of_several(s, position)
		       ? s->sessions->hooks->instance_context(s, position)
		       : 0;
}

int session_books(struct session *s)
{
	struct books_gpu gpus[LEDGER_GPUS_MAX];

	if (books_exist(&s->books))
		return 0;
	if (session_ledger(s) == SESSION_LEDGER_LOST)
		return -EBUSY;
	for (uint32_t i = 0; i < s->record.gpu_count; i++) {
		if (s->pool_gpu[i] < 0)
			return -ENODEV;
		const struct pool_gpu *gpu = &s->sessions->pool->gpu[s->pool_gpu[i]];
		gpus[i] = (struct books_gpu){
			.uuid_text = gpu->info.uuid_text,
			.pci_bus_id = gpu->info.pci_bus_id,
			.limit_bytes = s->record.gpu[i].bytes,
			.context_bytes = context_bytes(s, i),
		};
		memcpy(gpus[i].uuid, gpu->info.uuid, sizeof(gpus[i].uuid));
		if (s->record.gpu[i].instance[0]) {
			gpus[i].uuid_text = s->record.gpu[i].instance;
			if (gpu_uuid_parse(gpus[i].uuid_text, gpus[i].uuid) < 0)
				return -EINVAL;
		}
	}
	int rc = books_create(&s->books, s->record.id, gpus, s->record.gpu_count);
	if (rc < 0)
		return rc;
	s->sessions->hooks->ledger_made(s);
	session_set_attached(s);
	s->sessions->hooks->ledger_used(s);
	return 0;
}

uint64_t session_used(const struct session *s, uint32_t position)
{
	return books_exist(&s->books) ? ledger_committed(&s->books.ledger, position) : 0;
}

uint64_t session_peak(const struct session *s, uint32_t position)
{
	uint64_t charged =
		books_exist(&s->books) ? ledger_gpu(&s->books.ledger, position)->peak_bytes : 0;

	/* The latter was held before there were books, by strays. */
	return MAX(charged, s->record.gpu[position].peak);
}

uint32_t session_live(const struct session *s)
{
	uint32_t live = session_holders_unread(s);

	for (const struct process *p = s->processes; p; p = p->next)
		live += !process_is_dead(p);
	return live;
}

bool session_is_used(const struct session *s)
{
	bool command = false;

	for (const struct holder *h = s->holders; h; h = h->next)
		command |= h->command;
	return command || session_live(s);
}

const char *session_stamp(const struct store_session *record, char buf[static ATTACH_STAMP_SIZE])
{
	int used = snprintf(buf, ATTACH_STAMP_SIZE, "%u", record->uid);

	for (uint32_t i = 0; i < record->gpu_count && used < (int)ATTACH_STAMP_SIZE; i++) {
		const struct store_gpu *gpu = &record->gpu[i];

		used += snprintf(buf + used, ATTACH_STAMP_SIZE - (size_t)used, "%c%s",
				 i ? ',' : ':', gpu->instance[0] ? gpu->instance : gpu->uuid_text);
	}
	return buf;
}

/* The limits of the first GPUs are what is recorded. */
static void limits_follow(struct session *s, uint32_t count)
{
	for (uint32_t i = 0; i < count && books_exist(&s->books); i++)
		s->books.limits->gpu[i].limit_bytes = s->record.gpu[i].bytes;
}

/* A session that shrinks has its new limit before that is recorded: recording takes time, in which
 * processes go on allocating. */
static int limits_shrink(struct session *s, const uint64_t *bytes)
{
	for (uint32_t i = 0; i < s->record.gpu_count && books_exist(&s->books); i++) {
		int rc = bytes[i] < s->record.gpu[i].bytes
				 ? ledger_shrink(&s->books.ledger, s->books.limits, i, bytes[i])
				 : 0;
		if (rc < 0) {
			limits_follow(s, i);
			return rc;
		}
	}
	return 0;
}

int session_resize(struct session *s, const uint64_t *bytes, uint32_t compute)
{
	int rc = limits_shrink(s, bytes);

	if (rc < 0)
		return rc;
	struct store_gpu before[PLACE_GPUS_MAX];
	uint32_t compute_before = s->record.compute;
	bool tolerance_before = s->record.tolerance_applied;

	s->sessions->hooks->resizing(s);
	s->record.compute = compute;
	/* The new request is granted as it is asked. */
	s->record.tolerance_applied = false;
	for (uint32_t i = 0; i < s->record.gpu_count; i++) {
		before[i] = s->record.gpu[i];
		s->record.gpu[i].bytes = s->record.gpu[i].requested = bytes[i];
	}
	rc = store_session_resize(s->sessions->store, &s->record);
	for (uint32_t i = 0; i < s->record.gpu_count; i++) {
		if (rc < 0) {
			s->record.gpu[i] = before[i];
			continue;
		}
		if (s->pool_gpu[i] >= 0) {
			s->sessions->pool->gpu[s->pool_gpu[i]].promised +=
				bytes[i] - before[i].bytes;
			session_promise_share(s->sessions, s->pool_gpu[i], compute, compute_before);
		}
	}
	limits_follow(s, s->record.gpu_count);
	if (rc < 0) {
		s->record.compute = compute_before;
		s->record.tolerance_applied = tolerance_before;
	} else {
		if (s->lease)
			leases_share(s->sessions->leases, s->lease, compute);
		s->sessions->hooks->shrunk(s->sessions->context);
		s->sessions->hooks->resized(s);
	}
	return rc;
}

/* Nobody has the limits mapped. */
static void limits_name(struct session *s)
{
	for (uint32_t i = 0; books_exist(&s->books) && i < s->record.gpu_count; i++) {
		struct ledger_limit *limit = &s->books.limits->gpu[i];
		const struct pool_gpu *gpu = &s->sessions->pool->gpu[s->pool_gpu[i]];

		limit->limit_bytes = s->record.gpu[i].bytes;
		limit->context_bytes = context_bytes(s, i);
		snprintf(limit->uuid_text, sizeof(limit->uuid_text), "%s",
			 s->record.gpu[i].instance);
		snprintf(limit->pci_bus_id, sizeof(limit->pci_bus_id), "%s", gpu->info.pci_bus_id);
		(void)gpu_uuid_parse(limit->uuid_text, limit->uuid);
	}
}

int session_move(struct session *s, const struct store_gpu *gpus)
{
	struct store_gpu before[PLACE_GPUS_MAX];
	uint32_t count = s->record.gpu_count;

	s->sessions->hooks->resizing(s);
	memcpy(before, s->record.gpu, count * sizeof(*before));
	memcpy(s->record.gpu, gpus, count * sizeof(*gpus));
	for (uint32_t i = 0; i < count; i++)
		s->record.gpu[i].peak = before[i].peak;
	int rc = store_session_move(s->sessions->store, &s->record);
	if (rc < 0) {
		memcpy(s->record.gpu, before, count * sizeof(*before));
		return rc;
	}
	for (uint32_t i = 0; i < count; i++)
		if (s->pool_gpu[i] >= 0)
			s->sessions->pool->gpu[s->pool_gpu[i]].sessions -=
				session_promise_first(s, i);
	for (uint32_t i = 0; i < count; i++)
		s->pool_gpu[i] = pool_find(s->sessions->pool, gpus[i].uuid_text);
	for (uint32_t i = 0; i < count; i++)
		session_promise_add(s, i);
	limits_name(s);
	s->sessions->hooks->instances_left(s);
	return 0;
}
