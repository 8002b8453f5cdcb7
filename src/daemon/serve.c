#include "daemon/serve.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/file.h"
#include "base/macros.h"
#include "daemon/api/api.h"
#include "daemon/api/fresh.h"
#include "daemon/api/http.h"
#include "daemon/attach/attach.h"
#include "daemon/config_last.h"
#include "daemon/files.h"
#include "daemon/gpu/gpu_state.h"
#include "daemon/host/devices.h"
#include "daemon/host/log.h"
#include "daemon/host/names.h"
#include "daemon/host/owner.h"
#include "daemon/host/rights.h"
#include "daemon/host/supervisor.h"
#include "daemon/lease/leases.h"
#include "daemon/mig/mig.h"
#include "daemon/node.h"
#include "daemon/node_hooks.h"
#include "daemon/queue/queue.h"
#include "daemon/session/session.h"
#include "daemon/settle/cgroups.h"
#include "daemon/settle/sampled.h"
#include "daemon/settle/settle.h"
#include "daemon/settle/strays.h"
#include "daemon/slicing/slicing.h"
#include "daemon/slicing/usage.h"
#include "daemon/store/store.h"
#include "daemon/supervisor/supervise.h"
#include "daemon/upgrade/takeover.h"
#include "daemon/upgrade/upgrade.h"
#include "daemon/waiting/quotas.h"
#include "daemon/waiting/waiting.h"

/* The tick while requests wait or sessions end by the clock, and while nothing is timed. */
#define TICK_BUSY_MS 100
#define TICK_IDLE_MS 1000
#define SECOND_NS 1000000000ull
/* Memory that programs outside carve give back is waited for with a twentieth of a thread. */
#define WAITING_PARTS 20

/* One that was not begun has no loop. */
static void close_handle(void *handle)
{
	if (((uv_handle_t *)handle)->loop && !uv_is_closing(handle))
		uv_close(handle, NULL);
}

static void node_stop(struct node *node, const char *why)
{
	if (node->stopping)
		return;
	log_event(LOG_INFO, "carved.stopping reason=\"%s\"", why);
	supervisor_tell("STOPPING=1");
	node->stopping = true;
	probe_stop(&node->probe);
	upgrade_stop(node);
	/* Else they would be told that it failed. */
	queues_settle(node->queues);
	http_server_stop(node->http);
	queues_stop(node->queues);
	node->queues = NULL;
	mig_stop(node->mig);
	cgroups_stop(node->sessions.cgroups);
	sessions_free(&node->sessions);
	keep_stop(&node->keep);
	privileges_stop(&node->privileges);
	descriptors_free(&node->settling);
	orphans_free(&node->settling);
	strays_free(&node->settling);
	quotas_free(&node->quotas);
	attach_server_stop(node->attach);
	usage_stop(steal_ptr(&node->usage));
	close_handle(&node->prepare);
	close_handle(&node->tick);
	close_handle(&node->control);
	close_handle(&node->sessions.reap);
	close_handle(&node->settling.quiesce_timer);
	close_handle(&node->on_term);
	close_handle(&node->on_int);
	close_handle(&node->on_hup);
	/* Claims are handles of the loop; a sample that still runs reads none of them. */
	pool_unclaim(&node->pool);
}

void node_restart(struct node *node, const char *why, bool renews)
{
	log_event(LOG_WARNING, "carved.restarts reason=\"%s\"", why);
	keep_flush(&node->keep);
	/* As if it were killed: there is one way back. */
	_exit(renews ? SUPERVISE_RENEW : EXIT_CODE_FAILED);
}

static void node_fail(struct node *node, const char *what)
{
	node->exit_code = EXIT_CODE_FAILED;
	node_stop(node, what);
}

static void on_warden_ended(void *context)
{
	struct node *node = context;

	log_event(LOG_ERROR, "warden.ended");
	node_restart(node, "its warden ended", false);
}

/* ---- steps by the clock ------------------------------------------------------------------ */

