#include "daemon/session/session.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/macros.h"
#include "base/units.h"
#include "daemon/gpu/pool.h"
#include "daemon/host/log.h"
#include "daemon/host/privileges.h"
#include "daemon/lease/leases.h"
#include "daemon/session/process.h"
#include "daemon/session/session_hooks.h"
#include "daemon/session/sessions.h"

struct drain {
	struct drain *next;
	int gpu;
	uint64_t bytes;
	uint64_t sample; /* number of the first sample that started after the end */
};

void sessions_begin(struct sessions *sessions, uint32_t most)
{
	crowd_begin(&sessions->watched, WATCHED_MAX);
	crowd_begin_any(&sessions->living, most);
	uv_timer_init(sessions->loop, &sessions->reap);
	sessions->reap.data = sessions;
}

/* ---- tables ------------------------------------------------------------------------------ */

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

struct session *session_of_user(const struct sessions *sessions, uid_t uid)
{
	struct session *s = sessions->by_user[uid % SESSIONS_BUCKETS];

	while (s && s->record.uid != uid)
		s = s->next_user;
	return s;
}

struct session *session_named(const struct sessions *sessions, uid_t uid, const char *name)
{
	struct session *s = *name ? sessions->first : NULL;

	while (s && (s->record.uid != uid || strcmp(s->record.name, name) != 0))
		s = s->next;
	return s;
}

struct session *session_named_once(const struct sessions *sessions, const char *name)
{
	struct session *found = NULL;

	for (struct session *s = *name ? sessions->first : NULL; s; s = s->next) {
		if (strcmp(s->record.name, name) != 0)
			continue;
		if (found)
			return NULL;
		found = s;
	}
	return found;
}

/* Sessions that the clock ends are counted, so that the tick knows how fine it has to be. */
static void set_timed(struct session *s)
{
	s->sessions->timed_count += !s->timed;
	s->timed = true;
}

static void table_insert(struct sessions *sessions, struct session *s)
{
	struct session **by_id = &sessions->by_id[id_bucket(s->record.id)];
	struct session **by_user = &sessions->by_user[s->record.uid % SESSIONS_BUCKETS];

	s->next_id = *by_id;
	*by_id = s;
	if (!s->record.ephemeral && !s->record.kept) {
		s->next_user = *by_user;
		*by_user = s;
	}
	s->next = sessions->first;
	if (s->next)
		s->next->previous = s;
	sessions->first = s;
	sessions->count++;
}

static void table_remove(struct sessions *sessions, struct session *s)
{
	struct session **at;

	for (at = &sessions->by_id[id_bucket(s->record.id)]; *at != s; at = &(*at)->next_id)
		;
	*at = s->next_id;
	for (at = &sessions->by_user[s->record.uid % SESSIONS_BUCKETS]; *at && *at != s;
	     at = &(*at)->next_user)
		;
	if (*at)
		*at = s->next_user;
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

/* ---- promises ---------------------------------------------------------------------------- */

static void share_change(struct sessions *sessions, int position, uint32_t more, uint32_t less)
{
	struct pool_gpu *gpu = &sessions->pool->gpu[position];

	if (more == less)
		return;
	gpu->share += more;
	gpu->share -= less;
	leases_promise(sessions->leases, (uint32_t)position, (uint32_t)MIN(gpu->share, SHARE_ONE));
}

/* A session with several instances of a GPU is one on it. */
static bool is_first_there(const struct session *s, uint32_t position)
{
	for (uint32_t i = 0; i < position; i++)
		if (s->pool_gpu[i] == s->pool_gpu[position])
			return false;
	return true;
}

static void promise_add(struct session *s, uint32_t position)
{
	if (s->pool_gpu[position] < 0)
		return;
	struct pool_gpu *gpu = &s->sessions->pool->gpu[s->pool_gpu[position]];
	gpu->sessions += is_first_there(s, position);
	/* An instance is nothing of what the GPU itself can give. */
	if (s->record.gpu[position].instance[0])
		return;
	gpu->promised += s->record.gpu[position].bytes;
	share_change(s->sessions, s->pool_gpu[position], s->record.compute, 0);
}

/* Memory that processes held may still be the driver's: the promise stays until figures are newer.
 */
static bool drain_add(struct session *s, uint32_t position, uint64_t sample)
{
	struct drain *drain = malloc(sizeof(*drain));

	if (!drain)
		return false;
	*drain = (struct drain){
		.next = s->sessions->drains,
		.gpu = s->pool_gpu[position],
		.bytes = s->record.gpu[position].bytes,
		.sample = sample,
	};
	s->sessions->drains = drain;
	return true;
}

static void promises_drop(struct session *s)
{
	struct pool *pool = s->sessions->pool;
	bool drains = books_exist(&s->books);
	uint64_t sample = drains ? pool_refresh(pool, POOL_ALL) : 0;

	for (uint32_t i = 0; i < s->record.gpu_count; i++) {
		if (s->pool_gpu[i] < 0)
			continue;
		struct pool_gpu *gpu = &pool->gpu[s->pool_gpu[i]];
		gpu->sessions -= is_first_there(s, i);
		if (s->record.gpu[i].instance[0])
			continue;
		share_change(s->sessions, s->pool_gpu[i], 0, s->record.compute);
		if (!drains || !drain_add(s, i, sample))
			gpu->promised -= s->record.gpu[i].bytes;
	}
}

bool session_drain(struct sessions *sessions)
{
	bool any = false;

	for (struct drain **at = &sessions->drains; *at;) {
		struct drain *drain = *at;

		if (drain->sample > sessions->pool->done) {
			at = &drain->next;
			continue;
		}
		sessions->pool->gpu[drain->gpu].promised -= drain->bytes;
		*at = drain->next;
		free(drain);
		any = true;
	}
	return any;
}

/* ---- making ------------------------------------------------------------------------------ */

static void session_free(struct session *s)
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
	s->record.gpu = calloc(record->gpu_count, sizeof(*record->gpu));
	s->pool_gpu = calloc(record->gpu_count, sizeof(*s->pool_gpu));
	if (!s->record.gpu || !s->pool_gpu) {
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
	table_insert(s->sessions, s);
	s->owner = crowd_add(&s->sessions->living, s->record.uid);
	if (s->record.ends_at)
		set_timed(s);
	for (uint32_t i = 0; i < s->record.gpu_count; i++)
		promise_add(s, i);
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
			.context_bytes = gpu->context_bytes,
		};
		memcpy(gpus[i].uuid, gpu->info.uuid, sizeof(gpus[i].uuid));
		if (s->record.gpu[i].instance[0]) {
			gpus[i].uuid_text = s->record.gpu[i].instance;
			gpus[i].context_bytes = 0;
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
			share_change(s->sessions, s->pool_gpu[i], compute, compute_before);
		}
	}
	limits_follow(s, s->record.gpu_count);
	if (rc < 0) {
		s->record.compute = compute_before;
		s->record.tolerance_applied = tolerance_before;
	} else {
		if (s->lease)
			leases_share(s->sessions->leases, s->lease, compute);
		s->sessions->hooks->lessened(s->sessions->context);
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
			s->sessions->pool->gpu[s->pool_gpu[i]].sessions -= is_first_there(s, i);
	for (uint32_t i = 0; i < count; i++)
		s->pool_gpu[i] = pool_find(s->sessions->pool, gpus[i].uuid_text);
	for (uint32_t i = 0; i < count; i++)
		promise_add(s, i);
	limits_name(s);
	s->sessions->hooks->instances_left(s);
	return 0;
}

