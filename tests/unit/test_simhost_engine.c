#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/macros.h"
#include "host/engine.h"

#define US 1000ull
#define MS 1000000ull
#define CLIENTS 8
#define LOG_MAX 4096

struct done {
	uint64_t at;
	const struct engine_queue *queue;
};

/* The events that the engine told, in order. */
static struct {
	struct done done[LOG_MAX];
	uint32_t count;
	uint64_t last_at, turn_ns;
	uint64_t stamps[8];
} heard;

static void hear_started(struct engine_queue *q, const struct engine_item *item, uint64_t at)
{
	assert_true(at >= heard.last_at);
	heard.last_at = at;
	heard.stamps[item->stamp_start] = at;
}

static void hear_done(struct engine_queue *q, const struct engine_item *item, uint64_t at)
{
	assert_true(at >= heard.last_at);
	heard.last_at = at;
	heard.stamps[item->stamp_done] = at;
	if (heard.count < LOG_MAX)
		heard.done[heard.count] = (struct done){.at = at, .queue = q};
	heard.count++;
}

static void hear_turn(struct engine_client *client, uint64_t from, uint64_t to)
{
	assert_true(to > from);
	heard.turn_ns += to - from;
}

static void hear_copy(struct engine_queue *q, const struct engine_item *item, uint64_t from,
		      uint64_t to)
{
}

static const struct engine_events events = {hear_started, hear_done, hear_turn, hear_copy};

struct rig {
	struct engine engine;
	struct engine_client client[CLIENTS];
	struct engine_queue queue[CLIENTS][2];
};

static int rig_make(void **state)
{
	struct rig *r = calloc(1, sizeof(*r));

	memset(&heard, 0, sizeof(heard));
	engine_init(&r->engine, &events, 0);
	for (size_t i = 0; i < CLIENTS; i++) {
		engine_client_init(&r->client[i], &r->engine, r);
		for (size_t k = 0; k < 2; k++)
			engine_queue_init(&r->queue[i][k], &r->client[i], r);
	}
	*state = r;
	return 0;
}

static int rig_free(void **state)
{
	struct rig *r = *state;

	for (size_t i = 0; i < CLIENTS; i++) {
		for (size_t k = 0; k < 2; k++)
			engine_queue_finish(&r->queue[i][k]);
		engine_client_finish(&r->client[i]);
	}
	assert_true(list_empty(&r->engine.ring));
	free(r);
	return 0;
}

static void compute(struct engine_queue *q, uint64_t ns, uint16_t fill, uint8_t flags)
{
	struct engine_item item = {
		.ns = ns, .fill = fill, .flags = flags, .engine = WIRE_ENGINE_COMPUTE};

	assert_int_equal(engine_submit(q, &item), 0);
}

static void copy(struct engine_queue *q, enum wire_engine engine, uint64_t ns)
{
	assert_int_equal(
		engine_submit(q, &(struct engine_item){.ns = ns, .bytes = 7, .engine = engine}), 0);
}

static void alone(void **state)
{
	struct rig *r = *state;

	for (int i = 0; i < 3; i++)
		compute(&r->queue[0][0], 3 * MS, 0, 0);
	engine_advance(&r->engine, 100 * MS);
	assert_int_equal(heard.count, 3);
	for (uint64_t i = 0; i < 3; i++)
		assert_int_equal(heard.done[i].at, (i + 1) * 3 * MS);
	assert_int_equal(r->client[0].busy_ns, 9 * MS);
	assert_int_equal(r->engine.busy_ns, 9 * MS);
	assert_int_equal(heard.turn_ns, 9 * MS);
	assert_int_equal(engine_next_done(&r->engine), UINT64_MAX);
}

/* Two with one long kernel each alternate in slices: 2 ms each. */
static void round_robin(void **state)
{
	struct rig *r = *state;

	compute(&r->queue[0][0], 5 * MS, 0, 0);
	compute(&r->queue[1][0], 3 * MS, 0, 0);
	engine_advance(&r->engine, 100 * MS);
	/* 0: 0-2, 1: 2-4, 0: 4-6, 1: 6-7 (done), 0: 7-8 (done) */
	assert_ptr_equal(heard.done[0].queue, &r->queue[1][0]);
	assert_int_equal(heard.done[0].at, 7 * MS);
	assert_int_equal(heard.done[1].at, 8 * MS);
	assert_int_equal(r->client[0].busy_ns, 5 * MS);
	assert_int_equal(r->client[1].busy_ns, 3 * MS);
}

