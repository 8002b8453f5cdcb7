#include "integrations/kubernetes/node/calls.h"

#include "base/clock.h"

#define TICK_MS 250
#define IMPOSSIBLE (-1)

static const int next[CALL_STATES][CALL_EVENTS] = {
	[CALL_WAITS] =
		{
			[CALL_EVENT_BEGIN] = CALL_RUNS,
			[CALL_EVENT_DONE] = IMPOSSIBLE,
			[CALL_EVENT_TIME_UP] = CALL_OVER,
		},
	[CALL_RUNS] =
		{
			[CALL_EVENT_BEGIN] = IMPOSSIBLE,
			[CALL_EVENT_DONE] = CALL_OVER,
			[CALL_EVENT_TIME_UP] = CALL_LATE,
		},
	[CALL_LATE] =
		{
			[CALL_EVENT_BEGIN] = IMPOSSIBLE,
			[CALL_EVENT_DONE] = CALL_OVER,
			[CALL_EVENT_TIME_UP] = CALL_LATE,
		},
	[CALL_OVER] =
		{
			[CALL_EVENT_BEGIN] = IMPOSSIBLE,
			[CALL_EVENT_DONE] = IMPOSSIBLE,
			[CALL_EVENT_TIME_UP] = IMPOSSIBLE,
		},
};

bool call_state_next(enum call_state from, enum call_event event, enum call_state *ret)
{
	if (next[from][event] == IMPOSSIBLE)
		return false;
	*ret = (enum call_state)next[from][event];
	return true;
}

bool call_is_late(const struct call *call)
{
	return now_monotonic_ms() >= call->due_ms;
}

/* Carries out what follows from an event. A call that is over is freed by calls_sweep(). */
static void call_event(struct call *call, enum call_event event)
{
	enum call_state before = call->state;

	if (!call_state_next(before, event, &call->state))
		return;
	if (event == CALL_EVENT_TIME_UP && before != CALL_LATE)
		call->late(call, before == CALL_RUNS);
	if (event == CALL_EVENT_DONE && before == CALL_RUNS)
		call->done(call);
}

static void calls_sweep(struct calls *calls)
{
	for (struct call **at = &calls->first; *at;) {
		struct call *call = *at;

		if (call->state != CALL_OVER) {
			at = &call->next;
			continue;
		}
		*at = call->next;
		call->free(call);
	}
	if (!calls->first)
		uv_timer_stop(&calls->timer);
}

static void calls_begin(struct calls *calls);

static void on_work(uv_work_t *work)
{
	struct call *call = work->data;

	call->run(call);
}

static void on_worked(uv_work_t *work, int status)
{
	struct call *call = work->data;
	struct calls *calls = call->calls;

	calls->running[call->kind]--;
	call_event(call, CALL_EVENT_DONE);
	calls_sweep(calls);
	calls_begin(calls);
}

/* Gives threads to those that came first. */
static void calls_begin(struct calls *calls)
{
	static const unsigned most[CALL_KINDS] = {
		[CALL_TAKES] = CALLS_TAKING,
		[CALL_GIVES] = CALLS_GIVING,
	};

	for (struct call *call = calls->first; call; call = call->next) {
		if (call->state != CALL_WAITS || calls->running[call->kind] >= most[call->kind])
			continue;
		call_event(call, CALL_EVENT_BEGIN);
		calls->running[call->kind]++;
		call->work.data = call;
		uv_queue_work(calls->loop, &call->work, on_work, on_worked);
	}
}

static void on_tick(uv_timer_t *timer)
{
	struct calls *calls = timer->data;

	for (struct call *call = calls->first; call; call = call->next)
		if (call_is_late(call))
			call_event(call, CALL_EVENT_TIME_UP);
	calls_sweep(calls);
}

void calls_open(struct calls *calls, uv_loop_t *loop, unsigned most_ms)
{
	*calls = (struct calls){.loop = loop, .most_ms = most_ms};
	uv_timer_init(loop, &calls->timer);
	calls->timer.data = calls;
}

void calls_add(struct calls *calls, struct call *call)
{
	struct call **last = &calls->first;

	while (*last)
		last = &(*last)->next;
	*last = call;
	call->next = NULL;
	call->calls = calls;
	call->state = CALL_WAITS;
	call->due_ms = now_monotonic_ms() + calls->most_ms;
	if (!uv_is_active((uv_handle_t *)&calls->timer))
		uv_timer_start(&calls->timer, on_tick, TICK_MS, TICK_MS);
	calls_begin(calls);
}

void calls_close(struct calls *calls)
{
	for (struct call *call = calls->first; call; call = call->next)
		if (call->state == CALL_WAITS)
			call_event(call, CALL_EVENT_TIME_UP);
	calls_sweep(calls);
}