/* A session that is to end in an hour does so in an hour, also where somebody sets the clock. */
static void clock_follow(struct node *node, int64_t now)
{
	int64_t step = clock_step(&node->clock_ahead, now, now_boottime_ns());

	for (struct session *s = step ? node->sessions.first : NULL; s; s = s->next) {
		if (!s->record.ends_at)
			continue;
		s->record.ends_at += step;
		/* The next daemon would go by the old time. */
		(void)store_session_resize(node->store, &s->record);
	}
	if (step)
		log_event(LOG_WARNING, "clock.set seconds=%.3f", (double)step / 1e9);
}

static void sessions_tick(struct node *node)
{
	int64_t now = now_realtime_ns();

	clock_follow(node, now);
	for (struct session *s = node->sessions.timed_count ? node->sessions.first : NULL, *next; s;
	     s = next) {
		next = s->next;
		if (s->state != SESSION_ACTIVE) {
			session_continue_end(s);
		} else if (s->record.ends_at && now >= s->record.ends_at) {
			session_commands_end(s, NULL);
			session_end(s, "its time was up");
		}
	}
}

/* The driver's figures are compared with the ledgers of living processes once a second; commands
 * may have children that never attach. On every GPU: who bypassed the front saw them all. */
static void settle_tick(struct node *node)
{
	const struct session *s = node->sessions.first;

	while (s && !s->processes && !s->holders)
		s = s->next;
	if (s || strays_any(&node->settling))
		pool_refresh(&node->pool, POOL_ALL);
}

static bool session_is_left(const struct session *s)
{
	for (uint32_t i = 0; i < s->record.gpu_count; i++)
		if (s->pool_gpu[i] >= 0 &&
		    pool_gpu_is_left(&s->sessions->pool->gpu[s->pool_gpu[i]]))
			return true;
	return false;
}

/* A system daemon may have come, or one that had a GPU may have gone. Sessions on a GPU that is
 * left to the system daemon go on as long as somebody is in them: their users' commands speak to
 * the system daemon by now. */
static void claims_tick(struct node *node)
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
			session_end(s, "its GPU is the system daemon's");
	}
}

static bool node_idle(const struct node *node)
{
	return node->ready && !queues_busy(node->queues) && !node->sessions.first &&
	       !node->waiting.first && !node->sessions.drains && !http_connections(node->http) &&
	       !attach_connections(node->attach);
}

/* A service may not open the nodes of a module that came after it had started; one that systemd
 * starts anew may. It waits for calls that a restart would end. */
static const char *devices_look(const struct node *node)
{
	if (!privileges_guarded(&node->privileges) || node->waiting.first ||
	    !(devices_loaded() & ~node->devices))
		return NULL;
	return "the driver's module was loaded after the service had started";
}

static void second_tick(struct node *node, uint64_t now)
{
	unsigned recorded = store_retry(node->store);

	if (recorded)
		log_event(LOG_INFO, "store.recorded ends=%u", recorded);
	supervisor_tell("WATCHDOG=1");
	claims_tick(node);
	gpu_states_look(&node->pool);
	owner_refresh(&node->loop);
	takeover_accounts_look(node);
	mig_tick(node->mig);
	cgroups_tick(node->sessions.cgroups);
	attach_tick(node->attach);
	http_tick(node->http);
	rights_tick();
	settle_tick(node);
	queues_tick(node->queues);
	if (!node_idle(node))
		node->busy_ns = now;
	/* Requests wait meanwhile: a context that is nobody's is in the figures. */
	if (node->ready && !node->waiting.first && !node->sessions.drains &&
	    probe_due(&node->probe, now)) {
		node->ready = false;
		node->ready_sample = 0;
		probe_again(&node->probe);
	}
	pool_look_for_driver(&node->pool);
	launcher_tick(&node->launcher);
	const char *stop = files_look(node);
	if (!stop)
		stop = devices_look(node);
	if (stop)
		node_restart(node, stop, false);
	if (files_are_unwanted(node))
		node_stop(node, "its directory was removed");
	else if (node->options.idle_exit_ns &&
		 now - MAX(node->busy_ns, attach_heard_ns(node->attach)) >=
			 node->options.idle_exit_ns)
		node_stop(node, "idle");
}