/* A process that comes while another ran alone for long waits for the rest of that one's slice. */
static void newcomer(void **state)
{
	struct rig *r = *state;

	compute(&r->queue[0][0], 100 * MS, 0, 0);
	engine_advance(&r->engine, 7 * MS + 500 * US);
	compute(&r->queue[1][0], 1 * MS, 0, 0);
	engine_advance(&r->engine, 20 * MS);
	assert_int_equal(heard.count, 1);
	assert_int_equal(heard.done[0].at, 9 * MS);
}

/* Kernels of one client run together: at full speed while they fit, slowed down otherwise. */
static void concurrent_kernels(void **state)
{
	struct rig *r = *state;

	compute(&r->queue[0][0], 4 * MS, 500, 0);
	compute(&r->queue[0][1], 6 * MS, 500, 0);
	engine_advance(&r->engine, 10 * MS);
	assert_int_equal(heard.done[0].at, 4 * MS);
	assert_int_equal(heard.done[1].at, 6 * MS);
	assert_int_equal(r->client[0].busy_ns, 6 * MS);

	compute(&r->queue[0][0], 4 * MS, 1000, 0);
	compute(&r->queue[0][1], 6 * MS, 1000, 0);
	engine_advance(&r->engine, 30 * MS);
	assert_int_equal(heard.done[2].at, 18 * MS);
	assert_int_equal(heard.done[3].at, 20 * MS);
	assert_int_equal(r->client[0].busy_ns, 16 * MS);
}

static void copies_beside_compute(void **state)
{
	struct rig *r = *state;

	compute(&r->queue[0][0], 4 * MS, 0, 0);
	copy(&r->queue[0][1], WIRE_ENGINE_H2D, 3 * MS);
	copy(&r->queue[1][0], WIRE_ENGINE_H2D, 2 * MS);
	copy(&r->queue[1][1], WIRE_ENGINE_D2H, 1 * MS);
	compute(&r->queue[1][0], 1 * MS, 0, 0); /* behind its copy */
	engine_advance(&r->engine, 50 * MS);
	assert_int_equal(heard.done[0].at, 1 * MS);
	assert_int_equal(heard.done[1].at, 3 * MS);
	assert_int_equal(heard.done[2].at, 4 * MS);
	assert_int_equal(heard.done[3].at, 5 * MS);
	assert_int_equal(heard.done[4].at, 6 * MS);
	assert_int_equal(r->engine.copied_bytes[WIRE_ENGINE_H2D], 14);
	assert_int_equal(r->client[1].copy_ns, 3 * MS);
	assert_int_equal(r->engine.busy_ns, 5 * MS);
}

/* While what comes next is being played, time stands still, and is made up for: as if it had been
 * there at once. */
static void playing_takes_no_time(void **state)
{
	struct rig *r = *state;
	struct engine_queue *q = &r->queue[0][0];

	compute(&r->queue[1][0], 20 * MS, 0, 0);
	compute(q, 1 * MS, 0, WIRE_ITEM_MORE);
	for (int i = 0; i < 4; i++) {
		engine_advance(&r->engine, (uint64_t)(5 + 5 * i) * MS);
		compute(q, 1 * MS, 0, i < 3 ? WIRE_ITEM_MORE : 0);
	}
	engine_advance(&r->engine, 40 * MS);
	/* 1 to 2, 0 to 4, 1 to 6, 0 to 8, 1 to 10, 0 to 11 (done), 1 to 25 (done). */
	assert_int_equal(heard.count, 6);
	for (size_t i = 0; i < 5; i++)
		assert_ptr_equal(heard.done[i].queue, q);
	assert_int_equal(heard.done[1].at, 4 * MS);
	assert_int_equal(heard.done[4].at, 11 * MS);
	assert_int_equal(heard.done[5].at, 25 * MS);
	assert_int_equal(r->client[0].busy_ns, 5 * MS);
	assert_int_equal(r->client[1].busy_ns, 20 * MS);
	assert_int_equal(r->engine.shift, 0);
	assert_int_equal(r->engine.now, 40 * MS);
}

