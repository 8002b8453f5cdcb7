#include "daemon/slicing/usage.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <uv.h>

#include "base/clock.h"
#include "base/file.h"
#include "daemon/events/events.h"
#include "daemon/gpu/pool.h"
#include "daemon/host/log.h"
#include "daemon/host/privileges.h"
#include "daemon/lease/leases.h"
#include "daemon/session/process.h"
#include "daemon/session/session.h"
#include "daemon/session/sessions.h"
#include "daemon/slicing/slicing.h"

/* The clock is looked at this often, to measure once a second by the GPUs' clock. Programs of
 * suspended users are looked for then, too. */
#define LOOK_MS 100
/* While somebody is suspended: who starts a program again as soon as it is ended has the GPU from
 * then until the next look. */
#define LOOK_SUSPENDED_MS 10
#define DUE_NS (LEASE_MEASURE_NS - LOOK_MS * 1000000ull / 2)
/* Asking takes a part in this many of the time at most: the driver may hold programs' own calls up.
 */
#define COST_PART 20
#define VERDICTS 16

/* One process of the driver's list. */
struct user {
	struct process_id id; /* .pid alone: it was not asked for, or is gone */
	uid_t uid;            /* where `known` */
	/* It has had this PID since before the driver was asked, and has a context on the GPU. All
	 * of its user IDs are the same one. */
	bool known;
	uint32_t ppm;
	/* Found on the loop. */
	struct process *process; /* NULL: it is attached nowhere */
};

struct sheet {
	int error;
	struct user *users;
	size_t count;
	uint32_t busy;
};

struct usage {
	struct slicing *slicing;
	uv_timer_t timer;
	uv_async_t async;
	uv_work_t work;
	bool running, stopped;
	unsigned open; /* handles */
	bool whole;    /* this is a measurement, not just a look */
	bool told;     /* that a driver does not tell */
	uint64_t mask;
	uint64_t measured_at; /* by the clock of leases */
	uint64_t ended_ns, took_ns;
	struct sheet sheets[GPUS_MAX];
};

/* ---- on the thread pool ------------------------------------------------------------------ */

/* The driver's figures are of a PID, which may be another process's by now. A younger process is
 * not believed to have done what they say. A process without a context does not use the GPU. */
static void user_identify(struct user *u, bool present, uint64_t asked)
{
	struct process_id id;

	if (process_identify(u->id.pid, &id) < 0 || !process_began_before(id, asked))
		return;
	u->id = id;
	/* The process that has the number now is the one whose IDs these are. */
	u->known = present && process_user(id.pid, &u->uid) && process_alive(id);
}

static void sheet_fill(struct usage *usage, uint32_t position)
{
	const struct pool *pool = usage->slicing->pool;
	struct sheet *sheet = &usage->sheets[position];
	cleanup_free struct gpu_use *list = calloc(GPU_PROCESSES_MAX, sizeof(*list));
	uint32_t index = pool->gpu[position].info.index;
	size_t count = 0;

	*sheet = (struct sheet){.error = -ENOMEM,
				.users = calloc(GPU_PROCESSES_MAX, sizeof(*sheet->users))};
	if (!list || !sheet->users)
		return; // NOLINT(clang-analyzer-unix.Malloc): freed by its cleanup
	if (usage->whole)
		leases_measure_mark(usage->slicing->leases, position,
				    gpus_clock_lag(pool->gpus, index, now_monotonic_ns()));
	uint64_t asked = now_boottime_ns();
	sheet->error = gpus_use(pool->gpus, index, GPU_USE_WINDOW_NS, list, GPU_PROCESSES_MAX,
				&count, &sheet->busy);
	for (size_t i = 0; sheet->error == 0 && i < count; i++) {
		struct user *u = &sheet->users[sheet->count++];

		*u = (struct user){.id = {.pid = list[i].pid}, .ppm = list[i].ppm};
		/* Those that used nothing matter only where they are not to be there at all. */
		if (u->ppm || !usage->whole)
			user_identify(u, list[i].present, asked);
	}
}

static void on_work(uv_work_t *work)
{
	struct usage *usage = work->data;
	uint64_t began = now_monotonic_ns();

	for (uint64_t mask = usage->mask; mask; mask &= mask - 1)
		sheet_fill(usage, (uint32_t)__builtin_ctzll(mask));
	usage->took_ns = now_monotonic_ns() - began;
}

/* ---- their users ------------------------------------------------------------------------- */

static int by_pid(const void *a, const void *b)
{
	const struct user *x = a, *y = b;

	return (x->id.pid > y->id.pid) - (x->id.pid < y->id.pid);
}

static struct user *user_find(const struct sheet *sheet, pid_t pid)
{
	const struct user key = {.id = {.pid = pid}};

	return bsearch(&key, sheet->users, sheet->count, sizeof(key), by_pid);
}

