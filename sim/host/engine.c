#include "host/engine.h"

#include <errno.h>
#include <stdlib.h>

#include "base/macros.h"

/* Kernels that slow each other down share the GPU in small steps: what is left of one is counted so
 * finely that the steps' rounding does not add up. */
#define PS_PER_NS 1000ull
/* A kernel that fills the GPU. */
#define FILL_ONE 1000ull

static struct engine_client *engine_current(const struct engine *e)
{
	return list_empty(&e->ring) ? NULL
				    : list_entry(e->ring.next, struct engine_client, ring_node);
}

static struct engine_queue *queue_of(struct list *node)
{
	return list_entry(node, struct engine_queue, node);
}

static struct engine_item *queue_head(const struct engine_queue *q)
{
	return &q->items[q->head % WIRE_QUEUE_ITEMS_MAX];
}

bool engine_client_on(const struct engine_client *c)
{
	return engine_current(c->engine) == c;
}

void *engine_turn_owner(const struct engine *e)
{
	const struct engine_client *c = engine_current(e);

	return c ? c->owner : NULL;
}

void engine_init(struct engine *e, const struct engine_events *events, uint64_t now)
{
	*e = (struct engine){
		.events = events, .now = now, .seen = now, .slice_ns = ENGINE_SLICE_NS};
	list_init(&e->ring);
	for (size_t i = 0; i < ARRAY_SIZE(e->copies); i++)
		list_init(&e->copies[i]);
}

void engine_client_init(struct engine_client *c, struct engine *e, void *owner)
{
	*c = (struct engine_client){.engine = e, .owner = owner};
	list_init(&c->ring_node);
	list_init(&c->ready);
}

void engine_queue_init(struct engine_queue *q, struct engine_client *c, void *owner)
{
	*q = (struct engine_queue){.client = c, .owner = owner};
	list_init(&q->node);
}

static void head_start(struct engine_queue *q)
{
	struct engine *e = q->client->engine;

	q->head_started = true;
	q->head_from = e->now;
	q->started++;
	e->events->item_started(q, queue_head(q), e->now);
}

/* The rest of the slice under way, or of the one that would be if somebody had disputed those
 * before it. */
static uint64_t slice_left(const struct engine *e)
{
	if (e->slice_end > e->now)
		return e->slice_end - e->now;
	return e->slice_ns - (e->now - e->turn_start) % e->slice_ns;
}

/* The first of the ring gets the engine now. */
static void turn_begin(struct engine *e)
{
	struct engine_client *c = engine_current(e);

	e->turn_start = e->now;
	e->slice_end = e->now + e->slice_ns;
	if (!c)
		return;
	list_for_each (node, &c->ready) {
		if (!queue_of(node)->awaited && !queue_of(node)->head_started)
			head_start(queue_of(node));
	}
}

static void turn_end(struct engine *e, struct engine_client *c)
{
	if (e->now > e->turn_start)
		e->events->turn(c, e->turn_start, e->now);
}

static void ring_enter(struct engine_client *c)
{
	struct engine *e = c->engine;
	bool idle = list_empty(&e->ring);
	bool alone = list_single(&e->ring);

	list_append(&e->ring, &c->ring_node);
	if (idle)
		turn_begin(e);
	else if (alone)
		e->slice_end = e->now + slice_left(e);
}

static void ready_enter(struct engine_queue *q)
{
	struct engine_client *c = q->client;
	struct engine *e = c->engine;

	if (!q->computing) {
		list_append(&c->ready, &q->node);
		q->computing = true;
	}
	if (list_empty(&c->ring_node))
		ring_enter(c);
	if (engine_current(e) == c && !q->awaited && !q->head_started)
		head_start(q);
}

static void ready_leave(struct engine_queue *q)
{
	struct engine_client *c = q->client;
	struct engine *e = c->engine;

	if (!q->computing)
		return;
	list_remove(&q->node);
	q->computing = false;
	if (!list_empty(&c->ready))
		return;
	bool on = engine_current(e) == c;
	if (on)
		turn_end(e, c);
	list_remove(&c->ring_node);
	if (on)
		turn_begin(e);
}