static void on_tick(uv_timer_t *timer)
{
	struct node *node = timer->data;
	uint64_t now = now_monotonic_ns();

	sessions_tick(node);
	attach_swept(node->attach);
	if (node->waiting.first) {
		if (!pool_pause_ns(&node->pool, WAITING_PARTS, SECOND_NS))
			pool_refresh(&node->pool, POOL_ALL);
		waiting_kick(&node->waiting);
	}
	if (now - node->second_ns >= SECOND_NS) {
		node->second_ns = now;
		second_tick(node, now);
	}
}

/* The work of each second is not put off: requests that keep coming change the tick all the time.
 */
static void tick_set(struct node *node, uint64_t wanted_ms)
{
	uint64_t passed_ns = now_monotonic_ns() - node->second_ns;
	uint64_t left_ms = passed_ns < SECOND_NS ? (SECOND_NS - passed_ns) / 1000000 + 1 : 0;

	node->tick_ms = wanted_ms;
	uv_timer_start(&node->tick, on_tick, MIN(wanted_ms, left_ms), wanted_ms);
}

static void on_prepare(uv_prepare_t *prepare)
{
	struct node *node = prepare->data;

	fair_pass(&node->turns);
	if (node->waiting.dirty && node->ready)
		waiting_run(&node->waiting);
	queues_run(node->queues);
	uint64_t wanted =
		node->waiting.first || node->sessions.timed_count ? TICK_BUSY_MS : TICK_IDLE_MS;
	if (wanted != node->tick_ms)
		tick_set(node, wanted);
	http_prepare(node->http);
	usage_prepare(node->usage);
	names_look(&node->loop);
}

/* ---- calls of the pool ------------------------------------------------------------------- */

static void on_sampling(void *arg)
{
	struct node *node = arg;

	node->pool.exact =
		!node->ready || node->waiting.first || node->fresh || node->sessions.drains;
	processes_sampling(&node->settling);
}

/* Memory that samples show as used before this may be the probe's own context, which is nobody's.
 */
static void ready_check(struct node *node)
{
	if (node->ready || !node->ready_sample || node->pool.done < node->ready_sample)
		return;
	if (probe_lingers(&node->probe))
		node->ready_sample = pool_refresh(&node->pool, POOL_ALL);
	else
		node->ready = true;
}

/* A GPU that left MIG mode is as one that was just found: what a context costs there may not be
 * known, and requests wait for that. */
static void mig_follow(struct node *node)
{
	const struct pool *pool = &node->pool;
	bool probe = false;

	if (!pool->mig_changed)
		return;
	slicing_mig_changed(&node->slicing);
	for (uint32_t i = 0; i < pool->count; i++)
		probe |= pool->mig_changed >> i & 1 && pool_gpu_is_ours(&pool->gpu[i]) &&
			 !pool->gpu[i].context_bytes;
	if (probe) {
		node->ready = false;
		node->ready_sample = 0;
		probe_again(&node->probe);
	}
}

static void on_sample(void *arg)
{
	struct node *node = arg;

	if (node->stopping)
		return;
	mig_follow(node);
	gpu_states_look(&node->pool);
	ready_check(node);
	settle_sampled(&node->settling);
	mig_sampled(node->mig);
	attach_sampled(node->attach);
	session_drain(&node->sessions);
	fresh_sampled(node);
	waiting_kick(&node->waiting);
	queues_kick(node->queues);
}

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

