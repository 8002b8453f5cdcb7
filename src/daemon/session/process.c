#include "daemon/session/process.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/macros.h"
#include "daemon/gpu/pool.h"
#include "daemon/host/log.h"
#include "daemon/lease/leases.h"
#include "daemon/session/session.h"
#include "daemon/session/session_hooks.h"
#include "daemon/session/sessions.h"

/* Dead processes are looked for in the driver's lists this often at first, and ever less often. */
#define REAP_DELAY_MIN_MS 20
#define REAP_DELAY_MAX_MS 500
/* Where the driver does not answer, a dead process's memory is given back after this time anyway.
 */
#define REAP_GIVE_UP_NS 5000000000ull

static struct ledger *ledger_of(struct process *p)
{
	return &p->session->books.ledger;
}

uint64_t session_gpu_mask(const struct session *s)
{
	uint64_t mask = 0;

	for (uint32_t i = 0; i < s->record.gpu_count; i++)
		if (s->pool_gpu[i] >= 0)
			mask |= 1ull << s->pool_gpu[i];
	return mask;
}

/* ---- death ------------------------------------------------------------------------------- */

/* Its memory may come back at any moment. */
static bool is_awaited(const struct process *p)
{
	if (process_is_dead(p))
		return p->life == PROCESS_LIFE_RELEASING;
	return p->ending_ns && now_monotonic_ns() - p->ending_ns < PROCESS_ENDING_MOST_NS;
}

static void on_reap_timer(uv_timer_t *timer)
{
	struct sessions *sessions = timer->data;
	uint64_t mask = 0;

	for (struct session *s = sessions->attached; s; s = s->next_attached)
		for (struct process *p = s->processes; p; p = p->next)
			if (is_awaited(p))
				mask |= session_gpu_mask(s);
	sessions->reap_delay_ms = MIN(sessions->reap_delay_ms * 2, REAP_DELAY_MAX_MS);
	if (mask)
		pool_refresh(sessions->pool, mask);
}

uint64_t processes_await(struct session *s)
{
	s->sessions->reap_delay_ms = REAP_DELAY_MIN_MS;
	return pool_refresh(s->sessions->pool, session_gpu_mask(s));
}

/* The memory of `p` may go back as soon as the driver says so. */
static void reap_await(struct process *p)
{
	p->reap_sample = processes_await(p->session);
}

/* Work that it hands in from now on, or may still have on the GPU, keeps nobody waiting. */
static void lease_forget(struct process *p)
{
	if (p->session->lease)
		leases_process_gone(p->session->sessions->leases, p->session->lease, p->slot);
}

void process_hears(struct process *p, bool hears)
{
	if (p->session->lease)
		leases_process_add(p->session->sessions->leases, p->session->lease, p->slot, hears);
}

/* The holder of each slot, for a daemon after this one: the ledger's own word is its processes'. */
static void store_noted(const struct process *p, int rc)
{
	if (rc < 0)
		log_event(LOG_WARNING, "store.failed id=%s error=\"%s\"", p->session->record.id,
			  strerrordesc_np(-rc));
}

static void store_note(const struct process *p)
{
	store_noted(p, store_attached_put(p->session->sessions->store, p->session->record.id,
					  p->slot, &p->id));
}

static void store_forget(const struct process *p)
{
	store_noted(p, store_attached_remove(p->session->sessions->store, p->session->record.id,
					     p->slot));
}

/* Moves it on in its life, and does what begins with the new part of that. */
static void life_move(struct process *p, enum process_event event)
{
	enum process_life life = p->life;

	if (!process_life_next(p->life, event, &life)) {
		log_event(LOG_ERROR, "process.impossible id=%s pid=%d life=%d event=%d",
			  p->session->record.id, (int)p->id.pid, (int)p->life, (int)event);
		return;
	}
	p->life = life;
	/* Its last operation is finished or dropped. Not before: a child that has its connection
	 * may share its memory, and be at its slot. */
	if (life == PROCESS_LIFE_RELEASING)
		ledger_recover(ledger_of(p), p->slot);
}

