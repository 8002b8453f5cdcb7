#include "core/place.h"

#include <errno.h>
#include <string.h>

#include "base/units.h"

uint64_t place_capacity(const struct place_gpu *gpu)
{
	return gpu->total > gpu->reserved ? gpu->total - gpu->reserved : 0;
}

uint64_t place_available(const struct place_gpu *gpu)
{
	uint64_t left = place_capacity(gpu);

	left -= gpu->outside < left ? gpu->outside : left;
	left -= gpu->promised < left ? gpu->promised : left;
	return left;
}

uint64_t place_requested(const struct place_gpu *gpu, const struct place_request *request)
{
	switch (request->kind) {
	case PLACE_FRACTION:
		return (uint64_t)((unsigned __int128)place_capacity(gpu) * request->share /
				  SHARE_ONE);
	case PLACE_WHOLE:
		return place_capacity(gpu);
	case PLACE_PROFILE:
	case PLACE_BYTES:
		break;
	}
	return request->bytes;
}

uint32_t place_compute(const struct place_request *request)
{
	return request->kind == PLACE_WHOLE ? SHARE_ONE : request->compute;
}

/* Whether the time that is not promised yet covers the request. */
static bool time_left(const struct place_gpu *gpu, const struct place_request *request)
{
	return !gpu->shared_time || gpu->share + place_compute(request) <= SHARE_ONE ||
	       place_compute(request) == 0;
}

/* Everything but the room; `requested` is place_requested(). */
static enum place_reason eligible(const struct place_gpu *gpu, size_t index,
				  const struct place_request *request, uint64_t requested)
{
	if (request->allowed && !request->allowed[index])
		return PLACE_NOT_ALLOWED;
	if (!gpu->offered)
		return PLACE_NOT_OFFERED;
	if (requested < SLICE_BYTES_MIN || requested < gpu->context)
		return PLACE_TOO_SMALL;
	if (gpu->drained)
		return PLACE_DRAINED;
	if (request->kind == PLACE_WHOLE && gpu->sessions)
		return PLACE_NOT_EMPTY;
	if (!time_left(gpu, request))
		return PLACE_NO_COMPUTE;
	return PLACE_FITS;
}

enum place_reason place_check(const struct place_gpu *gpus, size_t index,
			      const struct place_request *request)
{
	uint64_t requested = place_requested(&gpus[index], request);
	enum place_reason reason = eligible(&gpus[index], index, request, requested);

	if (reason == PLACE_FITS && requested > place_available(&gpus[index]))
		reason = PLACE_NO_MEMORY;
	return reason;
}

/* The memory that a strict request may lack. */
static uint64_t resident(const struct place_gpu *gpu, const struct place_request *request)
{
	uint64_t most = place_capacity(gpu) / 100 * PLACE_RESIDENT_PERCENT;

	if (!request->lacks_resident || request->kind == PLACE_BYTES || gpu->outside > most)
		return 0;
	return gpu->outside;
}

/* Whether the remainder may stand in for the request. */
static bool tolerable(const struct place_gpu *gpu, const struct place_request *request,
		      uint64_t requested, uint64_t left)
{
	if (request->strict && requested > left && requested - left > resident(gpu, request))
		return false;
	return left >= SLICE_BYTES_MIN && left >= gpu->context &&
	       (unsigned __int128)left * 100 >=
		       (unsigned __int128)requested * PLACE_TOLERANCE_PERCENT;
}

/* How well a GPU suits, by the steps of place.h: the lower number goes first. */
struct fit {
	uint64_t memory, time;
	uint32_t busy;
};

/* Keeps `grant` sorted by fit, the best first, and drops what falls off the end. */
struct shortlist {
	struct place_grant grant[PLACE_GPUS_MAX];
	struct fit fit[PLACE_GPUS_MAX];
	uint32_t count, limit;
};

static bool is_better(struct fit a, struct fit b)
{
	if (a.memory != b.memory)
		return a.memory < b.memory;
	return a.time != b.time ? a.time < b.time : a.busy < b.busy;
}

/* If time is not shared, there is none to waste, and none that is promised. */
static uint64_t time_order(enum place_policy policy, const struct place_gpu *gpu)
{
	uint64_t promised = gpu->share < SHARE_ONE ? gpu->share : SHARE_ONE;

	if (!gpu->shared_time)
		return 0;
	return policy == PLACE_PACK ? SHARE_ONE - promised : promised;
}

static struct fit fit_of(enum place_policy policy, const struct place_gpu *gpu, uint64_t memory)
{
	return (struct fit){.memory = memory,
			    .time = time_order(policy, gpu),
			    .busy = gpu->shared_time ? 0 : gpu->busy};
}

/* `left` of the GPU's memory, of which the request takes `requested`. GPUs of several sizes are
 * filled alike by SPREAD, in parts of what each can grant. */
static uint64_t memory_order(enum place_policy policy, const struct place_gpu *gpu,
			     uint64_t requested, uint64_t left)
{
	uint64_t capacity = place_capacity(gpu);

	if (policy == PLACE_PACK || !capacity)
		return left - requested;
	return SHARE_ONE - (uint64_t)((unsigned __int128)(left - requested) * SHARE_ONE / capacity);
}

