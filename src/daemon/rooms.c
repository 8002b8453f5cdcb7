/* Each room of the daemon has one row in the table at the end, and the rows stand in the order in
 * which the rooms start. Rooms stop and are freed in the reverse order, so that a room may use the
 * rooms above its row for as long as it lives. Samples and seconds go down the table: a room sees
 * what the rooms above its row made of them.
 *
 * The first rooms start before the loop runs. The pool reads the inventory of GPUs on another
 * thread, so its start ends the first part, and the rooms below it start when the inventory is in.
 * A room whose start failed is stopped and freed, too, as parts of it may be there. The functions
 * here only hand each room its part of struct node; all of them run on the loop's thread. */
#include "daemon/rooms.h"

#include <errno.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/macros.h"
#include "daemon/api/api.h"
#include "daemon/api/api_metrics.h"
#include "daemon/api/api_upgrade.h"
#include "daemon/api/api_web.h"
#include "daemon/api/fresh.h"
#include "daemon/api/http.h"
#include "daemon/attach/attach.h"
#include "daemon/events/events.h"
#include "daemon/files.h"
#include "daemon/gpu/gpu_drain.h"
#include "daemon/gpu/gpu_state.h"
#include "daemon/host/log.h"
#include "daemon/host/names.h"
#include "daemon/host/owner.h"
#include "daemon/host/rights.h"
#include "daemon/idle/idle.h"
#include "daemon/lease/leases.h"
#include "daemon/metrics/gpu_time.h"
#include "daemon/metrics/job_mapping.h"
#include "daemon/mig/mig.h"
#include "daemon/node.h"
#include "daemon/node_hooks.h"
#include "daemon/queue/queues.h"
#include "daemon/report/report.h"
#include "daemon/session/process.h"
#include "daemon/settings.h"
#include "daemon/settle/cgroups.h"
#include "daemon/settle/outside.h"
#include "daemon/settle/outsiders.h"
#include "daemon/settle/over.h"
#include "daemon/settle/settle.h"
#include "daemon/settle/strays.h"
#include "daemon/slicing/usage.h"
#include "daemon/store/store.h"
#include "daemon/upgrade/takeover.h"
#include "daemon/waiting/quota_hours.h"

/* Makes a function of a row that does no more than to hand a room its part of struct node. */
#define HAND(name, call)                    \
	static void name(struct node *node) \
	{                                   \
		call;                       \
	}

/* ---- rooms that start before the inventory ------------------------------------------------- */

static int state_start(struct node *node, struct error *err)
{
	keep_begin(&node->keep);
	files_note_take(node);
	if (state_open(&node->state, &node->runtime, &node->keep, &node->store, err) < 0)
		return -EXIT_CODE_FAILED;
	settings_begin(node);
	return 0;
}

static void state_tick(struct node *node)
{
	unsigned recorded = store_retry(node->store);

	if (recorded)
		log_event(LOG_INFO, "store.recorded ends=%u", recorded);
}

static void state_free(struct node *node)
{
	store_close(node->store);
	state_close(&node->state);
}

static int events_room_start(struct node *node, struct error *err)
{
	return events_start(node->store, &node->events);
}

HAND(events_room_round, events_round(node->events))
HAND(events_room_tick, events_tick(node->events))
HAND(events_room_free, events_stop(steal_ptr(&node->events)))

static int leases_room_start(struct node *node, struct error *err)
{
	return leases_start(&node->leases);
}

HAND(leases_room_free, leases_stop(node->leases))

static int names_start(struct node *node, struct error *err)
{
	owner_load();
	peer_load();
	return 0;
}

HAND(names_round, names_look(&node->loop))
HAND(names_tick, owner_refresh(&node->loop))
HAND(names_free, names_stop())

static int keep_room_start(struct node *node, struct error *err)
{
	return keep_start(&node->keep, &node->loop);
}

HAND(keep_room_stop, keep_stop(&node->keep))

static void on_warden_ended(void *context)
{
	struct node *node = context;

	log_event(LOG_ERROR, "warden.ended");
	keep_restart(&node->keep, "its warden ended", false);
}

static int privileges_room_start(struct node *node, struct error *err)
{
	int rc = privileges_start(&node->privileges, &node->loop, on_warden_ended, node);

	launcher_begin(&node->launcher, &node->privileges.warden);
	return rc;
}

static void privileges_room_tick(struct node *node)
{
	rights_tick();
	launcher_tick(&node->launcher);
}