/* The group whose members may share MIG instances. A group that is not there has no members. */
static gid_t share_group_find(const struct config *config)
{
	const char *name = config->mig_share_group;
	char *end;
	unsigned long number = strtoul(name, &end, 10);
	uint32_t group;

	if (!*name)
		return MIG_SHARE_NO_GROUP;
	if (!*end)
		return (gid_t)number;
	if (names_find_here(NAMES_OF_GROUPS, name, &group) == 0)
		return group;
	log_event(LOG_WARNING, "config.no_group key=mig_share_group group=%s", name);
	return MIG_SHARE_NO_GROUP;
}

static void on_call(struct call *call, void *unused)
{
	api_handle(call);
}

/* From here on the daemon answers: its sessions are back. */
static int node_open(struct node *node, struct error *err)
{
	int rc = quotas_load(&node->quotas);

	takeover_accounts(node);
	if (rc == 0)
		rc = slicing_load(&node->slicing);
	if (rc == 0)
		rc = mig_start(&node->sessions, &node_mig_hooks, node, &node->mig);
	if (rc == 0)
		rc = takeover_run(node);
	if (rc == 0)
		rc = waiting_load(&node->waiting);
	if (rc == 0)
		rc = cgroups_start(&node->sessions, &node->sessions.cgroups);
	if (rc == -EUCLEAN) {
		state_explain(&node->state, rc, err);
		return rc;
	}
	if (rc < 0)
		return error_set(err, EXIT_CODE_FAILED, "the sessions cannot be read back: %s",
				 strerrordesc_np(-rc));
	mig_share_among(node->mig, share_group_find(&node->config));
	mig_sessions_restored(node->mig);
	/* Slices are there without queues, too. */
	node->queues = queues_start(
		&(struct queues_host){.sessions = &node->sessions,
				      .turns = &node->turns,
				      .pool = &node->pool,
				      .waiting = &node->waiting,
				      .quotas = &node->quotas,
				      .launcher = &node->launcher,
				      .state_dir = node->state.dir,
				      .runtime = &node->runtime,
				      .ready = &node->ready,
				      .history_jobs = &node->config.history_jobs,
				      .history_text_mib = &node->config.history_text_mib,
				      .living_jobs = &node->config.living_jobs},
		&node->queues_error);
	rc = attach_server_start(&node->sessions, &node->turns, node->runtime.attach_fd,
				 &node->attach);
	if (rc == 0)
		rc = http_server_start(node, node->runtime.http_fd, on_call, &node->http);
	if (rc < 0)
		return error_set(err, EXIT_CODE_FAILED, "cannot serve: %s", strerrordesc_np(-rc));
	uv_prepare_start(&node->prepare, on_prepare);
	node->tick_ms = TICK_IDLE_MS;
	uv_timer_start(&node->tick, on_tick, TICK_IDLE_MS, TICK_IDLE_MS);
	return 0;
}

/* The driver is open from the inventory on, and GPUs keep their positions. */
static uint64_t clock_lag(const void *arg, uint64_t now_ns)
{
	const struct pool *pool = arg;
	uint64_t lag = 0;

	for (uint32_t i = 0; i < pool->count; i++)
		lag = MAX(lag, gpus_clock_lag(pool->gpus, pool->gpu[i].info.index, now_ns));
	return lag;
}

/* A driver that came after the daemon had started. */
static void on_driver(void *arg)
{
	struct node *node = arg;

	log_event(LOG_INFO, "gpu.found count=%zu", node->pool.found_count);
	node_restart(node, "the driver has GPUs now", false);
}

static void on_inventory(void *arg)
{
	struct node *node = arg;
	struct error err = {0};

	if (node->stopping)
		return;
	leases_clock(node->leases, clock_lag, &node->pool);
	if (node_open(node, &err) < 0) {
		log_event(LOG_ERROR, "carved.failed error=\"%s\"", err.message);
		node_fail(node, "cannot serve");
		return;
	}
	int rc = usage_start(&node->slicing, &node->usage);
	if (rc < 0)
		log_event(LOG_ERROR, "gpu.unmeasured error=\"%s\"", strerrordesc_np(-rc));
	files_begin(node);
	log_event(LOG_INFO, "carved.listening dir=%s state=%s version=%s", node->runtime.dir,
		  node->state.dir, CARVE_VERSION);
	supervisor_tell("READY=1");
	probe_start(&node->probe, &node->loop, &node->pool, node->store, on_costs, node);
}

