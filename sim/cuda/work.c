#include "cuda/work.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "base/macros.h"
#include "cuda/context.h"
#include "ptx/ptx.h"

/* So many items go to the host in one message, and none waits longer than this for others. */
#define BATCH_ITEMS_MAX 64u
#define BATCH_NS_MAX 200000u

struct lane {
	_Atomic unsigned int refs; /* the owner's, the thread's, and one a fence */
	int queue;                 /* the host's */
	struct device *device;
	CUcontext ctx;
	pthread_mutex_t lock;
	pthread_cond_t changed; /* work came, a fence was executed, closing */
	bool closing, running, asleep;
	_Atomic bool aborting;
	struct work *_Atomic head; /* work that came since its thread last looked */
	struct work **tail_next;
	struct fence *last;
	/* Its thread's alone: */
	struct work *taken; /* before what is at `head` */
	bool expects;       /* the last item said that more follows */
	unsigned int sequences;
	/* Items that are not handed in yet; the last of them says that more follows. */
	struct wire_item batch[BATCH_ITEMS_MAX];
	unsigned int batched;
	uint64_t batched_at; /* when the first of them came, by the host's clock */
	struct ptx_spare *spare;
	struct lane_clock clock;
	uint64_t clock_items; /* the items of all lanes at that time */
};

/* Items of compute work of all lanes: who else hands some in may slow a lane's down. */
static _Atomic uint64_t compute_items;

/* lane and target are set before executed, which never goes back. */
struct fence {
	_Atomic unsigned int refs;
	struct lane *lane;
	uint64_t target;
	_Atomic bool executed;
	_Atomic bool awaited; /* somebody sleeps until it is */
};

static void lane_unref(struct lane *lane)
{
	if (atomic_fetch_sub(&lane->refs, 1) != 1)
		return;
	client_queue_close(driver.client, lane->queue);
	pthread_mutex_destroy(&lane->lock);
	pthread_cond_destroy(&lane->changed);
	ptx_spare_free(lane->spare);
	free(lane);
}

struct fence *fence_ref(struct fence *fence)
{
	if (fence)
		atomic_fetch_add(&fence->refs, 1);
	return fence;
}

void fence_unref(struct fence *fence)
{
	if (!fence || atomic_fetch_sub(&fence->refs, 1) != 1)
		return;
	lane_unref(fence->lane);
	free(fence);
}

bool fence_done(struct fence *fence)
{
	return atomic_load_explicit(&fence->executed, memory_order_acquire) &&
	       client_queue_done(driver.client, fence->lane->queue) >= fence->target;
}

bool fence_is_of(const struct fence *fence, const struct lane *lane)
{
	return fence->lane == lane;
}

void fence_wait(struct fence *fence)
{
	struct lane *lane = fence->lane;

	if (!atomic_load_explicit(&fence->executed, memory_order_acquire)) {
		pthread_mutex_lock(&lane->lock);
		atomic_store(&fence->awaited, true);
		while (!atomic_load(&fence->executed))
			pthread_cond_wait(&lane->changed, &lane->lock);
		pthread_mutex_unlock(&lane->lock);
	}
	client_queue_wait(driver.client, lane->queue, WIRE_WAIT_DONE, fence->target, UINT64_MAX);
}

struct lane *lane_create(struct device *device, CUcontext ctx)
{
	struct lane *lane = calloc(1, sizeof(*lane));

	if (!lane)
		return NULL;
	lane->queue = client_queue_open(driver.client);
	if (lane->queue < 0) {
		free(lane);
		return NULL;
	}
	lane->refs = 1;
	lane->device = device;
	lane->ctx = ctx;
	pthread_mutex_init(&lane->lock, NULL);
	pthread_cond_init(&lane->changed, NULL);
	return lane;
}

struct device *lane_device(const struct lane *lane)
{
	return lane->device;
}

bool lane_is_aborting(const struct lane *lane)
{
	return lane->aborting || client_looks_lost(driver.client);
}

CUcontext lane_context(const struct lane *lane)
{
	return lane->ctx;
}

struct ptx_spare **lane_spare(struct lane *lane)
{
	return &lane->spare;
}

static bool lane_has_more(struct lane *lane)
{
	return lane->taken || atomic_load_explicit(&lane->head, memory_order_relaxed);
}

static void lane_flush(struct lane *lane)
{
	if (lane->batched)
		client_submit(driver.client, lane->batch, lane->batched);
	lane->batched = 0;
}