static void copy_enter(struct engine_queue *q, struct list *copies)
{
	list_append(copies, &q->node);
	if (list_single(copies))
		head_start(q);
}

static void copy_leave(struct engine_queue *q, struct list *copies)
{
	list_remove(&q->node);
	if (!list_empty(copies) && !queue_of(copies->next)->head_started)
		head_start(queue_of(copies->next));
}

/* Takes the finished head off. Leaves the queue where it was listed. */
static void head_pop(struct engine_queue *q)
{
	struct engine *e = q->client->engine;
	struct engine_item item = *queue_head(q);

	q->done++;
	q->head++;
	q->count--;
	q->head_started = false;
	q->awaited = item.flags & WIRE_ITEM_MORE;
	e->events->item_done(q, &item, e->now);
}

/* Brings the queue's head, if it has one, to the engine it is for. */
static void queue_dispatch(struct engine_queue *q)
{
	struct engine *e = q->client->engine;

	while (q->count) {
		struct engine_item *item = queue_head(q);

		q->awaited = false;
		q->remaining_ps = item->ns * PS_PER_NS;
		if (item->engine == WIRE_ENGINE_COMPUTE) {
			q->fill = item->fill;
			ready_enter(q);
			return;
		}
		if (item->engine != WIRE_ENGINE_NONE) {
			ready_leave(q);
			copy_enter(q, &e->copies[item->engine]);
			return;
		}
		head_start(q);
		head_pop(q);
	}
	if (q->awaited)
		ready_enter(q);
	else
		ready_leave(q);
}

int engine_submit(struct engine_queue *q, const struct engine_item *item)
{
	if (q->count == WIRE_QUEUE_ITEMS_MAX)
		return -EAGAIN;
	if (!q->items) {
		q->items = calloc(WIRE_QUEUE_ITEMS_MAX, sizeof(*q->items));
		if (!q->items)
			return -ENOMEM;
	}
	struct engine_item *slot = &q->items[(q->head + q->count) % WIRE_QUEUE_ITEMS_MAX];
	*slot = *item;
	if (!slot->fill)
		slot->fill = FILL_ONE;
	q->total_ns += item->ns;
	slot->total_ns = q->total_ns;
	q->submitted++;
	if (q->count++ == 0)
		queue_dispatch(q);
	return 0;
}

void engine_queue_finish(struct engine_queue *q)
{
	if (q->computing)
		ready_leave(q);
	else if (q->count)
		copy_leave(q, &q->client->engine->copies[queue_head(q)->engine]);
	free(q->items);
	engine_queue_init(q, q->client, q->owner);
}

void engine_client_finish(struct engine_client *c)
{
	list_remove(&c->ring_node);
}

uint64_t engine_queue_sure_until(const struct engine_queue *q)
{
	const struct engine *e = q->client->engine;
	uint64_t fill = 0;

	list_for_each (node, &q->client->ready)
		fill += queue_of(node)->fill;
	if (!engine_client_on(q->client) || !q->computing || fill > FILL_ONE)
		return e->now;
	return e->now + (list_single(&e->ring) ? slice_left(e) : e->slice_end - e->now);
}

/* ---- passing time ---- */

/* Sum of what the client's running kernels fill, at least 1000: how much they are slowed down. */
static uint64_t client_fill(const struct engine_client *c)
{
	uint64_t fill = 0;

	list_for_each (node, &c->ready) {
		if (!queue_of(node)->awaited)
			fill += queue_head(queue_of(node))->fill;
	}
	return MAX(fill, FILL_ONE);
}

/* How long so much work takes, rounded up to whole ns ... */
static uint64_t stretch(uint64_t work_ps, uint64_t fill)
{
	const uint64_t unit = PS_PER_NS * FILL_ONE;

	return (uint64_t)(((unsigned __int128)work_ps * fill + unit - 1) / unit);
}

