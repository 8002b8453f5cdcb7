/* Decides who has a GPU when: a pure function of what was submitted when, on a virtual clock. No
 * I/O, no clock of its own, one thread.
 *
 * The compute engine serves clients (processes) round robin, one slice each, the whole engine to
 * one client at a time. A client without work gives its turn up at once, and comes back at the end
 * of the round. During its turn the heads of all its queues run together: at full speed while their
 * fills sum up to at most 1000, slowed down in proportion above that. Each copy engine serves one
 * copy at a time, in order of arrival. Queues run their items in order, whichever engines they are
 * for.
 *
 * The engine's own clock is the caller's less `shift`. Where the client that has the turn still
 * plays what comes next (WIRE_ITEM_MORE), it stands still: what is handed in then counts as handed
 * in at once. The time that it is behind by then it makes up for in no time while there is work. If
 * work ends before that, it keeps that in mind for a moment (ENGINE_OWED_NS). A client that hears
 * of that end late hands in late what comes next. That counts as handed in so much sooner if it is
 * short. The rest, or a large debt, turns into shift. So nobody's slowness in playing costs or
 * gives time on the GPU. It stands still for ENGINE_PATIENCE_NS at most; a client that is later
 * than that has no work meanwhile. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "host/list.h"
#include "host/meter.h"
#include "host/wire.h"

#define ENGINE_SLICE_NS 2000000u
/* Longer items are refused. */
#define ENGINE_ITEM_NS_MAX (1ull << 50)
#define ENGINE_WAITS_MAX 8u
/* How long the engine stands still for work on its way where others wait for it, and where nobody
 * does. */
#define ENGINE_PATIENCE_NS 200000000u
#define ENGINE_PATIENCE_ALONE_NS 10000000000u
/* More than this it does not make up for: time on the GPU would hardly take any. */
#define ENGINE_CATCH_UP_NS 50000000u
/* How long it waits for work to make up for it with, and for how much. */
#define ENGINE_OWED_NS 5000000u
/* Work that goes on for longer is not short: a program may well look at its own clock beside it. */
#define ENGINE_SHORT_NS 1000000u

struct engine_client;
struct engine_queue;

struct engine_item {
	uint64_t ns;
	uint64_t
		total_ns; /* the time of the queue up to and with this item: set by engine_submit */
	uint64_t bytes;
	uint32_t lag_ns;
	uint16_t fill;
	uint16_t stamp_start, stamp_done;
	uint8_t engine; /* enum wire_engine */
	uint8_t flags;  /* enum wire_item_flag */
};

/* Events, told in order of time from within engine_advance, _submit and _cancel. Must not
 * call back into the engine. */
struct engine_events {
	void (*item_started)(struct engine_queue *q, const struct engine_item *item, uint64_t at);
	void (*item_done)(struct engine_queue *q, const struct engine_item *item, uint64_t at);
	/* The client had the compute engine; turns that follow each other undisturbed are one. */
	void (*turn)(struct engine_client *client, uint64_t from, uint64_t to);
	void (*copy)(struct engine_queue *q, const struct engine_item *item, uint64_t from,
		     uint64_t to);
};

struct engine {
	const struct engine_events *events;
	uint64_t now;   /* by its own clock, like all times but those that say otherwise */
	uint64_t shift; /* from here to the caller's clock; never falls */
	uint64_t slice_ns;
	bool still;
	uint64_t still_since, still_until; /* by the caller's clock */
	uint64_t seen;                     /* the last time it was told, by the caller's clock */
	uint64_t waited_until;             /* when it last stopped standing still, or before */
	uint64_t owed; /* without work, and behind by that: until then by the caller's clock */
	uint64_t owed_until;
	uint64_t lent,
		lent_until; /* the part of its debt lent to work that may be short: until then */
	struct list ring;   /* clients with compute work; the first has the turn */
	uint64_t turn_start, slice_end;
	struct list copies[WIRE_ENGINES]; /* queues whose head is a copy; the first runs */
	uint64_t busy_ns;                 /* compute */
	uint64_t copied_bytes[WIRE_ENGINES];
	struct meter meter, copy_meter;
};

struct engine_client {
	struct engine *engine;
	void *owner;
	struct list ring_node; /* in engine.ring, or empty */
	struct list ready;     /* queues whose head is compute work */
	uint64_t busy_ns;
	uint64_t copy_ns;
	struct meter meter, copy_meter;
};

struct engine_wait {
	uint64_t count;
	enum wire_wait what;
};

struct engine_queue {
	struct engine_client *client;
	void *owner;
	struct list node;          /* in client.ready or engine.copies[] */
	struct engine_item *items; /* ring of WIRE_QUEUE_ITEMS_MAX, or NULL before the first */
	uint32_t head, count;
	bool head_started;
	bool awaited;          /* no item, but the next one is on its way */
	bool computing;        /* node is in client.ready */
	uint16_t fill;         /* the fill of the last compute item that was its head */
	uint64_t remaining_ps; /* the head's rest, running alone */
	uint64_t head_from;    /* when it started */
	uint64_t total_ns;     /* the time of all items ever submitted */
	uint64_t submitted, started, done;
	struct engine_wait waits[ENGINE_WAITS_MAX];
	uint32_t wait_count;
	bool wait_any; /* more waits than fit: any progress wakes */
};

void engine_init(struct engine *e, const struct engine_events *events, uint64_t now);
void engine_client_init(struct engine_client *c, struct engine *e, void *owner);
/* Its queues must be finished first. */
void engine_client_finish(struct engine_client *c);
void engine_queue_init(struct engine_queue *q, struct engine_client *c, void *owner);
/* Drops its items (a turn may end). The engine must stand at the present time. */
void engine_queue_finish(struct engine_queue *q);

/* Lets time pass up to `now` by the caller's clock, or as far as what is handed in allows; times in
 * the past change nothing. */
void engine_advance(struct engine *e, uint64_t now);
/* Adds an item to a queue of an engine that was just advanced to the present time. -EAGAIN: the
 * queue is full; -ENOMEM. */
int engine_submit(struct engine_queue *q, const struct engine_item *item);
/* Remembers that somebody waits for this. */
void engine_wait(struct engine_queue *q, enum wire_wait what, uint64_t count);
/* Forgets the waits that are fulfilled; true if there were any. */
bool engine_wait_fulfil(struct engine_queue *q);
/* No wait of this queue is fulfilled before this time by the caller's clock; UINT64_MAX: none
 * without a new item. */
uint64_t engine_queue_wake(const struct engine_queue *q);
/* No item at all is done before this time by the caller's clock; UINT64_MAX: nothing runs. */
uint64_t engine_next_done(const struct engine *e);
/* The owner of the client that has the turn, since engine.turn_start; NULL: nobody. */
void *engine_turn_owner(const struct engine *e);
/* True while this client has the turn. */
bool engine_client_on(const struct engine_client *c);
/* Until when the queue's work runs undisturbed for certain, even if other clients come: the end of
 * the slice. It is engine.now where its client has no turn, or its queues slow each other down.
 * Another kernel of the same client may still come. */
uint64_t engine_queue_sure_until(const struct engine_queue *q);
