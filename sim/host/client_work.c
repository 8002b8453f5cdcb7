#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/macros.h"
#include "host/client_private.h"

/* A host that died without a word wakes nobody: who waits asks for it so often. */
#define WAIT_NS_MAX 200000000u

int client_queue_open(struct client *c)
{
	int queue = -EMFILE;

	if (client_check(c) < 0)
		return client_check(c);
	pthread_mutex_lock(&c->queue_lock);
	for (size_t word = 0; word < ARRAY_SIZE(c->queue_taken) && queue < 0; word++) {
		if (c->queue_taken[word] == UINT64_MAX)
			continue;
		int bit = __builtin_ctzll(~c->queue_taken[word]);
		c->queue_taken[word] |= 1ull << bit;
		queue = (int)word * 64 + bit;
	}
	pthread_mutex_unlock(&c->queue_lock);
	return queue;
}

void client_queue_close(struct client *c, int queue)
{
	struct wire_cancel message = {.head.type = WIRE_WORK_CANCEL, .queue = (uint16_t)queue};
	struct wire_head reply;

	/* The reply says that the counters are zero, so that the number can be used again. */
	client_call(c, &message, sizeof(message), -1, &reply, sizeof(reply), NULL);
	atomic_store(&c->submitted[queue], 0);
	pthread_mutex_lock(&c->queue_lock);
	c->queue_taken[queue / 64] &= ~(1ull << queue % 64);
	pthread_mutex_unlock(&c->queue_lock);
}

uint64_t client_queue_done(const struct client *c, int queue)
{
	return atomic_load_explicit(&c->progress->queue[queue].done, memory_order_acquire);
}

uint64_t client_queue_done_at(const struct client *c, int queue, uint64_t *ret_sure_until)
{
	const struct wire_queue *state = &c->progress->queue[queue];

	*ret_sure_until = atomic_load_explicit(&state->sure_until, memory_order_relaxed);
	return atomic_load_explicit(&state->done_at, memory_order_relaxed);
}

uint64_t client_queue_started(const struct client *c, int queue)
{
	return atomic_load_explicit(&c->progress->queue[queue].started, memory_order_acquire);
}

uint64_t client_queue_submitted(const struct client *c, int queue)
{
	return atomic_load(&c->submitted[queue]);
}

uint64_t client_stamp(const struct client *c, uint32_t index)
{
	return atomic_load_explicit(&c->progress->stamp[index], memory_order_acquire);
}

static bool queue_has_room(const struct client *c, uint16_t queue)
{
	return client_queue_submitted(c, queue) - client_queue_done(c, queue) <
	       WIRE_QUEUE_ITEMS_MAX;
}

/* Takes as many items into one message as fit it and their queues. Returns how many. */
static size_t batch_fill(struct client *c, struct wire_submit *batch, const struct wire_item *items,
			 size_t count)
{
	size_t n = 0;

	while (n < MIN(count, WIRE_SUBMIT_MAX) && queue_has_room(c, items[n].queue)) {
		atomic_fetch_add(&c->submitted[items[n].queue], 1);
		batch->item[n] = items[n];
		n++;
	}
	batch->head.type = WIRE_WORK_SUBMIT;
	batch->head.status = 0;
	batch->count = (uint32_t)n;
	batch->spare = 0;
	return n;
}

int client_submit(struct client *c, const struct wire_item *items, size_t count)
{
	union {
		struct wire_submit batch;
		char space[sizeof(struct wire_submit) + WIRE_SUBMIT_MAX * sizeof(struct wire_item)];
	} message;
	int status = 0;

	while (count && status == 0) {
		size_t n = batch_fill(c, &message.batch, items, count);
		size_t size = sizeof(message.batch) + n * sizeof(items[0]);

		if (n)
			status = client_send(c, &message.batch, size);
		items += n;
		count -= n;
		if (status == 0 && count && !queue_has_room(c, items[0].queue))
			status = client_queue_wait(c, items[0].queue, WIRE_WAIT_DONE,
						   client_queue_submitted(c, items[0].queue) -
							   WIRE_QUEUE_ITEMS_MAX / 2,
						   UINT64_MAX);
	}
	return status;
}

static int wait_announce(struct client *c, int queue, enum wire_wait what, uint64_t count)
{
	struct wire_wait_request message = {.head.type = WIRE_WORK_WAIT,
					    .queue = (uint16_t)queue,
					    .what = (uint16_t)what,
					    .count = count};

	return client_send(c, &message, sizeof(message));
}

static void futex_wait(const _Atomic uint32_t *word, uint32_t value, uint64_t ns)
{
	struct timespec timeout = {.tv_sec = (time_t)(ns / 1000000000u),
				   .tv_nsec = (long)(ns % 1000000000u)};

	syscall(SYS_futex, word, FUTEX_WAIT, value, &timeout, NULL, 0);
}

int client_queue_wait(struct client *c, int queue, enum wire_wait what, uint64_t count,
		      uint64_t timeout_ns)
{
	const struct wire_queue *state = &c->progress->queue[queue];
	const _Atomic uint64_t *counter = what == WIRE_WAIT_DONE ? &state->done : &state->started;
	uint64_t start = client_now(), waited = 0;
	int status = client_check(c);

	if (status == 0 && atomic_load_explicit(counter, memory_order_acquire) < count)
		status = wait_announce(c, queue, what, count);
	while (status == 0) {
		uint32_t wake = atomic_load_explicit(&state->wake, memory_order_acquire);

		if (atomic_load_explicit(counter, memory_order_acquire) >= count)
			return 0;
		if (waited >= timeout_ns)
			return -ETIMEDOUT;
		futex_wait(&state->wake, wake, MIN(timeout_ns - waited, WAIT_NS_MAX));
		waited = client_now() - start;
		status = client_check(c);
	}
	return status;
}