/* Marks those that are attached. */
static void sheet_match(const struct slicing *slicing, struct sheet *sheet)
{
	qsort(sheet->users, sheet->count, sizeof(*sheet->users), by_pid);
	for (const struct session *s = slicing->sessions->attached; s; s = s->next_attached)
		for (struct process *p = s->processes; p; p = p->next) {
			struct user *u = process_is_dead(p) ? NULL : user_find(sheet, p->id.pid);

			if (u && process_same(u->id, p->id))
				u->process = p;
		}
}

/* False: nothing is to be held against anybody for it: it is root's, not attached, or of a session
 * whose ledger has no gate. */
static bool owner_of(const struct user *u, uint64_t *ret_owner)
{
	if (u->process && !u->process->session->lease)
		return false;
	if (!u->process && (!u->known || u->uid == 0))
		return false;
	*ret_owner = slicing_owner(u->process ? u->process->session->record.uid : u->uid);
	return true;
}

/* ---- killed processes -------------------------------------------------------------------- */

static void unattached_record(const struct slicing *slicing, uid_t uid, pid_t pid)
{
	char subject[32];

	snprintf(subject, sizeof(subject), "process %d", (int)pid);
	events_add(slicing->sessions->events,
		   &(struct event){
			   .kind = EVENT_SLICING_KILLED,
			   .owner = &uid,
			   .subject = subject,
			   .text = "slicing_policy ended it: it used a sliced GPU outside carve",
		   });
}

/* `session`: its ID, which begins with a letter, or the number of the user of a process that is
 * attached nowhere. */
static void on_killed(void *context, const char *session, struct process_id process, int rc)
{
	struct slicing *slicing = context;
	struct session *s = *session ? session_find(slicing->sessions, session) : NULL;

	if (rc == 0 && s)
		session_slicing_killed(s, process.pid);
	else if (rc == 0)
		unattached_record(slicing, (uid_t)strtoul(session, NULL, 10), process.pid);
}

/* One that is attached nowhere is ended where it is still that user's. */
static void user_end(struct slicing *slicing, const struct user *u)
{
	if (u->process) {
		const struct session *s = u->process->session;

		privileges_signal(slicing->sessions->privileges, s->record.uid, s->record.id, u->id,
				  SIGKILL, on_killed, slicing);
	} else if (u->known) {
		char number[PRIVILEGES_SESSION_SIZE];

		snprintf(number, sizeof(number), "%u", u->uid);
		privileges_signal(slicing->sessions->privileges, u->uid, number, u->id, SIGKILL,
				  on_killed, slicing);
	}
}

/* All of a session that opens its gate: which of its processes did, nobody can tell. */
static void session_end_all(struct slicing *slicing, const char *id)
{
	struct session *s = session_find(slicing->sessions, id);

	for (struct process *p = s ? s->processes : NULL; p; p = p->next)
		if (!process_is_dead(p))
			privileges_signal(slicing->sessions->privileges, s->record.uid, id, p->id,
					  SIGKILL, on_killed, slicing);
}

static void on_verdicts(uv_async_t *async)
{
	struct usage *usage = async->data;
	struct lease_verdict verdicts[VERDICTS];
	size_t count = leases_verdicts(usage->slicing->leases, verdicts, VERDICTS);

	for (size_t i = 0; i < count; i++) {
		const struct lease_verdict *v = &verdicts[i];
		bool forged = v->event == CONDUCT_FORGED;

		log_event(LOG_WARNING,
			  "user.suspended owner=%" PRIu64 " for_ms=%" PRIu64 " reason=%s id=%s",
			  v->owner, v->for_ns / 1000000, forged ? "gate-opened" : "no-front",
			  *v->session ? v->session : "-");
		if (forged && usage->slicing->kills)
			session_end_all(usage->slicing, v->session);
	}
	if (count == VERDICTS)
		uv_async_send(async);
}

/* By any thread, with the lock of leases held. */
static void on_notify(void *arg)
{
	struct usage *usage = arg;

	uv_async_send(&usage->async);
}

/* ---- measuring --------------------------------------------------------------------------- */

static size_t uses_make(const struct sheet *sheet, struct lease_use *uses, const struct user **of)
{
	size_t count = 0;

	for (size_t i = 0; i < sheet->count; i++) {
		const struct user *u = &sheet->users[i];
		uint64_t owner;

		/* Work that is nobody's is in what the GPU did in all. */
		if (!u->ppm || !owner_of(u, &owner))
			continue;
		of[count] = u;
		uses[count++] = (struct lease_use){
			.owner = owner,
			.id = u->process ? leases_client(u->process->session->lease) : 0,
			.ppm = u->ppm};
	}
	return count;
}

static void sheet_judge(struct usage *usage, uint32_t position, const struct sheet *sheet)
{
	struct leases *leases = usage->slicing->leases;
	cleanup_free struct lease_use *uses = calloc(GPU_PROCESSES_MAX, sizeof(*uses));
	cleanup_free const struct user **of = calloc(GPU_PROCESSES_MAX, sizeof(struct user *));

	if (!uses || !of)
		return; // NOLINT(clang-analyzer-unix.Malloc): freed by its cleanup
	size_t count = uses_make(sheet, uses, of);
	leases_measure(leases, position, uses, count, sheet->busy);
	for (size_t i = 0; i < count; i++)
		if (uses[i].unfronted && usage->slicing->kills)
			user_end(usage->slicing, of[i]);
}