void process_orphans(struct process *p, uint32_t position, uint64_t bytes)
{
	if (bytes && atomic_load(&ledger_slot(ledger_of(p), p->slot)->exported))
		p->session->sessions->hooks->gave_up(p->session, position, bytes);
}

/* All that it has. */
static void orphans_all(struct process *p)
{
	const struct session *s = p->session;

	for (uint32_t i = 0; i < s->record.gpu_count; i++)
		process_orphans(p, i, ledger_slot_bytes(&s->books.ledger, p->slot, i));
}

void process_ended(struct process *p)
{
	struct session *s = p->session;

	process_watch_stop(p->watch);
	p->watch = NULL;
	s->sessions->dead_count++;
	p->dead_ns = now_monotonic_ns();
	if (!p->ending_ns)
		p->ending_ns = p->dead_ns;
	lease_forget(p);
	ledger_slot(ledger_of(p), p->slot)->state = LEDGER_SLOT_DEAD;
	life_move(p, PROCESS_EVENT_END);
	orphans_all(p);
	log_event(LOG_INFO, "process.ended id=%s pid=%d", s->record.id, (int)p->id.pid);
	if (p->life == PROCESS_LIFE_RELEASING)
		reap_await(p);
	session_continue_end(s);
}

static void on_process_ended(void *arg)
{
	process_ended(arg);
}

void process_connected(struct process *p, struct attach_connection *connection)
{
	p->connection = connection;
	p->attach_number = ++p->session->sessions->attaches;
	p->heard = true;
	life_move(p, PROCESS_EVENT_CONNECT);
}

void process_disconnected(struct process *p)
{
	p->connection = NULL;
	p->ask_sample = 0;
	life_move(p, PROCESS_EVENT_DISCONNECT);
	reap_await(p);
}

uint64_t process_figure_of_dead(const struct process *p, const struct gpu_sample *sample)
{
	uint64_t figure = gpu_sample_process_bytes(sample, p->id.pid);
	struct process_id now;

	if (figure && process_identify(p->id.pid, &now) == 0 && !process_same(now, p->id))
		return 0;
	return figure;
}

/* Adds what the slot of a dead process says, and the most that the driver listed for it. */
static void left_in_slot(const struct process *dead, int gpu, const char *instance,
			 uint64_t *charged, uint64_t *listed)
{
	const struct session *s = dead->session;

	for (uint32_t i = 0; i < s->record.gpu_count; i++) {
		if (s->pool_gpu[i] != gpu ||
		    (instance && strcmp(s->record.gpu[i].instance, instance) != 0))
			continue;
		*charged += MIN(ledger_slot_bytes(&s->books.ledger, dead->slot, i),
				dead->gpu[i].listed);
		*listed = MAX(*listed, dead->gpu[i].listed);
	}
}

/* The part of a GPU's figure for a PID that belongs to a dead process that had the PID before. It
 * is as much as the driver listed for it when nobody else had it. The words of its slots count for
 * no more, as any process of its sessions can write those, and attach to as many as it likes.
 * `instance`: of that one alone; NULL: of the GPU. 0 where `dead` is not the first of its slots. */
static uint64_t left_by_dead(const struct process *dead, int gpu, const char *instance)
{
	uint64_t charged = 0, listed = 0;
	bool first = true;

	for (const struct session *s = dead->session->sessions->attached; s; s = s->next_attached)
		for (const struct process *p = s->processes; p; p = p->next) {
			if (!process_is_dead(p) || !process_same(p->id, dead->id))
				continue;
			if (first && p != dead)
				return 0;
			first = false;
			left_in_slot(p, gpu, instance, &charged, &listed);
		}
	return MIN(charged, listed);
}

static uint64_t without_dead(const struct process *p, uint64_t figure, int gpu,
			     const char *instance)
{
	const struct sessions *sessions = p->session->sessions;
	uint64_t left = 0;

	if (!figure || !sessions->dead_count)
		return figure;
	for (const struct session *s = sessions->attached; s; s = s->next_attached)
		for (const struct process *dead = s->processes; dead; dead = dead->next)
			if (process_is_dead(dead) && dead->id.pid == p->id.pid)
				left += left_by_dead(dead, gpu, instance);
	return figure - MIN(figure, left);
}