void lane_hand_in(struct lane *lane)
{
	if (lane->batched && client_now() - lane->batched_at > BATCH_NS_MAX)
		lane_flush(lane);
}

/* While more follows, the GPU's clock stands still at the end of what was handed in. So an item
 * begins there, and nothing but its own length is between that and its end. */
static void clock_pass(struct lane *lane, const struct wire_item *item)
{
	if (item->engine == WIRE_ENGINE_COMPUTE) {
		atomic_fetch_add_explicit(&compute_items, 1, memory_order_relaxed);
		lane->clock_items++;
		lane->clock.at += item->ns;
	} else if (item->engine != WIRE_ENGINE_NONE) {
		lane->clock.known = false;
	}
	if (!lane->expects)
		lane->clock.known = false;
}

static void item_submit(struct lane *lane, struct wire_item item)
{
	lane->expects = item.flags & WIRE_ITEM_MORE;
	item.queue = (uint16_t)lane->queue;
	item.device = lane->device->wire;
	clock_pass(lane, &item);
	uint64_t now = lane->clock.known ? client_now() : 0;
	if (!lane->batched)
		lane->batched_at = now;
	lane->batch[lane->batched++] = item;
	if (!lane->clock.known || lane->batched == BATCH_ITEMS_MAX ||
	    now - lane->batched_at > BATCH_NS_MAX)
		lane_flush(lane);
}

const struct lane_clock *lane_clock(const struct lane *lane)
{
	static const struct lane_clock unknown;

	return lane->clock.known && lane->clock_items == atomic_load_explicit(&compute_items,
									      memory_order_relaxed)
		       ? &lane->clock
		       : &unknown;
}

void lane_submit(struct lane *lane, struct wire_item item)
{
	if (lane->sequences || lane_has_more(lane))
		item.flags |= WIRE_ITEM_MORE;
	item_submit(lane, item);
}

void lane_expect(struct lane *lane)
{
	if (!lane->expects)
		item_submit(lane, (struct wire_item){.engine = WIRE_ENGINE_NONE,
						     .flags = WIRE_ITEM_MORE});
}

void lane_expect_nothing(struct lane *lane)
{
	if (lane->expects)
		item_submit(lane, (struct wire_item){.engine = WIRE_ENGINE_NONE});
}

void lane_sequence_begin(struct lane *lane)
{
	lane->sequences++;
}

void lane_sequence_end(struct lane *lane)
{
	lane->sequences--;
}

uint64_t lane_wait_done(struct lane *lane, uint64_t *ret_sure_until)
{
	uint64_t items = atomic_load_explicit(&compute_items, memory_order_relaxed);

	lane_flush(lane);
	client_queue_wait(driver.client, lane->queue, WIRE_WAIT_DONE,
			  client_queue_submitted(driver.client, lane->queue), UINT64_MAX);
	lane->clock.at = client_queue_done_at(driver.client, lane->queue, &lane->clock.sure_until);
	lane->clock.known = lane->expects;
	lane->clock_items = items;
	*ret_sure_until = lane->clock.sure_until;
	return lane->clock.at;
}

struct work *work_create(CUresult (*run)(struct lane *, void *), void (*release)(void *),
			 void *data, size_t dependency_count)
{
	struct work *work = calloc(1, sizeof(*work) + dependency_count * sizeof(struct fence *));
	struct fence *fence = calloc(1, sizeof(*fence));

	if (!work || !fence) {
		free(work);
		free(fence);
		return NULL;
	}
	fence->refs = 1;
	work->run = run;
	work->release = release;
	work->data = data;
	work->fence = fence;
	work->dependency_count = dependency_count;
	return work;
}

/* Until the GPU is done with what was before. How long this thread takes to hear of that is not
 * the GPU's time: where the GPU goes on by itself, its clock stands still meanwhile. */
static void wait_for_previous(struct lane *lane, const struct work *work)
{
	uint64_t sure_until;

	if (work->prompt)
		lane_expect(lane);
	else
		lane_expect_nothing(lane);
	lane_wait_done(lane, &sure_until);
}