HAND(privileges_room_stop, privileges_stop(&node->privileges))

/* The pool calls back when it has the inventory: the other rooms start then. */
static int pool_room_start(struct node *node, struct error *err)
{
	node->pool.keep = &node->keep;
	node->pool.store = node->store;
	node->pool.events = node->events;
	node->pool.policy = node->config.placement;
	int rc = gpu_drains_load(&node->pool.drains, node->store);
	if (rc == 0)
		rc = pool_start(&node->pool, &node->loop);
	return rc < 0 ? rc : ROOMS_WAIT;
}

static bool session_is_left(const struct session *s)
{
	for (uint32_t i = 0; i < s->record.gpu_count; i++)
		if (s->pool_gpu[i] >= 0 &&
		    pool_gpu_is_left(&s->sessions->pool->gpu[s->pool_gpu[i]]))
			return true;
	return false;
}

/* A system daemon may have come, or a daemon that had a GPU may have gone. Sessions on a GPU that
 * is left to the system daemon go on as long as somebody is in them: their users' commands speak to
 * the system daemon by now. */
static void claims_look(struct node *node)
{
	bool left = false;

	if (pool_claim(&node->pool, false))
		node->waiting.dirty = true;
	for (uint32_t i = 0; i < node->pool.count; i++)
		left |= pool_gpu_is_left(&node->pool.gpu[i]);
	for (struct session *s = left ? node->sessions.first : NULL, *next; s; s = next) {
		next = s->next;
		if (s->state == SESSION_ACTIVE && !s->processes && !s->holders &&
		    session_is_left(s))
			session_end(s, STORE_END_SYSTEM, "its GPU is the system daemon's");
	}
}

static void pool_tick(struct node *node)
{
	claims_look(node);
	gpu_states_look(&node->pool);
	pool_look_for_driver(&node->pool);
}

static void pool_sampled(struct node *node)
{
	if (node->pool.mig_changed)
		slicing_mig_changed(&node->slicing);
	gpu_states_look(&node->pool);
}

HAND(pool_stop, pool_unclaim(&node->pool))

static void pool_free(struct node *node)
{
	leases_clock(node->leases, NULL, NULL);
	pool_close(&node->pool);
}

/* ---- rooms that start when the inventory is in --------------------------------------------- */

static int sessions_start(struct node *node, struct error *err)
{
	struct sessions *sessions = &node->sessions;

	sessions->loop = &node->loop;
	sessions->pool = &node->pool;
	sessions->store = node->store;
	sessions->events = node->events;
	sessions->leases = node->leases;
	sessions->privileges = &node->privileges;
	sessions->hooks = &node_session_hooks;
	sessions->context = node;
	sessions_begin(sessions, node->config.living_sessions);
	settle_begin(&node->settling, sessions);
	node->access.sessions = sessions;
	sessions->access = &node->access;
	node->outsiders.settling = &node->settling;
	node->outsiders.probe = &node->probe.pid;
	settings_spread(node);
	return 0;
}

/* Compares the driver's figures with the ledgers of living processes once a second. Commands may
 * have children that never attach. All GPUs are read, because a process that bypassed the front saw
 * them all. */
static void sessions_tick(struct node *node)
{
	const struct session *s = node->sessions.first;

	while (s && !s->processes && !s->holders)
		s = s->next;
	/* Calls may wait for the next sample (fresh_await()). */
	if (s || strays_any(&node->settling) || node->fresh)
		pool_refresh(&node->pool, POOL_ALL);
	outsiders_tick(&node->outsiders);
	device_access_tick(&node->access);
}

/* Each step reads what the steps before it found: figures, descriptors and what these keep, strays,
 * and then what is left over. Dead processes go last, as they explain figures until then. */
static void sessions_sampled(struct node *node)
{
	struct settling *settling = &node->settling;

	for (const struct session *s = node->sessions.attached; s; s = s->next_attached)
		for (struct process *p = s->processes; p; p = p->next)
			figures_note(s, p);
	descriptors_read(settling);
	orphans_sampled(settling);
	strays_sampled(settling);
	outside_compute(settling);
	over_compute(settling);
	processes_settle_execed(&node->sessions);
	settle_all(settling);
	processes_reap(&node->sessions);
	orphans_store(settling);
	outsiders_sampled(&node->outsiders);
}

