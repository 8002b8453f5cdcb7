/* The daemon's loop. serve_run() starts the first rooms and runs the loop; the pool then reads the
 * inventory of GPUs on another thread, and on_inventory() starts the other rooms. From then on the
 * daemon serves. Before the loop sleeps, users' turns are passed and each room has its round. The
 * timer ticks each second, or ten times a second while requests wait or sessions end by the clock.
 *
 * The loop ends when all its handles are closed: loop_leave() has the rooms close theirs. A reason
 * to be started anew does not end the loop but the process, as if it were killed, so that there is
 * one way back (node_restart()). Signals and the orders of carve's own supervisor come as events of
 * the loop, too. */
#include "daemon/serve.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/file.h"
#include "base/macros.h"
#include "base/units.h"
#include "daemon/api/http.h"
#include "daemon/attach/attach.h"
#include "daemon/events/events.h"
#include "daemon/files.h"
#include "daemon/host/devices.h"
#include "daemon/host/log.h"
#include "daemon/host/supervisor.h"
#include "daemon/lease/leases.h"
#include "daemon/node.h"
#include "daemon/queue/queues.h"
#include "daemon/rooms.h"
#include "daemon/session/session.h"
#include "daemon/settings.h"
#include "daemon/settle/settle.h"
#include "daemon/store/store.h"
#include "daemon/waiting/waiting.h"

/* The tick while requests wait or sessions end by the clock, and while nothing is timed. */
#define TICK_BUSY_MS 100
#define TICK_IDLE_MS 1000
#define SECOND_NS 1000000000ull
/* Memory that programs outside carve give back is waited for with a twentieth of a thread. */
#define WAITING_PARTS 20

/* A handle that was not begun has no loop. */
static void close_handle(void *handle)
{
	if (((uv_handle_t *)handle)->loop && !uv_is_closing(handle))
		uv_close(handle, NULL);
}

/* All handles of the loop are closed, so it ends. */
static void loop_leave(struct node *node)
{
	node->stopping = true;
	rooms_stop(node);
	close_handle(&node->check);
	close_handle(&node->prepare);
	close_handle(&node->tick);
	close_handle(&node->control);
	close_handle(&node->on_term);
	close_handle(&node->on_int);
	close_handle(&node->on_hup);
}