/* ... and how much work is done in that time. */
static uint64_t shrink(uint64_t ns, uint64_t fill)
{
	return (uint64_t)((unsigned __int128)ns * PS_PER_NS * FILL_ONE / fill);
}

static uint64_t compute_next_done(const struct engine *e)
{
	const struct engine_client *c = engine_current(e);
	uint64_t next = UINT64_MAX;

	if (!c)
		return next;
	uint64_t fill = client_fill(c);
	list_for_each (node, &c->ready) {
		const struct engine_queue *q = queue_of(node);

		if (!q->awaited)
			next = MIN(next, e->now + stretch(q->remaining_ps, fill));
	}
	return next;
}

static uint64_t copy_next_done(const struct engine *e)
{
	uint64_t next = UINT64_MAX;

	for (size_t i = 0; i < ARRAY_SIZE(e->copies); i++) {
		if (!list_empty(&e->copies[i]))
			next = MIN(next,
				   e->now + queue_of(e->copies[i].next)->remaining_ps / PS_PER_NS);
	}
	return next;
}

/* The next time at which something happens. */
static uint64_t next_done(const struct engine *e)
{
	uint64_t next = compute_next_done(e);

	/* Somebody else's turn comes first; what it runs may be shorter. */
	if (!list_empty(&e->ring) && !list_single(&e->ring))
		next = MIN(next, e->slice_end);
	return MIN(next, copy_next_done(e));
}

static uint64_t by_callers_clock(const struct engine *e, uint64_t at)
{
	return at == UINT64_MAX ? at : at + e->shift;
}

uint64_t engine_next_done(const struct engine *e)
{
	return e->still ? e->still_until : by_callers_clock(e, next_done(e));
}

static void compute_pass(struct engine *e, uint64_t to)
{
	struct engine_client *c = engine_current(e);

	if (!c)
		return;
	uint64_t done = shrink(to - e->now, client_fill(c));
	list_for_each (node, &c->ready) {
		struct engine_queue *q = queue_of(node);

		if (!q->awaited)
			q->remaining_ps -= MIN(q->remaining_ps, done);
	}
	c->busy_ns += to - e->now;
	e->busy_ns += to - e->now;
	meter_add(&c->meter, e->now, to);
	meter_add(&e->meter, e->now, to);
}

static void copies_pass(struct engine *e, uint64_t to)
{
	bool any = false;

	for (size_t i = 0; i < ARRAY_SIZE(e->copies); i++) {
		if (list_empty(&e->copies[i]))
			continue;
		struct engine_queue *q = queue_of(e->copies[i].next);
		q->remaining_ps -= MIN(q->remaining_ps, (to - e->now) * PS_PER_NS);
		q->client->copy_ns += to - e->now;
		meter_add(&q->client->copy_meter, e->now, to);
		any = true;
	}
	if (any)
		meter_add(&e->copy_meter, e->now, to);
}

/* The current client's finished kernels; one at a time, since each may change whose turn it is. */
static bool compute_finish_one(struct engine *e)
{
	struct engine_client *c = engine_current(e);

	if (!c)
		return false;
	list_for_each (node, &c->ready) {
		struct engine_queue *q = queue_of(node);

		if (q->awaited || q->remaining_ps)
			continue;
		head_pop(q);
		queue_dispatch(q);
		return true;
	}
	return false;
}

static bool copies_finish_one(struct engine *e)
{
	for (size_t i = 0; i < ARRAY_SIZE(e->copies); i++) {
		if (list_empty(&e->copies[i]))
			continue;
		struct engine_queue *q = queue_of(e->copies[i].next);
		if (q->remaining_ps)
			continue;
		e->copied_bytes[i] += queue_head(q)->bytes;
		e->events->copy(q, queue_head(q), q->head_from, e->now);
		copy_leave(q, &e->copies[i]);
		head_pop(q);
		queue_dispatch(q);
		return true;
	}
	return false;
}