/* ---- the whole --------------------------------------------------------------------------- */

static void on_signal(uv_signal_t *handle, int number)
{
	node_stop(handle->data, number == SIGTERM ? "SIGTERM" : "SIGINT");
}

/* For a start with a file that is wrong by then. A system daemon may not write in its runtime
 * directory. */
static void config_keep(struct node *node)
{
	if (!node->options.config_path)
		return;
	int rc = config_last_keep(node->options.config_path, node->state.dir);
	int other = config_last_keep(node->options.config_path, node->runtime.dir);

	node->config_kept.state = rc == 0;
	node->config_kept.runtime = other == 0;
	if (rc < 0 && other < 0)
		log_event(LOG_WARNING, "config.not_kept dir=%s error=\"%s\"", node->state.dir,
			  strerrordesc_np(-rc));
}

/* Gives the rooms their settings. */
static void config_spread(struct node *node)
{
	const struct config *config = &node->config;

	mig_share_among(node->mig, share_group_find(config));

	node->sessions.living.most = config->living_sessions;
	node->settling.over = (struct over_setting){
		.kills = config->over_policy == OVER_KILL,
		.tolerance_bytes = config->over_tolerance_bytes,
		.after_ns = config->over_after_ns,
	};
	node->slicing.wanted = config->slicing;
	/* A user's own daemon serves that user alone. */
	node->slicing.kills = config->slicing_policy == SLICING_KILL ||
			      (config->slicing_policy == SLICING_DEFAULT && node->options.system);
}

static void on_reload(uv_signal_t *handle, int number)
{
	struct node *node = handle->data;
	struct config before = node->config;
	struct error err = {0};

	if (!node->options.config_path)
		return;
	if (config_read(node->options.config_path, &node->config, &err) < 0) {
		snprintf(node->config_wrong, sizeof(node->config_wrong), "%s%s%s", err.message,
			 err.hint[0] ? "; " : "", err.hint);
		log_event(LOG_ERROR, "config.refused error=\"%s\"", node->config_wrong);
		return;
	}
	bool same_dir = !strcmp(before.state_dir, node->config.state_dir);
	snprintf(node->config_wrong, sizeof(node->config_wrong), "%s",
		 same_dir ? node->state.stays : "");
	if (!node->config_wrong[0])
		config_keep(node);
	if (!same_dir)
		log_event(LOG_WARNING, "config.later key=state_dir dir=%s", node->state.dir);
	store_keep_history(node->store, node->config.history_sessions,
			   node->config.history_per_minute);
	config_spread(node);
	log_event(LOG_INFO, "config.read path=%s", node->options.config_path);
	slicing_reload(&node->slicing);
}

/* An order of carve's own supervisor. */
static void on_order(uv_poll_t *poll, int status, int events)
{
	struct node *node = poll->data;
	char order;

	while (read(node->control_fd, &order, 1) == 1) {
		if (order == SUPERVISOR_ORDER_STOP)
			node_stop(node, "SIGTERM");
		else if (order == SUPERVISOR_ORDER_RELOAD)
			on_reload(&node->on_hup, SIGHUP);
		/* Files were removed: databases are left to the next daemon first. */
		else if (order == SUPERVISOR_ORDER_RESTART)
			node_restart(node, files_look(node) ?: "its supervisor made files anew",
				     false);
		if (node->stopping)
			return;
	}
}