/* An owner who is suspended and bypasses the front is not to be on the GPU at all. */
static void sheet_look(struct usage *usage, const struct sheet *sheet)
{
	for (size_t i = 0; i < sheet->count && usage->slicing->kills; i++) {
		const struct user *u = &sheet->users[i];
		uint64_t owner;

		if (!u->process && owner_of(u, &owner) &&
		    leases_suspended(usage->slicing->leases, owner))
			user_end(usage->slicing, u);
	}
}

static void sheet_take(struct usage *usage, uint32_t position)
{
	struct sheet *sheet = &usage->sheets[position];

	if (sheet->error == -ENOTSUP && !usage->told) {
		usage->told = true;
		log_event(LOG_WARNING, "gpu.unmeasured index=%u",
			  usage->slicing->pool->gpu[position].info.index);
	}
	if (sheet->error == 0 && !usage->stopped) {
		sheet_match(usage->slicing, sheet);
		if (usage->whole)
			sheet_judge(usage, position, sheet);
		else
			sheet_look(usage, sheet);
	}
	free(sheet->users);
	*sheet = (struct sheet){0};
}

static void usage_free(struct usage *usage)
{
	if (usage->stopped && !usage->running && !usage->open)
		free(usage);
}

static void on_worked(uv_work_t *work, int status)
{
	struct usage *usage = work->data;

	usage->running = false;
	usage->ended_ns = now_monotonic_ns();
	for (uint64_t mask = usage->mask; mask; mask &= mask - 1)
		sheet_take(usage, (uint32_t)__builtin_ctzll(mask));
	usage_free(usage);
}

/* ---- when -------------------------------------------------------------------------------- */

static uint64_t sliced(const struct slicing *slicing)
{
	uint64_t mask = 0;

	for (uint32_t i = 0; i < slicing->pool->count; i++)
		if (slicing->pool->gpu[i].mode != COMPUTE_OFF &&
		    pool_gpu_is_ours(&slicing->pool->gpu[i]))
			mask |= 1ull << i;
	return mask;
}

/* GPUs whose time programs of sessions may be using. */
static uint64_t looked_at(const struct slicing *slicing)
{
	return slicing->sessions->attached ? sliced(slicing) : 0;
}

static void on_timer(uv_timer_t *timer)
{
	struct usage *usage = timer->data;
	struct slicing *slicing = usage->slicing;
	uint64_t mask = looked_at(slicing);

	uv_timer_set_repeat(timer, mask && leases_any_suspended(slicing->leases) ? LOOK_SUSPENDED_MS
										 : LOOK_MS);
	if (!mask || usage->running || slicing->pool->state != POOL_READY ||
	    now_monotonic_ns() - usage->ended_ns < COST_PART * usage->took_ns)
		return;
	uint64_t now = leases_now(slicing->leases);
	usage->whole = now - usage->measured_at >= DUE_NS;
	if (!usage->whole && !leases_any_suspended(slicing->leases))
		return;
	if (usage->whole)
		usage->measured_at = now;
	usage->mask = mask;
	usage->running =
		uv_queue_work(slicing->sessions->loop, &usage->work, on_work, on_worked) == 0;
}

void usage_prepare(struct usage *usage)
{
	if (!usage || usage->stopped)
		return;
	bool wanted = looked_at(usage->slicing), runs = uv_is_active((uv_handle_t *)&usage->timer);
	if (wanted && !runs)
		uv_timer_start(&usage->timer, on_timer, LOOK_MS, LOOK_MS);
	else if (!wanted && runs)
		uv_timer_stop(&usage->timer);
}

int usage_start(struct slicing *slicing, struct usage **ret)
{
	struct usage *usage = calloc(1, sizeof(*usage));

	if (!usage)
		return -ENOMEM;
	usage->slicing = slicing;
	usage->work.data = usage->timer.data = usage->async.data = usage;
	int rc = uv_async_init(slicing->sessions->loop, &usage->async, on_verdicts);
	if (rc < 0) {
		free(usage);
		return rc;
	}
	uv_timer_init(slicing->sessions->loop, &usage->timer);
	usage->open = 2;
	leases_watch(slicing->leases, on_notify, usage);
	*ret = usage;
	return 0;
}

static void on_closed(uv_handle_t *handle)
{
	struct usage *usage = handle->data;

	usage->open--;
	usage_free(usage);
}

void usage_stop(struct usage *usage)
{
	if (!usage)
		return;
	leases_watch(usage->slicing->leases, NULL, NULL);
	usage->stopped = true;
	uv_close((uv_handle_t *)&usage->timer, on_closed);
	uv_close((uv_handle_t *)&usage->async, on_closed);
}