/* The clock of one who is alone goes on where it stood. */
static void playing_alone(void **state)
{
	struct rig *r = *state;
	struct engine_queue *q = &r->queue[0][0];
	struct engine_item mark = {.engine = WIRE_ENGINE_NONE, .stamp_done = 3};

	compute(q, 1 * MS, 0, WIRE_ITEM_MORE);
	engine_advance(&r->engine, 3000 * MS);
	assert_int_equal(r->engine.now, 1 * MS);
	assert_true(engine_next_done(&r->engine) > 3000 * MS);
	compute(q, 2 * MS, 0, 0);
	assert_int_equal(engine_submit(q, &mark), 0);
	engine_advance(&r->engine, 3010 * MS);
	assert_int_equal(heard.stamps[3], 3 * MS);
	assert_int_equal(r->client[0].busy_ns, 3 * MS);
	/* It does not make up for three seconds: that would be work in no time. */
	assert_int_equal(r->engine.now + r->engine.shift + r->engine.owed, 3010 * MS);
	assert_int_equal(r->engine.owed, ENGINE_OWED_NS);
	engine_advance(&r->engine, 3010 * MS + ENGINE_OWED_NS);
	assert_int_equal(r->engine.now + r->engine.shift, 3010 * MS + ENGINE_OWED_NS);
	compute(q, 20 * MS, 0, 0);
	uint64_t wake = engine_next_done(&r->engine);
	assert_int_equal(wake, 3030 * MS + ENGINE_OWED_NS);
	engine_advance(&r->engine, wake);
	assert_int_equal(heard.count, 4);
	/* A marker says that nothing comes after all. */
	mark.flags = WIRE_ITEM_MORE;
	assert_int_equal(engine_submit(q, &mark), 0);
	engine_advance(&r->engine, 3100 * MS);
	mark.flags = 0;
	assert_int_equal(engine_submit(q, &mark), 0);
	engine_advance(&r->engine, 3200 * MS);
	engine_advance(&r->engine, 3200 * MS + ENGINE_OWED_NS);
	assert_int_equal(r->engine.now + r->engine.shift, 3200 * MS + ENGINE_OWED_NS);
	assert_int_equal(engine_next_done(&r->engine), UINT64_MAX);
}

/* A process that waits for short pieces of work, and plays each a little late, does not slow the
 * GPU's clock down. It hears of each end late, so that the next piece counts as handed in
 * sooner. */
static void short_pieces_keep_the_clock(void **state)
{
	struct rig *r = *state;
	struct engine_queue *q = &r->queue[0][0];
	struct engine_item mark = {.engine = WIRE_ENGINE_NONE, .stamp_done = 3};
	uint64_t now = 0;

	for (uint64_t i = 0; i < 100; i++) {
		compute(q, 400 * US, 0, WIRE_ITEM_MORE);
		now = engine_next_done(&r->engine);
		engine_advance(&r->engine, now);
		/* That nothing comes after it is known so late ... */
		engine_advance(&r->engine, now += 60 * US);
		assert_int_equal(engine_submit(q, &mark), 0);
		/* ... and the next piece is handed in that long after. */
		engine_advance(&r->engine, now += 30 * US);
		assert_int_equal(r->engine.shift, 0);
		assert_true(r->engine.now <= now);
		assert_true(r->engine.now + 70 * US >= now);
	}
	assert_int_equal(r->client[0].busy_ns, 100 * 400 * US);
	/* Pauses count: nothing is had of the GPU in them. */
	assert_true(r->engine.now >= 100 * 430 * US);
	engine_advance(&r->engine, now += 2 * ENGINE_OWED_NS);
	assert_true(r->engine.shift <= 70 * US);
	assert_int_equal(r->engine.now + r->engine.shift, now);
	/* Work that takes long takes that long by any clock. */
	compute(q, 400 * US, 0, WIRE_ITEM_MORE);
	engine_advance(&r->engine, now += 460 * US);
	assert_int_equal(engine_submit(q, &mark), 0);
	engine_advance(&r->engine, now += 10 * US);
	assert_int_equal(r->engine.owed, 60 * US);
	uint64_t end = now + 20 * MS;
	for (int i = 0; i < 40; i++)
		compute(q, 500 * US, 0, 0);
	for (uint64_t done = q->done; q->done < done + 40; engine_advance(&r->engine, now))
		now = engine_next_done(&r->engine);
	assert_int_equal(now, end);
}