uint64_t process_figure(const struct process *p, int gpu)
{
	const struct gpu_sample *sample = &p->session->sessions->pool->gpu[gpu].sample;

	return without_dead(p, gpu_sample_process_bytes(sample, p->id.pid), gpu, NULL);
}

uint64_t process_figure_at(const struct process *p, uint32_t position)
{
	const struct session *s = p->session;
	int gpu = s->pool_gpu[position];

	if (!session_is_one_of_several(s, position))
		return process_figure(p, gpu);
	return without_dead(p,
			    gpu_sample_part_bytes(&s->sessions->pool->gpu[gpu].sample, p->id.pid,
						  s->books.limits->gpu[position].uuid),
			    gpu, s->record.gpu[position].instance);
}

/* Clamp: never trust a process for more than it charged. */
int64_t process_managed_unlisted(const struct process *p, uint32_t position)
{
	const struct ledger *l = &p->session->books.ledger;
	_Atomic uint64_t *unlisted = ledger_managed_unlisted(l, p->slot, position);
	uint64_t used = (uint64_t)MAX(ledger_used(l, p->slot, position), 0);

	return unlisted ? (int64_t)MIN(atomic_load(unlisted), used) : 0;
}

static bool is_elsewhere(uint32_t managed)
{
	return managed && managed != LEDGER_MANAGED_UNLISTED;
}

bool process_has_managed(const struct process *p)
{
	return is_elsewhere(p->seen_managed) ||
	       is_elsewhere(ledger_slot(&p->session->books.ledger, p->slot)->managed);
}

const struct process *process_first_twin(const struct process *p)
{
	const struct process *q = p->session->processes;

	while (q != p && (q->id.pid != p->id.pid || process_is_dead(q)))
		q = q->next;
	return q;
}

static bool driver_has_it_back(const struct process *p)
{
	const struct session *s = p->session;
	bool patient = now_monotonic_ns() - p->dead_ns < REAP_GIVE_UP_NS;

	if (s->sessions->pool->done < p->reap_sample)
		return false;
	for (uint32_t i = 0; i < s->record.gpu_count; i++) {
		if (s->pool_gpu[i] < 0)
			continue;
		const struct gpu_sample *sample = &s->sessions->pool->gpu[s->pool_gpu[i]].sample;
		if (sample->error ? patient : process_figure_of_dead(p, sample) != 0)
			return false;
	}
	return true;
}

static void reap(struct process *p)
{
	struct session *s = p->session;

	s->sessions->hooks->uncharging(p, true);
	ledger_slot_release(ledger_of(p), p->slot);
	store_forget(p);
	log_event(LOG_INFO, "process.reaped id=%s pid=%d after_ms=%" PRIu64, s->record.id,
		  (int)p->id.pid, (now_monotonic_ns() - p->dead_ns) / 1000000);
	process_free(p);
}

/* True where some dead process still has to be waited for. */
static bool reap_all(struct sessions *sessions)
{
	bool waiting = false;

	for (struct session *s = sessions->attached, *next; s; s = next) {
		next = s->next_attached;
		for (struct process *p = s->processes, *after; p; p = after) {
			after = p->next;
			if (!process_is_dead(p)) {
				waiting |= is_awaited(p);
				continue;
			}
			if (p->life == PROCESS_LIFE_INHERITED)
				continue;
			if (driver_has_it_back(p))
				reap(p);
			else
				waiting = true;
		}
		session_check_held(s);
	}
	return waiting;
}

void processes_reap(struct sessions *sessions)
{
	if (reap_all(sessions))
		uv_timer_start(&sessions->reap, on_reap_timer, sessions->reap_delay_ms, 0);
}

/* ---- life -------------------------------------------------------------------------------- */

static struct process *process_new(struct session *s, struct process_id id, uint32_t slot)
{
	struct process *p =
		calloc(1, sizeof(*p) + s->record.gpu_count * sizeof(struct process_gpu));

	if (!p)
		return NULL;
	p->session = s;
	p->id = id;
	p->slot = slot;
	p->life = PROCESS_LIFE_UNCONNECTED;
	p->next = s->processes;
	s->processes = p;
	s->over_ended = false;
	return p;
}