static void turn_pass_on(struct engine *e)
{
	struct engine_client *c = engine_current(e);

	if (!c || list_single(&e->ring) || e->now < e->slice_end)
		return;
	turn_end(e, c);
	list_remove(&c->ring_node);
	list_append(&e->ring, &c->ring_node);
	turn_begin(e);
}

/* A queue of the client that has the turn, whose next item is on its way. */
static struct engine_queue *engine_awaited(const struct engine *e)
{
	const struct engine_client *c = engine_current(e);

	if (!c)
		return NULL;
	list_for_each (node, &c->ready) {
		if (queue_of(node)->awaited)
			return queue_of(node);
	}
	return NULL;
}

/* Does standing still hold up anybody but the client that has the turn? */
static bool others_wait(const struct engine *e)
{
	if (!list_single(&e->ring))
		return true;
	for (size_t i = 0; i < ARRAY_SIZE(e->copies); i++) {
		list_for_each (node, &e->copies[i]) {
			if (!engine_client_on(queue_of(node)->client))
				return true;
		}
	}
	return false;
}

static bool is_idle(const struct engine *e)
{
	for (size_t i = 0; i < ARRAY_SIZE(e->copies); i++) {
		if (!list_empty(&e->copies[i]))
			return false;
	}
	return list_empty(&e->ring);
}

/* The event that was waited for is there, or has been given up, at `now` of the caller's. */
static void go_on(struct engine *e, uint64_t now)
{
	uint64_t behind = now - e->shift - e->now;

	e->still = false;
	e->shift += behind - MIN(behind, ENGINE_CATCH_UP_NS);
	e->waited_until = now - e->shift;
}

/* Those of the client that has the turn that are waited for have no more work. */
static void give_up(struct engine *e)
{
	const struct engine_client *c = engine_current(e);

	while (engine_current(e) == c && engine_awaited(e)) {
		struct engine_queue *q = engine_awaited(e);

		q->awaited = false;
		ready_leave(q);
	}
}

/* Work is there again. The debt is made up for, if that work turns out to be short. */
static void owed_lend(struct engine *e)
{
	if (e->owed) {
		e->lent = e->owed;
		e->lent_until = e->now + ENGINE_SHORT_NS;
		e->owed = 0;
	} else if (e->lent && e->now >= e->lent_until) {
		e->shift += e->lent;
		e->waited_until -= e->lent;
		e->lent = 0;
	}
}

/* Without work there is nothing to make up for it with: there may be soon, or it is shift. */
static void owed_look(struct engine *e, uint64_t now)
{
	if (e->owed)
		e->waited_until = e->now + e->owed;
	if (!is_idle(e)) {
		owed_lend(e);
		return;
	}
	e->lent = 0;
	if (e->owed && now >= e->owed_until) {
		e->shift += e->owed;
		e->waited_until = e->now;
		e->owed = 0;
	} else if (!e->owed && e->now < e->waited_until) {
		e->owed = MIN(e->waited_until - e->now, ENGINE_OWED_NS);
		e->shift += e->waited_until - e->now - e->owed;
		e->owed_until = now + ENGINE_OWED_NS;
	}
}

/* Must the clock stand still at `now` of the caller's? */
static bool stand_still(struct engine *e, uint64_t now)
{
	while (engine_awaited(e)) {
		if (!e->still)
			e->still_since = now;
		e->still = true;
		e->still_until = e->still_since +
				 (others_wait(e) ? ENGINE_PATIENCE_NS : ENGINE_PATIENCE_ALONE_NS);
		if (now < e->still_until)
			return true;
		give_up(e);
		go_on(e, now);
	}
	/* It came after the last look, when time was that. */
	if (e->still)
		go_on(e, e->seen);
	owed_look(e, now);
	return false;
}

/* Passes to what is next to be done, or to the end of the time that there is. False: it is there.
 */