static void sessions_stop(struct node *node)
{
	sessions_free(&node->sessions);
	descriptors_free(&node->settling);
	orphans_free(&node->settling);
	strays_free(&node->settling);
	outsiders_free(&node->outsiders);
	device_access_free(&node->access);
	uv_close((uv_handle_t *)&node->sessions.reap, NULL);
	uv_close((uv_handle_t *)&node->settling.quiesce_timer, NULL);
}

static int quotas_start(struct node *node, struct error *err)
{
	node->quotas.sessions = &node->sessions;
	node->quotas.report = &node->report;
	return quotas_load(&node->quotas);
}

HAND(quotas_tick, quota_hours_tick(&node->quotas))

static void quotas_stop(struct node *node)
{
	quota_hours_free(&node->quotas);
	quotas_free(&node->quotas);
}

static int slicing_start(struct node *node, struct error *err)
{
	node->slicing.sessions = &node->sessions;
	node->slicing.pool = &node->pool;
	node->slicing.leases = node->leases;
	takeover_accounts(node);
	return slicing_load(&node->slicing);
}

static int report_room_start(struct node *node, struct error *err)
{
	node->report.sessions = &node->sessions;
	node->report.turns = &node->turns;
	node->report.asks.loop = &node->loop;
	node->report.store = node->store;
	return report_start(&node->report);
}

HAND(report_room_tick, report_tick(&node->report))
HAND(report_room_stop, report_stop(&node->report))

HAND(slicing_tick, takeover_accounts_look(node))

static int mig_room_start(struct node *node, struct error *err)
{
	int rc = mig_start(&node->sessions, &node_mig_hooks, node, &node->mig);

	settings_spread(node);
	return rc;
}

HAND(mig_room_tick, mig_tick(node->mig))
HAND(mig_room_sampled, mig_sampled(node->mig))
HAND(mig_room_stop, mig_stop(node->mig))
HAND(mig_room_free, mig_free(node->mig))

static int takeover_start(struct node *node, struct error *err)
{
	return takeover_run(node);
}

HAND(takeover_sampled, session_drain(&node->sessions))

static int waiting_start(struct node *node, struct error *err)
{
	node->waiting.sessions = &node->sessions;
	node->waiting.pool = &node->pool;
	node->waiting.quotas = &node->quotas;
	node->waiting.report = &node->report;
	node->waiting.times = &node->config.times.session;
	budget_begin_any(&node->waiting.budget, WAITING_MAX);
	int rc = waiting_load(&node->waiting);
	/* Requests that were read back may have been given instances. */
	if (rc == 0)
		mig_sessions_restored(node->mig);
	return rc;
}

static void waiting_round(struct node *node)
{
	if (node->waiting.dirty && node->ready)
		waiting_run(&node->waiting);
}

HAND(waiting_sampled, waiting_kick(&node->waiting))

static int cgroups_room_start(struct node *node, struct error *err)
{
	return cgroups_start(&node->sessions, &node->sessions.cgroups);
}

HAND(cgroups_room_tick, cgroups_tick(node->sessions.cgroups))
HAND(cgroups_room_stop, cgroups_stop(node->sessions.cgroups))
HAND(cgroups_room_free, cgroups_free(node->sessions.cgroups))

static void on_costs(void *arg)
{
	struct node *node = arg;

	settle_say(&node->settling);
	if (node->pool.state == POOL_READY)
		node->ready_sample = pool_refresh(&node->pool, POOL_ALL);
	else
		node->ready = true;
	waiting_kick(&node->waiting);
}

static int probe_room_start(struct node *node, struct error *err)
{
	probe_start(&node->probe, &node->loop, &node->pool, node->store, on_costs, node);
	return 0;
}

static void probe_anew(struct node *node)
{
	node->ready = false;
	node->ready_sample = 0;
	probe_again(&node->probe);
}

/* Requests wait while a probe runs: its context is nobody's, and is in the figures. */
static void probe_tick(struct node *node)
{
	if (node->ready && !node->waiting.first && !node->sessions.drains &&
	    probe_due(&node->probe, now_monotonic_ns()))
		probe_anew(node);
}

/* A GPU that left MIG mode is like a GPU that was just found: what a context costs there may not be
 * known. */
static bool any_left_mig(const struct pool *pool)
{
	for (uint32_t i = 0; i < pool->count; i++)
		if (pool->mig_changed >> i & 1 && pool_gpu_is_ours(&pool->gpu[i]) &&
		    !pool->gpu[i].context_bytes)
			return true;
	return false;
}