/* ---- the end ----------------------------------------------------------------------------- */

static void listeners_call(struct session *s)
{
	while (s->listeners) {
		struct session_listener *listener = s->listeners;

		s->listeners = listener->next;
		listener->cb(listener->arg, s->record.id);
		free(listener);
	}
}

/* The end is on disk before anybody hears of it: who comes after a daemon that died has to know it.
 * Negative: it cannot be kept; the session goes on ending, and this is tried again. */
static int end_record(struct session *s)
{
	struct store *store = s->sessions->store;
	int rc = store_session_end(store, &s->record);

	if (rc == 0)
		return 0;
	if (!s->record_at_ns)
		log_event(LOG_ERROR, "store.failed id=%s error=\"%s\"", s->record.id,
			  strerrordesc_np(-rc));
	int kept = store_session_end_later(store, &s->record);
	/* A damaged database is not read again: there is nobody who would take it for living. */
	if (kept == 0 || rc == -EUCLEAN)
		return 0;
	s->record_at_ns = now_monotonic_ns() + SESSION_RECORD_EVERY_NS;
	return rc;
}

static void session_finish(struct session *s)
{
	struct sessions *sessions = s->sessions;

	s->record.ended = now_realtime_ns();
	s->record.received = sessions->hooks->received(s);
	for (uint32_t i = 0; i < s->record.gpu_count; i++)
		s->record.gpu[i].peak = session_peak(s, i);
	if (end_record(s) < 0)
		return;
	log_event(LOG_INFO, "session.ended id=%s uid=%u reason=\"%s\"", s->record.id, s->record.uid,
		  s->record.reason);
	sessions->hooks->recorded(s);
	table_remove(sessions, s);
	crowd_leave(&sessions->living, s->owner);
	promises_drop(s);
	sessions->hooks->instances_left(s);
	listeners_call(s);
	session_free(s);
	sessions->hooks->ended(sessions->context);
}

/* A process of it is another user's by now, as by a set-user-ID program: the session goes on ending
 * until that one ends by itself, and whoever waits for its end hears of it. */
static void on_signalled(void *context, const char *session, struct process_id process, int rc)
{
	struct sessions *sessions = context;
	struct session *s = rc == -EPERM ? session_find(sessions, session) : NULL;

	if (!s || s->state != SESSION_KILLING)
		return;
	log_event(LOG_WARNING, "session.not_ended id=%s uid=%u pid=%d", s->record.id, s->record.uid,
		  (int)process.pid);
	s->refused_pid = process.pid;
	listeners_call(s);
}