static bool step_pass(struct engine *e, uint64_t next, uint64_t end)
{
	if (e->now == end && next > end)
		return false;
	next = MIN(next, end);
	if (e->lent)
		next = MIN(next, MAX(e->lent_until, e->now));
	compute_pass(e, next);
	copies_pass(e, next);
	e->now = next;
	return true;
}

void engine_advance(struct engine *e, uint64_t now)
{
	while (e->now + e->shift <= now) {
		while (compute_finish_one(e) || copies_finish_one(e))
			;
		turn_pass_on(e);
		/* Or it gives back what it was lent, and waits for the caller's clock. */
		if (stand_still(e, now) || e->now + e->shift > now)
			break;
		if (!step_pass(e, next_done(e), now - e->shift - e->owed))
			break;
	}
	e->seen = MAX(e->seen, now);
}

/* ---- waiting ---- */

void engine_wait(struct engine_queue *q, enum wire_wait what, uint64_t count)
{
	if (q->wait_count == ENGINE_WAITS_MAX) {
		q->wait_any = true;
		return;
	}
	q->waits[q->wait_count++] = (struct engine_wait){.count = count, .what = what};
}

bool engine_wait_fulfil(struct engine_queue *q)
{
	uint32_t kept = 0;

	for (uint32_t i = 0; i < q->wait_count; i++) {
		struct engine_wait w = q->waits[i];

		if ((w.what == WIRE_WAIT_DONE ? q->done : q->started) < w.count)
			q->waits[kept++] = w;
	}
	bool any = kept < q->wait_count || q->wait_any;
	q->wait_count = kept;
	return any;
}

/* A time before which the client that has the turn does not lose it. Time passes. */
static uint64_t turn_bound(const struct engine *e)
{
	uint64_t busy_ns = 0;

	list_for_each (node, &engine_current(e)->ready) {
		const struct engine_queue *q = queue_of(node);

		uint64_t rest = q->total_ns - queue_head(q)->total_ns;
		busy_ns = MAX(busy_ns, rest + q->remaining_ps / PS_PER_NS);
	}
	return MIN(e->slice_end, e->now + busy_ns);
}

/* A time before which the queue's n-th item (counting from 1) cannot be done. */
static uint64_t queue_done_bound(const struct engine_queue *q, uint64_t n)
{
	const struct engine *e = q->client->engine;

	if (n <= q->done)
		return e->now;
	if (n > q->submitted)
		return UINT64_MAX;
	const struct engine_item *item =
		&q->items[(q->head + (n - q->done - 1)) % WIRE_QUEUE_ITEMS_MAX];
	uint64_t from = e->now;
	if (q->computing && !engine_client_on(q->client))
		from = turn_bound(e);
	else if (!q->computing && !q->head_started)
		from = copy_next_done(e);
	return from + (item->total_ns - queue_head(q)->total_ns) + q->remaining_ps / PS_PER_NS;
}

static uint64_t queue_started_bound(const struct engine_queue *q, uint64_t n)
{
	const struct engine *e = q->client->engine;

	if (n > q->done + 1)
		return queue_done_bound(q, n - 1);
	if (n <= q->started)
		return e->now;
	if (n > q->submitted)
		return UINT64_MAX;
	return q->computing ? turn_bound(e) : copy_next_done(e);
}

uint64_t engine_queue_wake(const struct engine_queue *q)
{
	const struct engine *e = q->client->engine;
	uint64_t wake = q->wait_any ? next_done(e) : UINT64_MAX;

	if (e->still)
		return q->wait_count || q->wait_any ? e->still_until : UINT64_MAX;
	for (uint32_t i = 0; i < q->wait_count; i++) {
		const struct engine_wait *w = &q->waits[i];

		wake = MIN(wake, w->what == WIRE_WAIT_DONE ? queue_done_bound(q, w->count)
							   : queue_started_bound(q, w->count));
	}
	return by_callers_clock(e, wake);
}
