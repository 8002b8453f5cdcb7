#include "front_gate.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "base/macros.h"

#define POLL_NS 50000u
#define SLEEP_NS 20000000u
#define STALL_NS 20000000ull
#define DRAIN_NS_MOST 1000000000ull
#define REOPEN_NS 1000000u
#define STEPS_MOST 32

struct step {
	enum gate_state state;
	uint64_t ns; /* 0: for ever, or until a thread waits */
	bool until_waiting;
};

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000ull + (uint64_t)t.tv_nsec;
}

static void nap(uint64_t ns)
{
	const struct timespec t = {.tv_nsec = (long)ns};

	nanosleep(&t, NULL);
}

/* A process that is gone has no work any more. */
static bool is_live(struct front_gate *f, uint32_t slot)
{
	return atomic_load(&ledger_slot(f->ledger, slot)->state) == LEDGER_SLOT_LIVE;
}

static bool all_drained(struct front_gate *f)
{
	for (uint32_t slot = 1; slot <= atomic_load(&f->slots); slot++) {
		const struct gate_process *p = gate_process(f->ledger, slot);

		if (is_live(f, slot) && (gate_launching(p) || !gate_drained(p)))
			return false;
	}
	return true;
}

static uint32_t waiting(struct front_gate *f)
{
	uint32_t sum = 0;

	for (uint32_t slot = 1; slot <= atomic_load(&f->slots); slot++)
		if (is_live(f, slot))
			sum += atomic_load(&gate_process(f->ledger, slot)->waiting);
	return sum;
}

static uint32_t submitted(struct front_gate *f)
{
	uint32_t sum = 0;

	for (uint32_t slot = 1; slot <= atomic_load(&f->slots); slot++)
		sum += gate_submitted(gate_process(f->ledger, slot));
	return sum;
}

/* All that changes when something completes. */
static uint32_t progress(struct front_gate *f)
{
	uint32_t sum = 0;

	for (uint32_t slot = 1; slot <= atomic_load(&f->slots); slot++) {
		const struct gate_process *p = gate_process(f->ledger, slot);

		for (uint32_t i = 0; i < MIN(atomic_load(&p->streams), GATE_STREAMS_MAX); i++)
			sum += atomic_load(&p->stream[i].done);
	}
	return sum;
}

static void close_now(struct front_gate *f)
{
	/* As the first process found it: who waits there is not to be told of another closing. */
	if (GATE_STATE(atomic_load(gate_word(f->ledger))) != GATE_CLOSED)
		gate_set(f->ledger, GATE_CLOSED);
	if (gate_barrier() < 0)
		nap(REOPEN_NS);
}

/* Closes, and waits until all work is done. False: it gave up. */
static bool close_and_drain(struct front_gate *f)
{
	uint64_t begin = now_ns(), moved = begin;
	uint32_t seen = progress(f), slots = atomic_load(&f->slots);

	f->closes++;
	close_now(f);
	while (!all_drained(f)) {
		uint64_t now = now_ns();

		if (atomic_load(&f->stop) || now - begin > DRAIN_NS_MOST)
			return false;
		if (progress(f) != seen) {
			seen = progress(f);
			moved = now;
		} else if (now - moved > STALL_NS && waiting(f)) {
			f->reopened++;
			gate_set(f->ledger, GATE_CONTENDED);
			nap(REOPEN_NS);
			close_now(f);
			moved = now_ns();
		}
		nap(POLL_NS);
	}
	f->drain_ns_most = MAX(f->drain_ns_most, now_ns() - begin);
	return slots == atomic_load(&f->slots);
}

static bool is_over(struct front_gate *f, const struct step *step, uint64_t begin)
{
	if (step->until_waiting)
		return waiting(f);
	return step->ns && now_ns() - begin >= step->ns;
}

static void stay(struct front_gate *f, const struct step *step)
{
	uint64_t begin = now_ns();
	bool is_watched = step->ns || step->until_waiting;

	while (!atomic_load(&f->stop) && !is_over(f, step, begin)) {
		uint32_t done = progress(f), in_flight = submitted(f) - done;
		uint64_t count;

		/* Some may have been done between the two sums. */
		if (in_flight <= INT32_MAX)
			f->in_flight_most = MAX(f->in_flight_most, in_flight);

		if (read(f->wake, &count, sizeof(count)) == sizeof(count))
			atomic_fetch_add(&f->woken, count);
		/* For ever is for measuring: nobody disturbs. */
		nap(is_watched ? POLL_NS : SLEEP_NS);
	}
}

static void closed_for(struct front_gate *f, const struct step *step)
{
	uint32_t slots_before = atomic_load(&f->slots);
	bool drained = close_and_drain(f);
	uint32_t before = submitted(f), slots = atomic_load(&f->slots);

	f->drained += drained;
	/* Not where the processes ended meanwhile. */
	f->given_up += !drained && !atomic_load(&f->stop) && slots_before == slots;
	stay(f, step);
	if (drained && slots == atomic_load(&f->slots) && submitted(f) != before)
		f->leaked++;
}