_Static_assert(STORE_ID_SIZE <= PRIVILEGES_SESSION_SIZE, "a session ID does not fit");

static void session_signal(const struct session *s, struct process_id process, int signal)
{
	privileges_signal(s->sessions->privileges, s->record.uid, s->record.id, process, signal,
			  signal == SIGKILL ? on_signalled : NULL, s->sessions);
}

static void signal_all(const struct session *s, int signal)
{
	for (const struct process *p = s->processes; p; p = p->next)
		if (!process_is_dead(p))
			session_signal(s, p->id, signal);
	for (const struct holder *h = s->holders; h; h = h->next)
		if (h->unread)
			session_signal(s, h->process, signal);
}

void session_commands_end(const struct session *s, const struct process_id *but)
{
	for (const struct holder *h = s->holders; h; h = h->next)
		if (h->command && !(but && process_descends_from(*but, h->process)))
			session_signal(s, h->process, SIGTERM);
}

static void state_move(struct session *s, enum session_event event)
{
	enum session_state from = s->state;

	if (!session_state_next(from, event, &s->state))
		log_event(LOG_ERROR, "session.impossible id=%s state=%d event=%d", s->record.id,
			  (int)from, (int)event);
}

void session_end(struct session *s, const char *reason)
{
	bool begins = s->state == SESSION_ACTIVE;

	state_move(s, session_live(s) ? SESSION_EVENT_END : SESSION_EVENT_EMPTY);
	if (!begins) {
		if (s->state == SESSION_KILLING)
			signal_all(s, SIGKILL); /* the last one was in vain */
		return;
	}
	set_timed(s);
	snprintf(s->record.reason, sizeof(s->record.reason), "%s", reason);
	/* Nothing more is granted from here on. */
	for (uint32_t i = 0; books_exist(&s->books) && i < s->record.gpu_count; i++)
		s->books.limits->gpu[i].limit_bytes = 0;
	if (s->state == SESSION_TERMINATING) {
		s->kill_at_ns = now_monotonic_ns() + SESSION_KILL_AFTER_NS;
		signal_all(s, SIGTERM);
		return;
	}
	session_finish(s);
}

void session_continue_end(struct session *s)
{
	uint64_t now = s->state == SESSION_ACTIVE ? 0 : now_monotonic_ns();

	if (!now)
		return;
	if (!session_live(s)) {
		state_move(s, SESSION_EVENT_EMPTY);
		if (now >= s->record_at_ns)
			session_finish(s);
	} else if (s->state == SESSION_TERMINATING && now >= s->kill_at_ns) {
		state_move(s, SESSION_EVENT_DEADLINE);
		signal_all(s, SIGKILL);
	}
}

int session_listen(struct session *s, session_end_cb cb, void *arg)
{
	struct session_listener *listener = malloc(sizeof(*listener));

	if (!listener)
		return -ENOMEM;
	*listener = (struct session_listener){.next = s->listeners, .cb = cb, .arg = arg};
	s->listeners = listener;
	return 0;
}

void session_unlisten(struct sessions *sessions, void *arg)
{
	for (struct session *s = sessions->first; s; s = s->next)
		for (struct session_listener **at = &s->listeners; *at;) {
			struct session_listener *listener = *at;

			if (listener->arg != arg) {
				at = &listener->next;
				continue;
			}
			*at = listener->next;
			free(listener);
		}
}

void sessions_free(struct sessions *sessions)
{
	for (struct session *s = sessions->first, *next; s; s = next) {
		next = s->next;
		session_free(s);
	}
	sessions->first = sessions->attached = NULL;
	memset(sessions->by_id, 0, sizeof(sessions->by_id));
	memset(sessions->by_user, 0, sizeof(sessions->by_user));
	sessions->count = sessions->timed_count = 0;
	crowd_free(&sessions->living);
	while (sessions->drains) {
		struct drain *drain = sessions->drains;

		sessions->drains = drain->next;
		free(drain);
	}
}

const char *session_unused_reason(const struct session *s, const char *reason,
				  char buf[static STORE_REASON_SIZE])
{
	char held[UNITS_TEXT_SIZE];

	if (s->record.ephemeral && s->slicing_killed)
		return "ended by slicing_policy: it took GPU time beyond its turns";
	if (!s->record.ephemeral || !s->over_ended)
		return reason;
	snprintf(buf, STORE_REASON_SIZE, "ended by over_policy: %s held beyond the slice",
		 units_format_bytes(s->record.over_killed_bytes, held));
	return buf;
}

void session_slicing_killed(struct session *s, pid_t pid)
{
	s->slicing_killed++;
	log_event(LOG_WARNING, "session.slicing_killed id=%s uid=%u pid=%d", s->record.id,
		  s->record.uid, (int)pid);
}

void session_over_killed(struct session *s, pid_t pid)
{
	s->record.over_killed++;
	s->record.over_killed_bytes = MAX(s->record.over_killed_bytes, s->over_bytes);
	log_event(LOG_WARNING, "session.over_killed id=%s pid=%d", s->record.id, (int)pid);
}