/* After an error that sticks, what is queued in the context no longer runs. */
static void work_run(struct lane *lane, struct work *work)
{
	for (size_t i = 0; i < work->dependency_count; i++) {
		if (!lane->aborting && !fence_done(work->dependencies[i])) {
			lane_expect_nothing(lane);
			fence_wait(work->dependencies[i]);
		}
		fence_unref(work->dependencies[i]);
	}
	if (work->strict)
		wait_for_previous(lane, work);
	if (!lane->aborting && context_error(lane->ctx) == CUDA_SUCCESS) {
		CUresult result = work->run(lane, work->data);

		if (result != CUDA_SUCCESS)
			context_set_error(lane->ctx, result);
	}
	if (work->release)
		work->release(work->data);
}

static void work_finish(struct lane *lane, struct work *work)
{
	pthread_mutex_lock(&lane->lock);
	work->fence->target = client_queue_submitted(driver.client, lane->queue) + lane->batched;
	atomic_store_explicit(&work->fence->executed, true, memory_order_release);
	pthread_cond_broadcast(&lane->changed);
	pthread_mutex_unlock(&lane->lock);
	fence_unref(work->fence);
	free(work);
}

/* The next piece of work; NULL: nobody wants anything of the lane any more. */
static struct work *work_next(struct lane *lane)
{
	struct work *work = lane->taken;

	if (!work) {
		pthread_mutex_lock(&lane->lock);
		while (!lane->head && !lane->closing && !lane->expects) {
			lane->asleep = true;
			pthread_cond_wait(&lane->changed, &lane->lock);
		}
		lane->asleep = false;
		work = lane->head;
		lane->head = NULL;
		lane->running = work || lane->expects;
		if (!lane->running)
			pthread_cond_broadcast(&lane->changed);
		pthread_mutex_unlock(&lane->lock);
	}
	lane->taken = work ? work->next : NULL;
	return work;
}

static void *lane_main(void *arg)
{
	struct lane *lane = arg;
	struct work *work;

	while ((work = work_next(lane)) || lane->expects) {
		if (work) {
			work_run(lane, work);
			work_finish(lane, work);
		} else {
			lane_expect_nothing(lane);
		}
	}
	lane_unref(lane);
	return NULL;
}

/* The program's signals are its own threads' business. */
static bool lane_start(struct lane *lane)
{
	sigset_t all, old;
	pthread_t thread;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	atomic_fetch_add(&lane->refs, 1);
	int error = pthread_create(&thread, NULL, lane_main, lane);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (error) {
		atomic_fetch_sub(&lane->refs, 1);
		return false;
	}
	pthread_detach(thread);
	return true;
}

struct fence *lane_enqueue(struct lane *lane, struct work *work)
{
	struct fence *fence = fence_ref(work->fence), *before;

	fence->lane = lane;
	atomic_fetch_add(&lane->refs, 1);
	pthread_mutex_lock(&lane->lock);
	if (lane->head)
		*lane->tail_next = work;
	else
		lane->head = work;
	lane->tail_next = &work->next;
	before = lane->last;
	lane->last = fence_ref(fence);
	if (!lane->running)
		lane->running = lane_start(lane);
	else if (lane->asleep && !lane->expects && !work->strict && !work->dependency_count)
		/* Nor is how long the thread takes to wake up. */
		lane_expect(lane);
	pthread_cond_broadcast(&lane->changed);
	pthread_mutex_unlock(&lane->lock);
	fence_unref(before);
	return fence;
}

struct fence *lane_last(struct lane *lane)
{
	struct fence *fence;

	pthread_mutex_lock(&lane->lock);
	fence = lane->last;
	if (fence && fence_done(fence))
		lane->last = NULL;
	else
		fence = fence_ref(fence);
	pthread_mutex_unlock(&lane->lock);
	if (fence && fence_done(fence)) {
		fence_unref(fence);
		fence = NULL;
	}
	return fence;
}

void lane_close(struct lane *lane)
{
	struct fence *last;

	pthread_mutex_lock(&lane->lock);
	lane->closing = true;
	last = lane->last;
	lane->last = NULL;
	pthread_cond_broadcast(&lane->changed);
	pthread_mutex_unlock(&lane->lock);
	fence_unref(last);
	lane_unref(lane);
}

void lane_abort(struct lane *lane)
{
	pthread_mutex_lock(&lane->lock);
	lane->closing = true;
	lane->aborting = true;
	pthread_cond_broadcast(&lane->changed);
	while (lane->running)
		pthread_cond_wait(&lane->changed, &lane->lock);
	pthread_mutex_unlock(&lane->lock);
}