/* A queue that never delivers loses its turns, nobody else's time. */
static void playing_for_ever(void **state)
{
	struct rig *r = *state;

	compute(&r->queue[0][0], 1 * MS, 0, WIRE_ITEM_MORE);
	compute(&r->queue[1][0], 300 * MS, 0, 0);
	uint64_t now = 1 * MS;
	for (int looks = 0; looks < 1000; looks++) {
		engine_advance(&r->engine, now);
		if (r->queue[1][0].done)
			break;
		engine_wait(&r->queue[1][0], WIRE_WAIT_DONE, 1);
		assert_true(engine_queue_wake(&r->queue[1][0]) > now);
		now = MAX(now + 1, engine_next_done(&r->engine));
	}
	assert_int_equal(heard.count, 2);
	assert_int_equal(r->client[0].busy_ns, 1 * MS);
	assert_int_equal(r->client[1].busy_ns, 300 * MS);
	assert_true(now <= ENGINE_PATIENCE_NS + 310 * MS);
	compute(&r->queue[0][0], 1 * MS, 0, 0);
	engine_advance(&r->engine, now + 10 * MS);
	assert_int_equal(r->client[0].busy_ns, 2 * MS);
}

/* A promise to a queue holds, whoever comes. */
static void sure_turns(void **state)
{
	struct rig *r = *state;
	struct engine_queue *q = &r->queue[0][0];

	compute(q, 100 * US, 0, WIRE_ITEM_MORE);
	engine_advance(&r->engine, 1 * MS);
	uint64_t until = engine_queue_sure_until(q);
	assert_int_equal(r->engine.now, 100 * US);
	assert_int_equal(until, 2 * MS);
	compute(&r->queue[1][0], 50 * MS, 0, 0);
	compute(q, until - r->engine.now, 0, WIRE_ITEM_MORE);
	engine_advance(&r->engine, 2 * MS);
	assert_int_equal(heard.done[1].at, until);
	assert_int_equal(engine_queue_sure_until(q), r->engine.now);
	compute(q, 0, 0, WIRE_ITEM_MORE);
	engine_advance(&r->engine, 5 * MS);
	assert_int_equal(heard.done[2].at, 4 * MS);
	assert_int_equal(engine_queue_sure_until(q), 6 * MS);
	/* Beside another kernel of the same process nothing is sure. */
	compute(&r->queue[0][1], 1 * MS, 0, 0);
	assert_int_equal(engine_queue_sure_until(q), r->engine.now);
}

static void markers(void **state)
{
	struct rig *r = *state;
	struct engine_item mark = {.engine = WIRE_ENGINE_NONE, .stamp_done = 3};

	engine_advance(&r->engine, 1 * MS);
	assert_int_equal(engine_submit(&r->queue[0][0], &mark), 0);
	assert_int_equal(heard.stamps[3], 1 * MS);
	compute(&r->queue[0][0], 2 * MS, 0, 0);
	mark.stamp_done = 4;
	assert_int_equal(engine_submit(&r->queue[0][0], &mark), 0);
	engine_advance(&r->engine, 9 * MS);
	assert_int_equal(heard.stamps[4], 3 * MS);
	assert_int_equal(r->queue[0][0].done, 3);
}

static void full_queue(void **state)
{
	struct rig *r = *state;
	struct engine_item item = {.ns = MS, .engine = WIRE_ENGINE_COMPUTE};

	for (uint32_t i = 0; i < WIRE_QUEUE_ITEMS_MAX; i++)
		assert_int_equal(engine_submit(&r->queue[0][0], &item), 0);
	assert_int_equal(engine_submit(&r->queue[0][0], &item), -EAGAIN);
	engine_advance(&r->engine, 1 * MS);
	assert_int_equal(engine_submit(&r->queue[0][0], &item), 0);
}