/* Memory that samples show as used before the daemon is ready may be the probe's own context. */
static void probe_sampled(struct node *node)
{
	if (any_left_mig(&node->pool))
		probe_anew(node);
	if (node->ready || !node->ready_sample || node->pool.done < node->ready_sample)
		return;
	if (probe_lingers(&node->probe))
		node->ready_sample = pool_refresh(&node->pool, POOL_ALL);
	else
		node->ready = true;
}

HAND(probe_room_stop, probe_stop(&node->probe))

/* Slices are there without queues, too. */
static int queues_room_start(struct node *node, struct error *err)
{
	const struct queues_host host = {
		.sessions = &node->sessions,
		.turns = &node->turns,
		.pool = &node->pool,
		.waiting = &node->waiting,
		.quotas = &node->quotas,
		.report = &node->report,
		.launcher = &node->launcher,
		.state_dir = node->state.dir,
		.runtime = &node->runtime,
		.ready = &node->ready,
		.history_jobs = &node->config.history_jobs,
		.history_text_mib = &node->config.history_text_mib,
		.living_jobs = &node->config.living_jobs,
	};

	node->queues = queues_start(&host, &node->queues_error);
	return 0;
}

HAND(queues_round, queues_run(node->queues))
HAND(queues_room_tick, queues_tick(node->queues))
HAND(queues_sampled, queues_kick(node->queues))
HAND(queues_room_stop, queues_stop(steal_ptr(&node->queues)))

static int idle_room_start(struct node *node, struct error *err)
{
	int rc = idle_start(&node->sessions, &node_idle_hooks, node, &node->idle);

	settings_spread(node);
	return rc;
}

HAND(idle_room_tick, idle_tick(node->idle))
HAND(idle_room_stop, idle_stop(steal_ptr(&node->idle)))

static int attach_start(struct node *node, struct error *err)
{
	return attach_server_start(&node->sessions, &node->turns, node->runtime.attach_fd,
				   &node->attach);
}

HAND(attach_room_tick, attach_tick(node->attach))
HAND(attach_room_sampled, attach_sampled(node->attach))
HAND(attach_stop, attach_server_stop(node->attach))

static void on_call(struct call *call, void *unused)
{
	api_handle(call);
}

static int http_start(struct node *node, struct error *err)
{
	return http_server_start(node, node->runtime.http_fd, on_call, &node->http);
}

static int metrics_start(struct node *node, struct error *err)
{
	node->job_mapping = job_mapping_new(&node->sessions);
	node->gpu_time = gpu_time_new(&node->sessions);
	return node->job_mapping && node->gpu_time ? api_metrics_start(node, err) : -ENOMEM;
}

static void metrics_tick(struct node *node)
{
	job_mapping_tick(node->job_mapping, node->config.metrics.job_mapping_dir);
	gpu_time_tick(node->gpu_time);
}

static void metrics_free(struct node *node)
{
	job_mapping_free(node->job_mapping);
	gpu_time_free(node->gpu_time);
}

static void metrics_stop(struct node *node)
{
	gpu_time_stop(node->gpu_time);
	api_metrics_stop(node);
}

HAND(http_round, http_prepare(node->http))

static void http_room_tick(struct node *node)
{
	http_tick(node->http);
	api_web_tick(node);
}

HAND(http_sampled, fresh_sampled(node))

static void http_stop(struct node *node)
{
	api_upgrade_stop(node);
	/* Clients that enqueued jobs get their answers. Else they would be told that it failed. */
	queues_settle(node->queues);
	http_server_stop(node->http);
}

static int usage_room_start(struct node *node, struct error *err)
{
	int rc = usage_start(&node->slicing, &node->usage);

	if (rc < 0)
		log_event(LOG_ERROR, "gpu.unmeasured error=\"%s\"", strerrordesc_np(-rc));
	return 0;
}

HAND(usage_round, usage_prepare(node->usage))
HAND(usage_room_stop, usage_stop(steal_ptr(&node->usage)))

static int files_start(struct node *node, struct error *err)
{
	files_begin(node);
	return 0;
}

/* ---- the table ----------------------------------------------------------------------------- */

struct room {
	const char *name;
	int (*start)(struct node *node, struct error *err);
	void (*round)(struct node *node);
	void (*tick)(struct node *node);
	void (*sampled)(struct node *node);
	void (*stop)(struct node *node);
	void (*free)(struct node *node);
};