static void handles_init(struct node *node)
{
	node->control_fd = supervisor_socket(SUPERVISOR_CONTROL);
	if (node->control_fd >= 0 &&
	    uv_poll_init(&node->loop, &node->control, node->control_fd) == 0) {
		node->control.data = node;
		uv_poll_start(&node->control, UV_READABLE, on_order);
	}
	uv_prepare_init(&node->loop, &node->prepare);
	uv_timer_init(&node->loop, &node->tick);
	uv_signal_init(&node->loop, &node->on_term);
	uv_signal_init(&node->loop, &node->on_int);
	uv_signal_init(&node->loop, &node->on_hup);
	node->prepare.data = node->tick.data = node;
	node->on_term.data = node->on_int.data = node->on_hup.data = node;
	uv_signal_start(&node->on_term, on_signal, SIGTERM);
	uv_signal_start(&node->on_int, on_signal, SIGINT);
	uv_signal_start(&node->on_hup, on_reload, SIGHUP);
}

static void sessions_init(struct node *node)
{
	struct sessions *sessions = &node->sessions;

	sessions->loop = &node->loop;
	sessions->pool = &node->pool;
	sessions->store = node->store;
	sessions->leases = node->leases;
	sessions->privileges = &node->privileges;
	sessions->hooks = &node_session_hooks;
	sessions->context = node;
	sessions_begin(sessions, node->config.living_sessions);
	settle_begin(&node->settling, sessions);
	node->quotas.sessions = sessions;
	node->waiting.sessions = sessions;
	node->waiting.pool = &node->pool;
	node->waiting.quotas = &node->quotas;
	crowd_begin_any(&node->waiting.crowd, WAITING_MAX);
	node->slicing.sessions = sessions;
	node->slicing.pool = &node->pool;
	node->slicing.leases = node->leases;
	config_spread(node);
}

int serve_run(struct node *node, struct error *err)
{
	api_upgrade_with(upgrade_post);
	node->started = now_realtime_ns();
	node->devices = devices_loaded();
	(void)clock_step(&node->clock_ahead, node->started, now_boottime_ns());
	node->busy_ns = now_monotonic_ns();
	keep_begin(&node->keep);
	files_note_take(node);
	if (state_open(&node->state, &node->runtime, &node->keep, &node->store, err) < 0)
		return EXIT_CODE_FAILED;
	store_keep_history(node->store, node->config.history_sessions,
			   node->config.history_per_minute);
	if (!node->config_wrong[0])
		snprintf(node->config_wrong, sizeof(node->config_wrong), "%s", node->state.stays);
	if (!node->config_wrong[0])
		config_keep(node);
	int rc = leases_start(&node->leases);
	if (rc < 0) {
		error_set(err, EXIT_CODE_FAILED, "cannot start: %s", strerrordesc_np(-rc));
		store_close(node->store);
		return EXIT_CODE_FAILED;
	}
	separate_settle();
	owner_load();
	peer_load();
	uv_loop_init(&node->loop);
	sessions_init(node);
	handles_init(node);
	rc = keep_start(&node->keep, &node->loop);
	if (rc < 0)
		node_fail(node, strerrordesc_np(-rc));
	rc = privileges_start(&node->privileges, &node->loop, on_warden_ended, node);
	if (rc < 0)
		node_fail(node, strerrordesc_np(-rc));
	launcher_begin(&node->launcher, &node->privileges.warden);
	node->pool.keep = &node->keep;
	node->pool.store = node->store;
	node->pool.on_inventory = on_inventory;
	node->pool.on_driver = on_driver;
	node->pool.on_sampling = on_sampling;
	node->pool.on_sample = on_sample;
	node->pool.arg = node;
	rc = pool_start(&node->pool, &node->loop);
	if (rc < 0)
		node_fail(node, strerrordesc_np(-rc));
	uv_run(&node->loop, UV_RUN_DEFAULT);
	leases_clock(node->leases, NULL, NULL);
	mig_free(node->mig);
	cgroups_free(node->sessions.cgroups);
	pool_close(&node->pool);
	uv_loop_close(&node->loop);
	names_stop();
	leases_stop(node->leases);
	store_close(node->store);
	state_close(&node->state);
	return node->exit_code;
}