/* A process that dies in its turn: the next one has the engine at once. */
static void death(void **state)
{
	struct rig *r = *state;

	compute(&r->queue[0][0], 50 * MS, 0, 0);
	compute(&r->queue[1][0], 1 * MS, 0, 0);
	engine_advance(&r->engine, 1 * MS);
	engine_queue_finish(&r->queue[0][0]);
	engine_advance(&r->engine, 5 * MS);
	assert_int_equal(heard.done[0].at, 2 * MS);
	assert_int_equal(r->client[0].busy_ns, 1 * MS);
}

static uint64_t random_next(uint64_t *seed)
{
	*seed = *seed * 6364136223846793005ull + 1442695040888963407ull;
	return *seed >> 33;
}

/* Processes that always have work get equal shares, and every nanosecond of the GPU is somebody's.
 * It holds for any lengths of their kernels, and however late the server looks. */
static void fair_shares(void **state)
{
	struct rig *r = *state;
	uint64_t seed = 1, now = 0, end = 20000 * MS;

	while (now < end) {
		for (size_t i = 0; i < CLIENTS; i++) {
			while (r->queue[i][0].count < 64)
				compute(&r->queue[i][0],
					(1 + random_next(&seed) % 3000) * US * (i + 1), 0, 0);
		}
		now += random_next(&seed) % (5 * MS);
		engine_advance(&r->engine, now);
	}
	uint64_t sum = 0;
	for (size_t i = 0; i < CLIENTS; i++) {
		uint64_t busy = r->client[i].busy_ns;

		sum += busy;
		if (busy < now / CLIENTS - 2 * MS || busy > now / CLIENTS + 2 * MS)
			fail_msg("client %zu had %llu of %llu ns", i, (unsigned long long)busy,
				 (unsigned long long)now);
	}
	assert_int_equal(sum, now);
	assert_int_equal(r->engine.busy_ns, now);
}

/* The times told do not depend on when the server looks. */
static void late_looks(void **state)
{
	static struct done first[LOG_MAX];
	uint32_t count = 0;

	for (int pass = 0; pass < 2; pass++) {
		struct rig *r;
		uint64_t seed = 7;

		rig_make((void **)&r);
		for (size_t i = 0; i < CLIENTS; i++) {
			for (int k = 0; k < 100; k++) {
				compute(&r->queue[i][k % 2], random_next(&seed) % (4 * MS),
					200 + random_next(&seed) % 800, 0);
				copy(&r->queue[i][k % 2], WIRE_ENGINE_H2D + k % 3,
				     random_next(&seed) % MS);
			}
		}
		for (uint64_t now = 0; now < 3000 * MS; now += pass ? 3000 * MS : 77 * US)
			engine_advance(&r->engine, now);
		engine_advance(&r->engine, 3000 * MS);
		assert_int_equal(heard.count, CLIENTS * 200);
		for (uint32_t i = 0; pass && i < count; i++) {
			/* Each step of slowing down rounds. */
			uint64_t a = first[i].at, b = heard.done[i].at;
			assert_true((a > b ? a - b : b - a) < 1 * US);
		}
		count = heard.count;
		memcpy(first, heard.done, sizeof(first));
		rig_free((void **)&r);
	}
}

/* Looking only when engine_queue_wake says so, a waited-for item is seen exactly when it is done.
 */
static void wakes_exactly(void **state)
{
	struct rig *r = *state;
	uint64_t seed = 3, now = 0;
	uint32_t looks = 0, waits = 0;

	for (size_t i = 0; i < CLIENTS; i++) {
		for (int k = 0; k < 200; k++)
			compute(&r->queue[i][0], random_next(&seed) % (300 * US), 0, 0);
	}
	while (r->queue[0][0].done < 200) {
		uint64_t ahead = random_next(&seed) % 30;
		uint64_t target = MIN(r->queue[0][0].done + 1 + ahead, 200);

		engine_wait(&r->queue[0][0], WIRE_WAIT_DONE, target);
		waits++;
		while (!engine_wait_fulfil(&r->queue[0][0])) {
			uint64_t wake = engine_queue_wake(&r->queue[0][0]);

			assert_true(wake > now && wake != UINT64_MAX);
			now = wake;
			engine_advance(&r->engine, now);
			looks++;
		}
		assert_int_equal(r->queue[0][0].done, target);
	}
	assert_true(looks < waits * 20);
}