static void shortlist_offer(struct shortlist *list, struct place_grant grant, struct fit fit)
{
	uint32_t at = list->count;

	/* Equal fits stay in the order of the GPUs. */
	while (at && is_better(fit, list->fit[at - 1]))
		at--;
	if (at == list->limit)
		return;
	if (list->count < list->limit)
		list->count++;
	memmove(&list->grant[at + 1], &list->grant[at],
		(list->count - at - 1) * sizeof(list->grant[0]));
	memmove(&list->fit[at + 1], &list->fit[at], (list->count - at - 1) * sizeof(list->fit[0]));
	list->grant[at] = grant;
	list->fit[at] = fit;
}

/* Fills the list with GPUs that fulfil the request in full. Room is looked at first, as most GPUs
 * of a full pool have none. */
static void collect_full(enum place_policy policy, const struct place_gpu *gpus, size_t gpu_count,
			 const struct place_request *request, struct shortlist *list)
{
	for (size_t i = 0; i < gpu_count; i++) {
		uint64_t requested = place_requested(&gpus[i], request);
		uint64_t left = place_available(&gpus[i]);

		if (requested <= left && eligible(&gpus[i], i, request, requested) == PLACE_FITS)
			shortlist_offer(list,
					(struct place_grant){(uint32_t)i, requested, requested},
					fit_of(policy, &gpus[i],
					       memory_order(policy, &gpus[i], requested, left)));
	}
}

/* Fills the list with remainders that the tolerance allows, the largest first; GPUs that hold the
 * whole request are in it, too. */
static void collect_tolerable(enum place_policy policy, const struct place_gpu *gpus,
			      size_t gpu_count, const struct place_request *request,
			      struct shortlist *list)
{
	for (size_t i = 0; i < gpu_count; i++) {
		uint64_t requested = place_requested(&gpus[i], request);
		uint64_t left = place_available(&gpus[i]);
		uint64_t bytes = left < requested ? left : requested;

		if (tolerable(&gpus[i], request, requested, left) &&
		    eligible(&gpus[i], i, request, requested) == PLACE_FITS)
			shortlist_offer(list, (struct place_grant){(uint32_t)i, bytes, requested},
					fit_of(policy, &gpus[i], UINT64_MAX - left));
	}
}

/* A session has the same amount on each of its GPUs where it asked for an amount. */
static void level(struct shortlist *list, enum place_kind kind)
{
	uint64_t least = UINT64_MAX;

	if (kind != PLACE_BYTES)
		return;
	for (uint32_t i = 0; i < list->count; i++)
		least = list->grant[i].bytes < least ? list->grant[i].bytes : least;
	for (uint32_t i = 0; i < list->count; i++)
		list->grant[i].bytes = least;
}

static bool only_too_small(const struct place_gpu *gpus, size_t gpu_count,
			   const struct place_request *request)
{
	bool any = false;

	for (size_t i = 0; i < gpu_count; i++) {
		enum place_reason reason =
			eligible(&gpus[i], i, request, place_requested(&gpus[i], request));

		if (reason != PLACE_TOO_SMALL && reason != PLACE_NOT_OFFERED &&
		    reason != PLACE_NOT_ALLOWED)
			return false;
		any |= reason == PLACE_TOO_SMALL;
	}
	return any;
}

static void sort_by_index(struct place_grant *grant, uint32_t count)
{
	for (uint32_t i = 1; i < count; i++)
		for (uint32_t j = i; j && grant[j].gpu < grant[j - 1].gpu; j--) {
			struct place_grant swap = grant[j];

			grant[j] = grant[j - 1];
			grant[j - 1] = swap;
		}
}

int place_decide(enum place_policy policy, const struct place_gpu *gpus, size_t gpu_count,
		 const struct place_request *request, struct place_result *ret)
{
	struct shortlist list = {.limit = request->count};

	if (request->count == 0 || request->count > PLACE_GPUS_MAX)
		return -ENOSPC;
	collect_full(policy, gpus, gpu_count, request, &list);
	bool tolerance = list.count < request->count;
	if (tolerance) {
		list.count = 0;
		if (!request->strict || request->lacks_resident)
			collect_tolerable(policy, gpus, gpu_count, request, &list);
		level(&list, request->kind);
	}
	if (list.count < request->count)
		return only_too_small(gpus, gpu_count, request) ? -EDOM : -ENOSPC;
	sort_by_index(list.grant, list.count);
	memcpy(ret->grant, list.grant, list.count * sizeof(list.grant[0]));
	ret->count = list.count;
	ret->tolerance_applied = tolerance;
	return 0;
}

bool place_possible(const struct place_gpu *gpus, size_t gpu_count,
		    const struct place_request *request)
{
	uint32_t found = 0;

	for (size_t i = 0; i < gpu_count; i++) {
		struct place_gpu empty = gpus[i];

		empty.outside = 0;
		empty.promised = 0;
		empty.sessions = 0;
		empty.share = 0;
		empty.drained = false;
		uint64_t requested = place_requested(&empty, request);
		uint64_t left = place_available(&empty);

		found += eligible(&empty, i, request, requested) == PLACE_FITS &&
			 tolerable(&empty, request, requested, left);
	}
	return found >= request->count;
}
