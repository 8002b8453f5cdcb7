#include "cuda/work.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "cuda/context.h"

struct lane {
	_Atomic unsigned int refs; /* the owner's, the thread's, and one a fence */
	int queue;                 /* the host's */
	struct device *device;
	CUcontext ctx;
	pthread_mutex_t lock;
	pthread_cond_t changed; /* work came, a fence was executed, closing */
	bool closing, running;
	_Atomic bool aborting;
	struct work *head, **tail;
	struct fence *last;
	bool expects;           /* its thread's alone: the last item said that more follows */
	unsigned int sequences; /* its thread's alone */
};

/* lane, target and executed are set under the lane's lock; executed never goes back. */
struct fence {
	_Atomic unsigned int refs;
	struct lane *lane;
	uint64_t target;
	_Atomic bool executed;
};

static void lane_unref(struct lane *lane)
{
	if (atomic_fetch_sub(&lane->refs, 1) != 1)
		return;
	client_queue_close(driver.client, lane->queue);
	pthread_mutex_destroy(&lane->lock);
	pthread_cond_destroy(&lane->changed);
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
		while (!atomic_load_explicit(&fence->executed, memory_order_acquire))
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
	lane->tail = &lane->head;
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
	return lane->aborting || client_check(driver.client) == -ENOTCONN;
}

CUcontext lane_context(const struct lane *lane)
{
	return lane->ctx;
}

static bool lane_has_more(struct lane *lane)
{
	pthread_mutex_lock(&lane->lock);
	bool more = lane->head;
	pthread_mutex_unlock(&lane->lock);
	return more;
}

static void item_submit(struct lane *lane, struct wire_item item)
{
	lane->expects = item.flags & WIRE_ITEM_MORE;
	item.queue = (uint16_t)lane->queue;
	item.device = lane->device->wire;
	client_submit(driver.client, &item, 1);
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
	client_queue_wait(driver.client, lane->queue, WIRE_WAIT_DONE,
			  client_queue_submitted(driver.client, lane->queue), UINT64_MAX);
	return client_queue_done_at(driver.client, lane->queue, ret_sure_until);
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
 * the GPU's time: where it is about to go on, its clock stands still meanwhile. */
static void wait_for_previous(struct lane *lane, const struct work *work)
{
	uint64_t sure_until;

	if (work->prompt && lane_has_more(lane))
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
	work->fence->target = client_queue_submitted(driver.client, lane->queue);
	atomic_store_explicit(&work->fence->executed, true, memory_order_release);
	pthread_cond_broadcast(&lane->changed);
	pthread_mutex_unlock(&lane->lock);
	fence_unref(work->fence);
	free(work);
}

static void *lane_main(void *arg)
{
	struct lane *lane = arg;

	pthread_mutex_lock(&lane->lock);
	for (;;) {
		while (!lane->head && !lane->closing && !lane->expects)
			pthread_cond_wait(&lane->changed, &lane->lock);
		struct work *work = lane->head;
		if (!work && lane->expects) {
			pthread_mutex_unlock(&lane->lock);
			lane_expect_nothing(lane);
			pthread_mutex_lock(&lane->lock);
			continue;
		}
		if (!work)
			break;
		lane->head = work->next;
		if (!lane->head)
			lane->tail = &lane->head;
		pthread_mutex_unlock(&lane->lock);
		work_run(lane, work);
		work_finish(lane, work);
		pthread_mutex_lock(&lane->lock);
	}
	lane->running = false;
	pthread_cond_broadcast(&lane->changed);
	pthread_mutex_unlock(&lane->lock);
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
	*lane->tail = work;
	lane->tail = &work->next;
	before = lane->last;
	lane->last = fence_ref(fence);
	if (!lane->running)
		lane->running = lane_start(lane);
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