static const struct room rooms[] = {
	{.name = "state", .start = state_start, .tick = state_tick, .free = state_free},
	{.name = "events",
	 .start = events_room_start,
	 .round = events_room_round,
	 .tick = events_room_tick,
	 .free = events_room_free},
	{.name = "leases", .start = leases_room_start, .free = leases_room_free},
	{.name = "names",
	 .start = names_start,
	 .round = names_round,
	 .tick = names_tick,
	 .free = names_free},
	{.name = "keep", .start = keep_room_start, .stop = keep_room_stop},
	{.name = "privileges",
	 .start = privileges_room_start,
	 .tick = privileges_room_tick,
	 .stop = privileges_room_stop},
	{.name = "pool",
	 .start = pool_room_start,
	 .tick = pool_tick,
	 .sampled = pool_sampled,
	 .stop = pool_stop,
	 .free = pool_free},
	{.name = "sessions",
	 .start = sessions_start,
	 .tick = sessions_tick,
	 .sampled = sessions_sampled,
	 .stop = sessions_stop},
	{.name = "quotas", .start = quotas_start, .tick = quotas_tick, .stop = quotas_stop},
	{.name = "slicing", .start = slicing_start, .tick = slicing_tick},
	{.name = "mig",
	 .start = mig_room_start,
	 .tick = mig_room_tick,
	 .sampled = mig_room_sampled,
	 .stop = mig_room_stop,
	 .free = mig_room_free},
	{.name = "report",
	 .start = report_room_start,
	 .tick = report_room_tick,
	 .stop = report_room_stop},
	{.name = "takeover", .start = takeover_start, .sampled = takeover_sampled},
	{.name = "waiting",
	 .start = waiting_start,
	 .round = waiting_round,
	 .sampled = waiting_sampled},
	{.name = "probe",
	 .start = probe_room_start,
	 .tick = probe_tick,
	 .sampled = probe_sampled,
	 .stop = probe_room_stop},
	{.name = "cgroups",
	 .start = cgroups_room_start,
	 .tick = cgroups_room_tick,
	 .stop = cgroups_room_stop,
	 .free = cgroups_room_free},
	{.name = "queues",
	 .start = queues_room_start,
	 .round = queues_round,
	 .tick = queues_room_tick,
	 .sampled = queues_sampled,
	 .stop = queues_room_stop},
	{.name = "idle", .start = idle_room_start, .tick = idle_room_tick, .stop = idle_room_stop},
	{.name = "attach",
	 .start = attach_start,
	 .tick = attach_room_tick,
	 .sampled = attach_room_sampled,
	 .stop = attach_stop},
	{.name = "metrics",
	 .start = metrics_start,
	 .tick = metrics_tick,
	 .stop = metrics_stop,
	 .free = metrics_free},
	{.name = "http",
	 .start = http_start,
	 .round = http_round,
	 .tick = http_room_tick,
	 .sampled = http_sampled,
	 .stop = http_stop},
	{.name = "usage", .start = usage_room_start, .round = usage_round, .stop = usage_room_stop},
	{.name = "files", .start = files_start},
};

int rooms_start(struct node *node, struct error *err)
{
	int rc = 0;

	while (rc == 0 && node->rooms < ARRAY_SIZE(rooms)) {
		const struct room *room = &rooms[node->rooms++];

		rc = room->start(node, err);
		if (rc >= 0 || err->message[0])
			continue;
		if (rc == -EUCLEAN)
			state_explain(&node->state, rc, err);
		else
			error_set(err, EXIT_CODE_FAILED, "the start of its %s failed: %s",
				  room->name, strerrordesc_np(-rc));
	}
	return rc;
}

void rooms_round(struct node *node)
{
	for (unsigned i = 0; i < ARRAY_SIZE(rooms); i++)
		if (rooms[i].round)
			rooms[i].round(node);
}

void rooms_tick(struct node *node)
{
	for (unsigned i = 0; i < ARRAY_SIZE(rooms); i++)
		if (rooms[i].tick)
			rooms[i].tick(node);
}

void rooms_sampled(struct node *node)
{
	for (unsigned i = 0; i < ARRAY_SIZE(rooms); i++)
		if (rooms[i].sampled)
			rooms[i].sampled(node);
}

void rooms_stop(struct node *node)
{
	for (unsigned i = node->rooms; i--;)
		if (rooms[i].stop)
			rooms[i].stop(node);
}

void rooms_free(struct node *node)
{
	for (unsigned i = node->rooms; i--;)
		if (rooms[i].free)
			rooms[i].free(node);
}