/* Likewise where the client that has the GPU runs out of work before its slice ends. */
static void wakes_when_others_end_early(void **state)
{
	struct rig *r = *state;

	compute(&r->queue[0][0], 300 * US, 0, 0);
	compute(&r->queue[1][0], 500 * US, 0, 0);
	engine_wait(&r->queue[1][0], WIRE_WAIT_DONE, 1);
	uint64_t wake = engine_queue_wake(&r->queue[1][0]);
	assert_true(wake > 0 && wake <= 800 * US);
	engine_advance(&r->engine, wake);
	if (!engine_wait_fulfil(&r->queue[1][0]))
		assert_int_equal(engine_queue_wake(&r->queue[1][0]), 800 * US);
}

/* Clients whose kernels come in late, though handed in early, have the same share as others, and
 * are charged nothing for the time between. */
static void late_work_keeps_its_share(void **state)
{
	struct rig *r = *state;
	uint64_t now = 0, ready_at[CLIENTS] = {0};

	while (now < 2000 * MS) {
		for (size_t i = 0; i < CLIENTS; i++) {
			struct engine_queue *q = &r->queue[i][0];
			bool late = i % 2;

			if (q->count == 0 && late && !ready_at[i])
				ready_at[i] = now + (150 + 200 * i) * US;
			if (q->count == 0 && now >= ready_at[i]) {
				for (int k = 0; k < (late ? 1 : 100); k++)
					compute(q, 300 * US, 0, WIRE_ITEM_MORE);
				ready_at[i] = 0;
			}
		}
		now += 10 * US;
		engine_advance(&r->engine, now);
	}
	assert_int_equal(r->engine.busy_ns, r->engine.now);
	assert_true(r->engine.now > 300 * MS);
	for (size_t i = 0; i < CLIENTS; i++) {
		uint64_t share = r->engine.busy_ns / CLIENTS, got = r->client[i].busy_ns;

		if (got + 2 * MS < share || got > share + 2 * MS)
			fail_msg("client %zu has %llu of %llu ns", i, (unsigned long long)got,
				 (unsigned long long)share);
	}
}

/* Very short kernels cost little: a million of them. */
static void short_kernels(void **state)
{
	struct rig *r = *state;
	uint64_t now = 0;

	while (r->queue[0][0].done < 1000000) {
		while (r->queue[0][0].count < WIRE_QUEUE_ITEMS_MAX)
			compute(&r->queue[0][0], 1 * US, 0, 0);
		now += 500 * US;
		engine_advance(&r->engine, now);
	}
	assert_int_equal(r->client[0].busy_ns, now);
}

static void meters(void **state)
{
	struct meter m = {0};

	meter_add(&m, 0, 500 * MS);
	assert_int_equal(meter_permille(&m, 1000 * MS), 500);
	meter_add(&m, 1000 * MS, 1250 * MS);
	assert_int_equal(meter_permille(&m, 1300 * MS), 200 + 250); /* 0.3-0.5 and 1.0-1.25 */
	assert_int_equal(meter_permille(&m, 5000 * MS), 0);
	meter_add(&m, 0, 100000 * MS);
	assert_int_equal(meter_permille(&m, 100000 * MS), 1000);
}

int main(void)
{
#define RIGGED(f) cmocka_unit_test_setup_teardown(f, rig_make, rig_free)
	const struct CMUnitTest tests[] = {
		RIGGED(alone),
		RIGGED(round_robin),
		RIGGED(newcomer),
		RIGGED(concurrent_kernels),
		RIGGED(copies_beside_compute),
		RIGGED(playing_takes_no_time),
		RIGGED(playing_alone),
		RIGGED(short_pieces_keep_the_clock),
		RIGGED(playing_for_ever),
		RIGGED(sure_turns),
		RIGGED(markers),
		RIGGED(full_queue),
		RIGGED(death),
		RIGGED(fair_shares),
		cmocka_unit_test(late_looks),
		RIGGED(wakes_exactly),
		RIGGED(wakes_when_others_end_early),
		RIGGED(late_work_keeps_its_share),
		RIGGED(short_kernels),
		cmocka_unit_test(meters),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
