/* Calls of the kubelet that take their time. Threads of the loop's pool carry them out; each is
 * answered before the kubelet gives it up, whatever its thread waits for. Those that give room back
 * never stand behind those that wait for room. All functions are for the loop's thread. */
#pragma once

#include <stdbool.h>
#include <uv.h>

/* The state of a call. */
enum call_state {
	CALL_WAITS, /* for a thread */
	CALL_RUNS,
	CALL_LATE, /* answered, as its time was up; its thread goes on */
	CALL_OVER, /* to be freed */
};
#define CALL_STATES 4

enum call_event {
	CALL_EVENT_BEGIN,
	CALL_EVENT_DONE,    /* its thread has ended */
	CALL_EVENT_TIME_UP, /* the kubelet will not wait much longer */
};
#define CALL_EVENTS 3

/* False: that cannot happen. Pure. */
bool call_state_next(enum call_state from, enum call_event event, enum call_state *ret);

/* Each kind has threads of its own. */
enum call_kind {
	CALL_TAKES, /* room */
	CALL_GIVES,
};
#define CALL_KINDS 2
/* As many run at a time, by kind. */
#define CALLS_TAKING 48u
#define CALLS_GIVING 16u
/* Threads that the loop's pool needs. */
#define CALLS_THREADS (CALLS_TAKING + CALLS_GIVING)

/* One call; embedded in what it belongs to, whose owner fills in the first part. */
struct call {
	enum call_kind kind;
	void (*run)(struct call *call);  /* in a thread */
	void (*done)(struct call *call); /* answers, in time */
	/* Answers, as the time is up; `runs`: run() is under way, and what it writes is not read.
	 */
	void (*late)(struct call *call, bool runs);
	void (*free)(struct call *call); /* nobody uses it any more */
	/* calls.c's: */
	enum call_state state;
	uv_work_t work;
	struct calls *calls;
	struct call *next;
	long long due_ms;
};

struct calls {
	uv_loop_t *loop;
	uv_timer_t timer;
	struct call *first; /* in the order in which they came */
	unsigned running[CALL_KINDS];
	unsigned most_ms; /* a call is answered after so long */
};

/* `calls` outlives the loop's handles. */
void calls_open(struct calls *calls, uv_loop_t *loop, unsigned most_ms);
/* Takes the call. It is freed by its free() alone. */
void calls_add(struct calls *calls, struct call *call);
/* Whether the call's time is up, or nearly. For its thread, too. */
bool call_is_late(const struct call *call);
/* Answers all that have no thread yet. The others are answered as the loop runs on. */
void calls_close(struct calls *calls);