static void play(struct front_gate *f, const struct step *step)
{
	enum gate_state state = step->state;
	uint64_t word = atomic_load(gate_word(f->ledger));

	if (state == GATE_CLOSED) {
		closed_for(f, step);
		return;
	}
	/* Only a holder without work is left with an idle lease. */
	if (state == GATE_IDLE && GATE_STATE(word) == GATE_CONTENDED)
		gate_replace(f->ledger, word, GATE_IDLE);
	else
		gate_set(f->ledger, state == GATE_IDLE ? GATE_CONTENDED : state);
	stay(f, step);
}

static bool read_state(const char *word, size_t length, enum gate_state *ret)
{
	static const char *const names[] = {"off", "open", "contended", "closed", "idle"};

	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		if (strlen(names[i]) == length && strncmp(names[i], word, length) == 0) {
			*ret = (enum gate_state)i;
			return true;
		}
	return false;
}

/* How long a step takes: nothing, ":waiting" or ":MS". Returns what follows. */
static const char *read_length(const char *plan, struct step *step)
{
	static const char waiting_word[] = ":waiting";
	char *end;

	if (strncmp(plan, waiting_word, sizeof(waiting_word) - 1) == 0) {
		step->until_waiting = true;
		return plan + sizeof(waiting_word) - 1;
	}
	if (*plan != ':')
		return plan;
	step->ns = strtoul(plan + 1, &end, 10) * 1000000ull;
	return end;
}

/* Number of steps; 0: it cannot be read. */
static size_t read_plan(const char *plan, struct step *steps, size_t *ret_again)
{
	size_t count = 0;

	*ret_again = SIZE_MAX;
	while (*plan && count < STEPS_MOST) {
		if (*plan == '@') {
			*ret_again = count;
			plan++;
		}
		size_t length = strcspn(plan, ":,");
		if (!read_state(plan, length, &steps[count].state))
			return 0;
		plan += length;
		plan = read_length(plan, &steps[count++]);
		plan += *plan == ',';
	}
	return count;
}

static void play_random(struct front_gate *f, unsigned int seed)
{
	static const enum gate_state states[] = {GATE_OPEN,   GATE_CONTENDED, GATE_CONTENDED,
						 GATE_CLOSED, GATE_CLOSED,    GATE_IDLE,
						 GATE_OFF};

	/* It is closed once, whatever follows, and however short the program is. */
	play(f, &(struct step){.state = GATE_CLOSED, .ns = 5000000});
	while (!atomic_load(&f->stop)) {
		/* Off is rare: what was handed in then, nobody knows of. */
		size_t at = (size_t)rand_r(&seed) % (rand_r(&seed) % 8 ? 6 : 7);

		play(f, &(struct step){.state = states[at],
				       .ns = (uint64_t)(rand_r(&seed) % 10000 + 1) * 1000});
	}
}

static void *run(void *data)
{
	struct front_gate *f = data;
	struct step steps[STEPS_MOST] = {0};
	size_t again, count;

	if (strncmp(f->plan, "random:", 7) == 0) {
		play_random(f, (unsigned int)strtoul(f->plan + 7, NULL, 10));
		return NULL;
	}
	count = read_plan(f->plan, steps, &again);
	for (size_t i = 0; i < count && !atomic_load(&f->stop); i++) {
		play(f, &steps[i]);
		if (i + 1 == count && again < count)
			i = again - 1;
	}
	return NULL;
}

bool front_gate_start(struct front_gate *f)
{
	struct step steps[STEPS_MOST] = {0};
	size_t again;

	f->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (f->wake < 0 ||
	    (strncmp(f->plan, "random:", 7) != 0 && !read_plan(f->plan, steps, &again)))
		return false;
	/* As the first process finds it. */
	if (steps[0].state)
		gate_set(f->ledger, steps[0].state);
	return pthread_create(&f->thread, NULL, run, f) == 0;
}

void front_gate_stop(struct front_gate *f)
{
	atomic_store(&f->stop, true);
	pthread_join(f->thread, NULL);
}

void front_gate_print(const struct front_gate *f)
{
	uint64_t waits = 0, wait_ns = 0, count = 0;
	uint32_t registered = 0;

	if (read(f->wake, &count, sizeof(count)) != sizeof(count))
		count = 0;
	for (uint32_t slot = 1; slot <= atomic_load(&f->slots); slot++) {
		const struct gate_process *p = gate_process(f->ledger, slot);

		waits += p->waits;
		wait_ns += p->wait_ns;
		registered += p->registered;
	}
	fprintf(stderr,
		"\"gate\": {\"closes\": %lu, \"drained\": %lu, \"given_up\": %lu, \"reopened\": "
		"%lu, \"leaked\": %lu, \"drain_ns_most\": %llu, \"woken\": %llu, \"waits\": %llu, "
		"\"wait_ns\": %llu, \"registered\": %u, \"in_flight_most\": %u}",
		f->closes, f->drained, f->given_up, f->reopened, f->leaked,
		(unsigned long long)f->drain_ns_most, (unsigned long long)(f->woken + count),
		(unsigned long long)waits, (unsigned long long)wait_ns, registered,
		f->in_flight_most);
}