static void node_stop(struct node *node, const char *why)
{
	if (node->stopping)
		return;
	log_event(LOG_INFO, "carved.stopping reason=\"%s\"", why);
	supervisor_tell("STOPPING=1");
	loop_leave(node);
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

static void time_end(struct session *s)
{
	char time[UNITS_TEXT_SIZE], why[STORE_REASON_SIZE] = "its time was up";

	if (s->record.timeout_ns)
		snprintf(why, sizeof(why), "its time of %s was up",
			 units_format_exact_duration(s->record.timeout_ns, time));
	session_commands_end(s, NULL);
	session_end(s, STORE_END_TIME, why);
}

static void sessions_clock_tick(struct node *node)
{
	int64_t now = now_realtime_ns();

	clock_follow(node, now);
	for (struct session *s = node->sessions.timed_count ? node->sessions.first : NULL, *next; s;
	     s = next) {
		next = s->next;
		if (s->state != SESSION_ACTIVE) {
			session_continue_end(s);
		} else if (s->record.ends_at && now >= s->record.ends_at) {
			time_end(s);
		}
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
	supervisor_tell("WATCHDOG=1");
	rooms_tick(node);
	if (!node_idle(node))
		node->busy_ns = now;
	const char *stop = files_look(node);
	if (!stop)
		stop = devices_look(node);
	if (stop)
		keep_restart(&node->keep, stop, false);
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

	sessions_clock_tick(node);
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
	rooms_round(node);
	uint64_t wanted =
		node->waiting.first || node->sessions.timed_count ? TICK_BUSY_MS : TICK_IDLE_MS;
	if (wanted != node->tick_ms)
		tick_set(node, wanted);
	metrics_pass_end(&node->health, now_monotonic_ns());
}

static void on_check(uv_check_t *check)
{
	struct node *node = check->data;

	metrics_pass_begin(&node->health, now_monotonic_ns());
}

/* ---- calls of the pool ------------------------------------------------------------------- */

static void on_sampling(void *arg)
{
	struct node *node = arg;

	node->pool.exact =
		!node->ready || node->waiting.first || node->fresh || node->sessions.drains;
	processes_sampling(&node->settling);
}

static void on_sample(void *arg)
{
	struct node *node = arg;

	if (!node->stopping)
		rooms_sampled(node);
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
	keep_restart(&node->keep, "the driver has GPUs now", false);
}

static void start_record(struct node *node)
{
	char text[64], sessions[UNITS_TEXT_SIZE];
	uint64_t count = 0;

	for (const struct session *s = node->sessions.first; s; s = s->next)
		count++;
	snprintf(text, sizeof(text), "%s %s on", units_format_count(count, "session", sessions),
		 count == 1 ? "goes" : "go");
	events_add(node->events, &(struct event){.kind = EVENT_STARTED,
						 .subject = "carved",
						 .after = CARVE_VERSION,
						 .text = count ? text : NULL});
	/* The same place has the reason for which the state directory stays. */
	if (node->config_wrong[0] && strcmp(node->config_wrong, node->state.stays) != 0)
		events_add(node->events, &(struct event){.kind = EVENT_CONFIG_REFUSED,
							 .subject = node->options.config_path,
							 .text = node->config_wrong});
}

static void on_inventory(void *arg)
{
	struct node *node = arg;
	struct error err = {0};

	if (node->stopping)
		return;
	leases_clock(node->leases, clock_lag, &node->pool);
	if (rooms_start(node, &err) < 0) {
		log_event(LOG_ERROR, "carved.failed error=\"%s\"", err.message);
		node->exit_code = EXIT_CODE_FAILED;
		node_stop(node, "cannot serve");
		return;
	}
	node->serving = true;
	uv_prepare_start(&node->prepare, on_prepare);
	uv_check_start(&node->check, on_check);
	node->tick_ms = TICK_IDLE_MS;
	uv_timer_start(&node->tick, on_tick, TICK_IDLE_MS, TICK_IDLE_MS);
	log_event(LOG_INFO, "carved.listening dir=%s state=%s version=%s", node->runtime.dir,
		  node->state.dir, CARVE_VERSION);
	start_record(node);
	keep_tell(&node->keep, "READY=1");
}

/* ---- the whole --------------------------------------------------------------------------- */

static void on_signal(uv_signal_t *handle, int number)
{
	node_stop(handle->data, number == SIGTERM ? "SIGTERM" : "SIGINT");
}

static void on_reload(uv_signal_t *handle, int number)
{
	settings_reload(handle->data);
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
			settings_reload(node);
		/* Files were removed: databases are left to the next daemon first. */
		else if (order == SUPERVISOR_ORDER_RESTART)
			keep_restart(&node->keep,
				     files_look(node) ?: "its supervisor made files anew", false);
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
	uv_check_init(&node->loop, &node->check);
	uv_prepare_init(&node->loop, &node->prepare);
	uv_timer_init(&node->loop, &node->tick);
	uv_signal_init(&node->loop, &node->on_term);
	uv_signal_init(&node->loop, &node->on_int);
	uv_signal_init(&node->loop, &node->on_hup);
	node->check.data = node->prepare.data = node->tick.data = node;
	node->on_term.data = node->on_int.data = node->on_hup.data = node;
	uv_signal_start(&node->on_term, on_signal, SIGTERM);
	uv_signal_start(&node->on_int, on_signal, SIGINT);
	uv_signal_start(&node->on_hup, on_reload, SIGHUP);
}

int serve_run(struct node *node, struct error *err)
{
	node->started = now_realtime_ns();
	node->devices = devices_loaded();
	(void)clock_step(&node->clock_ahead, node->started, now_boottime_ns());
	node->busy_ns = now_monotonic_ns();
	separate_settle();
	uv_loop_init(&node->loop);
	handles_init(node);
	node->pool.on_inventory = on_inventory;
	node->pool.on_driver = on_driver;
	node->pool.on_sampling = on_sampling;
	node->pool.on_sample = on_sample;
	node->pool.arg = node;
	if (rooms_start(node, err) < 0) {
		node->exit_code = EXIT_CODE_FAILED;
		loop_leave(node);
	}
	uv_run(&node->loop, UV_RUN_DEFAULT);
	rooms_free(node);
	uv_loop_close(&node->loop);
	return node->exit_code;
}