uint32_t process_slot_free(const struct session *s)
{
	uint64_t used[LEDGER_SLOTS_MAX / 64] = {1ull << LEDGER_SLOT_DAEMON};

	for (const struct process *p = s->processes; p; p = p->next)
		used[p->slot / 64] |= 1ull << p->slot % 64;
	for (uint32_t slot = 0; slot < s->books.shape->slot_count; slot++)
		if (!(used[slot / 64] >> slot % 64 & 1))
			return slot;
	return 0;
}

int process_attach(struct session *s, struct process_id id, struct attach_connection *connection,
		   struct process **ret)
{
	uint32_t slot = process_slot_free(s);

	if (!slot)
		return -ENOSPC;
	struct process *p = process_new(s, id, slot);
	if (!p)
		return -ENOMEM;
	int rc = process_watch_start(s->sessions->loop, id, on_process_ended, p, &p->watch);
	if (rc < 0) {
		process_free(p);
		return rc;
	}
	p->life = PROCESS_LIFE_CONNECTED;
	p->connection = connection;
	p->attach_number = ++s->sessions->attaches;
	p->heard = true;
	ledger_slot_assign(&s->books.ledger, slot, id.pid, id.birth);
	process_hears(p, true);
	store_note(p);
	log_event(LOG_INFO, "process.attached id=%s pid=%d slot=%u", s->record.id, (int)id.pid,
		  slot);
	*ret = p;
	return 0;
}

int process_resume(struct session *s, uint32_t slot, struct process_id id)
{
	struct ledger_slot *from = ledger_slot(&s->books.ledger, slot);
	struct process *p = process_new(s, id, slot);

	if (!p)
		return -ENOMEM;
	for (uint32_t i = 0; i < s->record.gpu_count; i++)
		p->gpu[i].floor = from->daemon_corrected
					  ? 0
					  : MIN(0, ledger_settled(&s->books.ledger, slot, i));
	/* It is set whatever was written there. */
	from->pid = id.pid;
	from->start_time = id.birth;
	from->state = LEDGER_SLOT_LIVE;
	int rc = process_watch_start(s->sessions->loop, id, on_process_ended, p, &p->watch);
	if (rc == 0) {
		process_hears(p, s->wake_kept);
		reap_await(p);
	}
	if (rc == -ESRCH) {
		process_ended(p);
		rc = 0;
	}
	if (rc < 0)
		process_free(p);
	return rc;
}

void process_free(struct process *p)
{
	struct process **at;

	for (at = &p->session->processes; *at != p; at = &(*at)->next)
		;
	*at = p->next;
	p->session->sessions->dead_count -= process_is_dead(p);
	if (p->connection)
		p->session->sessions->hooks->unconnected(p->connection);
	process_watch_stop(p->watch);
	free(p);
}

/* ---- living ones whose connection ended ----------------------------------------------- */

static const struct gpu_sample *sample_of(const struct session *s, uint32_t position)
{
	return &s->sessions->pool->gpu[s->pool_gpu[position]].sample;
}

/* The same process has attached again, and so it is another program. */
static bool attached_anew(const struct process *p)
{
	for (const struct process *q = p->session->processes; q; q = q->next)
		if (q != p && q->life == PROCESS_LIFE_CONNECTED && process_same(q->id, p->id))
			return true;
	return false;
}

static bool is_listed(const struct process *p)
{
	const struct session *s = p->session;

	for (uint32_t i = 0; i < s->record.gpu_count; i++)
		if (s->pool_gpu[i] >= 0 &&
		    gpu_sample_process_bytes(sample_of(s, i), p->id.pid) != 0)
			return true;
	return false;
}

bool process_is_charged(const struct process *p)
{
	for (uint32_t i = 0; i < p->session->record.gpu_count; i++) {
		const struct ledger *l = &p->session->books.ledger;

		if (ledger_used(l, p->slot, i) || ledger_settled(l, p->slot, i))
			return true;
	}
	return false;
}

/* Whether no call of it that will take memory can be on its way to the driver any more. Either none
 * is under way, or it has been for so long that its program is gone. */
static bool is_quiescent(struct process *p)
{
	const struct ledger_slot *slot = ledger_slot(ledger_of(p), p->slot);
	uint32_t begun = atomic_load(&slot->calls_begun), done = atomic_load(&slot->calls_done);
	uint64_t now = now_monotonic_ns();

	if (begun == done)
		return true;
	if (!p->stuck_since_ns || p->stuck_begun != begun || p->stuck_done != done) {
		p->stuck_since_ns = now;
		p->stuck_begun = begun;
		p->stuck_done = done;
	}
	return now - p->stuck_since_ns >= REAP_GIVE_UP_NS;
}

/* Whether the program that had the slot is gone, though its process lives: its connection ended, as
 * by exec, and the driver, which listed it, does so no longer. A program that merely closed
 * descriptors, the driver's not among them, is listed on. Where nobody ever saw it listed, as where
 * the driver does not list processes at all, what it charged stays charged until it ends. */
static bool has_execed(struct process *p)
{
	if (p->session->sessions->pool->done < p->reap_sample)
		return false;
	if (attached_anew(p))
		return true;
	return p->listed && !is_listed(p) && is_quiescent(p);
}

/* If a GPU's driver does not answer, nobody can tell what is on it. */
bool session_is_silent(const struct session *s)
{
	for (uint32_t i = 0; i < s->record.gpu_count; i++)
		if (s->pool_gpu[i] >= 0 && sample_of(s, i)->error)
			return true;
	return false;
}

/* Exec ends the connection as it ends what the driver holds. The process keeps its slot. */
static void exec_settle(struct process *p)
{
	struct session *s = p->session;

	if (!process_is_charged(p) || session_is_silent(s) || !has_execed(p))
		return;
	p->ending_ns = 0;
	if (attached_anew(p))
		lease_forget(p);
	ledger_recover(ledger_of(p), p->slot);
	orphans_all(p);
	s->sessions->hooks->uncharging(p, false);
	for (uint32_t i = 0; i < s->record.gpu_count; i++) {
		ledger_reap(ledger_of(p), p->slot, i);
		p->gpu[i] = (struct process_gpu){0};
	}
}

void processes_settle_execed(struct sessions *sessions)
{
	for (struct session *s = sessions->attached; s; s = s->next_attached)
		for (struct process *p = s->processes; p; p = p->next) {
			if (process_is_dead(p))
				continue;
			if (p->life == PROCESS_LIFE_UNCONNECTED)
				exec_settle(p);
			p->listed |= is_listed(p);
		}
}

bool process_is_attached(const struct sessions *sessions, struct process_id id)
{
	for (const struct session *s = sessions->attached; s; s = s->next_attached)
		for (const struct process *p = s->processes; p; p = p->next)
			if (process_same(p->id, id))
				return true;
	return false;
}

/* ---- processes of several sessions ------------------------------------------------------- */

bool process_has_slice_elsewhere(const struct process *p, int gpu)
{
	for (const struct session *s = p->session->sessions->attached; s; s = s->next_attached) {
		if (s == p->session || !(session_gpu_mask(s) >> gpu & 1))
			continue;
		for (const struct process *q = s->processes; q; q = q->next)
			if (process_same(q->id, p->id))
				return true;
	}
	return false;
}

/* A process is in only one of several instances of a GPU. */
static bool has_part(const struct session *s, int gpu, const char *instance)
{
	for (uint32_t i = 0; i < s->record.gpu_count; i++)
		if (s->pool_gpu[i] == gpu && !strcmp(s->record.gpu[i].instance, instance))
			return true;
	return false;
}

bool process_counts_at(const struct process *p, uint32_t position)
{
	int gpu = p->session->pool_gpu[position];
	const char *instance = p->session->record.gpu[position].instance;
	const struct session *last = NULL;
	uint64_t number = 0;

	for (const struct session *s = p->session->sessions->attached; s; s = s->next_attached) {
		if (!has_part(s, gpu, instance))
			continue;
		for (const struct process *q = s->processes; q; q = q->next)
			if (process_same(q->id, p->id) && (!last || q->attach_number > number)) {
				last = s;
				number = q->attach_number;
			}
	}
	return last == p->session;
}
