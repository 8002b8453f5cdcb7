#include "daemon/waiting/refusal.h"
#include "daemon/host/names.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/macros.h"
#include "base/units.h"
#include "daemon/gpu/gpu_drain.h"
#include "daemon/gpu/pool.h"
#include "daemon/request/request.h"

const char *refusal_holder(const struct claim *claim, char buf[static REFUSAL_HOLDER_SIZE])
{
	const char *whose = claim->state == CLAIM_RESERVED
				    ? "it is the system daemon's, which does not run"
			    : claim->state == CLAIM_SYSTEM ? "the system daemon has it"
							   : "held by another daemon";

	if (claim->state != CLAIM_RESERVED && claim->holder.pid)
		snprintf(buf, REFUSAL_HOLDER_SIZE, "%s (process %d of %s)", whose,
			 (int)claim->holder.pid, names_of(NAMES_OF_USERS, claim->holder_uid));
	else
		snprintf(buf, REFUSAL_HOLDER_SIZE, "%s", whose);
	return buf;
}

void refusal_of_gpu(const struct pool *pool, uint32_t index, const struct place_gpu *place,
		    const struct place_request *request, enum place_reason reason, char *buf,
		    size_t size)
{
	const struct pool_gpu *gpu = &pool->gpu[index];
	char left[UNITS_TEXT_SIZE], total[UNITS_TEXT_SIZE], other[UNITS_TEXT_SIZE];
	char holder[REFUSAL_HOLDER_SIZE], drained[GPU_DRAIN_TEXT_SIZE];
	const struct store_drain *drain = gpu_drain_of(pool, index);
	const char *driver_reason = gpu_state_reason(gpu);

	units_format_room(place_available(place), left);
	units_format_room(place_capacity(place), total);
	if (reason == PLACE_NOT_OFFERED && gpu->claim.state != CLAIM_OURS)
		snprintf(buf, size, "%s", refusal_holder(&gpu->claim, holder));
	else if (reason == PLACE_NOT_OFFERED)
		snprintf(buf, size, "%s",
			 gpu->gives_instances ? "it gives out MIG instances"
			 : gpu->info.mig      ? "in MIG mode"
			 : driver_reason      ? driver_reason
					      : "the driver cannot reach it");
	else if (reason == PLACE_DRAINED && drain)
		snprintf(buf, size, "%s", gpu_drain_text(drain, drained));
	else if (reason == PLACE_NOT_ALLOWED)
		snprintf(buf, size, "not in --gpu-ids");
	else if (reason == PLACE_TOO_SMALL)
		snprintf(buf, size, "one CUDA context alone takes %s",
			 units_format_bytes(place->context, other));
	else if (reason == PLACE_NOT_EMPTY)
		snprintf(buf, size, "not empty (%s)",
			 units_format_count(place->sessions, "session", other));
	else if (reason == PLACE_NO_COMPUTE)
		snprintf(buf, size, "%g%% of its time is promised, %g%% more were asked",
			 (double)place->share * 100 / SHARE_ONE,
			 place_compute(request) * 100.0 / SHARE_ONE);
	else if (place->outside)
		snprintf(buf, size, "%s of %s free, programs outside carve hold %s", left, total,
			 units_format_bytes(place->outside, other));
	else
		snprintf(buf, size, "%s of %s free", left, total);
}

static bool all_give_instances(const struct pool *pool)
{
	uint32_t count = 0;

	for (uint32_t i = 0; i < pool->count; i++)
		count += pool->gpu[i].gives_instances;
	return count == pool->count;
}

/* Whether the refusal tells what this GPU says. A user knows which GPUs --gpu-ids leaves out. GPUs
 * that give out instances are told by mig_ask.c, where there are others beside them. */
static bool gpu_is_told(const struct pool *pool, uint32_t index,
			const struct place_request *request, bool all_mig)
{
	if (request->allowed && !request->allowed[index])
		return false;
	return all_mig || !pool->gpu[index].gives_instances;
}

/* Appends what each GPU says, as many as there is room for. */
static void gpus_explain(const struct pool *pool, const struct place_gpu *gpus,
			 const struct place_request *request, char *buf, size_t size)
{
	size_t used = strlen(buf);
	bool any = false, all_mig = all_give_instances(pool);
	uint32_t left = 0;

	for (uint32_t i = 0; i < pool->count; i++)
		left += gpu_is_told(pool, i, request, all_mig);
	for (uint32_t i = 0; i < pool->count; i++) {
		enum place_reason reason = place_check(gpus, i, request);
		const struct gpu_info *info = &pool->gpu[i].info;
		char says[REFUSAL_GPU_SIZE], part[REFUSAL_GPU_SIZE + 128];

		if (!gpu_is_told(pool, i, request, all_mig))
			continue;
		refusal_of_gpu(pool, i, &gpus[i], request, reason, says, sizeof(says));
		snprintf(part, sizeof(part), "GPU %u (%s): %s", info->index, info->name, says);
		if (used + strlen(part) + 32 > size) {
			snprintf(buf + used, size - used, "; and %u more", left);
			return;
		}
		left--;
		used += (size_t)snprintf(buf + used, size - used, "%s%s", any ? "; " : ": ", part);
		any = true;
	}
}

/* GPUs are short, not memory: says so and returns true. */
static bool count_explain(const struct pool *pool, const struct place_gpu *gpus,
			  const struct place_request *request, char *buf, size_t size)
{
	char asked[UNITS_TEXT_SIZE];
	uint32_t named = 0, offered = 0;

	for (uint32_t i = 0; i < pool->count; i++) {
		bool allowed = !request->allowed || request->allowed[i];

		named += allowed;
		offered += allowed && gpus[i].offered;
	}
	units_format_count(request->count, "GPU", asked);
	if (pool->count < request->count)
		snprintf(buf, size, "%s asked, there %s %u", asked, pool->count == 1 ? "is" : "are",
			 pool->count);
	else if (named < request->count)
		snprintf(buf, size, "%s asked, --gpu-ids names %u", asked, named);
	else if (!offered)
		snprintf(buf, size, "no GPU can be had");
	else if (offered < request->count)
		snprintf(buf, size, "%s asked, %u can be had", asked, offered);
	else
		return false;
	return true;
}

/* How many GPUs would do but for this. */
static uint32_t count_but_for(const struct pool *pool, const struct place_gpu *gpus,
			      const struct place_request *request, enum place_reason only)
{
	uint32_t count = 0;

	for (uint32_t i = 0; i < pool->count; i++) {
		enum place_reason reason = place_check(gpus, i, request);

		count += reason == PLACE_FITS || reason == only;
	}
	return count;
}

/* Whole GPUs are asked for, and sessions are on them: which, or how many. */
static void occupied_explain(const struct pool *pool, const struct place_gpu *gpus,
			     const struct place_request *request, const char *asked, char *buf,
			     size_t size)
{
	uint32_t occupied = 0, last = 0;

	for (uint32_t i = 0; i < pool->count; i++)
		if (place_check(gpus, i, request) == PLACE_NOT_EMPTY) {
			occupied++;
			last = pool->gpu[i].info.index;
		}
	if (occupied == 1)
		snprintf(buf, size, "%s asked, and GPU %u is not empty", asked, last);
	else
		snprintf(buf, size, "%s asked, and %u GPUs are not empty", asked, occupied);
}

/* Whether there is no room, and would be if nothing were drained. */
static bool fits_when_resumed(const struct pool *pool, const struct place_gpu *gpus,
			      const struct place_request *request)
{
	struct place_gpu all[GPUS_MAX];

	memcpy(all, gpus, pool->count * sizeof(*all));
	for (uint32_t i = 0; i < pool->count; i++)
		all[i].drained = false;
	return count_but_for(pool, gpus, request, PLACE_FITS) < request->count &&
	       count_but_for(pool, all, request, PLACE_FITS) >= request->count;
}

bool refusal_is_by_drains(const struct pool *pool, const struct place_request *request)
{
	struct place_gpu gpus[GPUS_MAX];

	pool_place_gpus(pool, gpus);
	return fits_when_resumed(pool, gpus, request);
}

/* Names the thing of which there is too little. Returns what would help. */
static const char *short_explain(const struct pool *pool, const struct place_gpu *gpus,
				 const struct place_request *request, const char *asked, char *buf,
				 size_t size)
{
	static const char less[] = "ask for less, or wait for room with --wait-for 10m";

	if (fits_when_resumed(pool, gpus, request)) {
		snprintf(buf, size,
			 "the GPUs with room for %s are drained, and nobody knows until when",
			 asked);
		return "wait with --wait-for 10m until a GPU is resumed, or ask an administrator "
		       "(carve node resume)";
	}
	if (request->kind == PLACE_WHOLE &&
	    count_but_for(pool, gpus, request, PLACE_NOT_EMPTY) >= request->count) {
		occupied_explain(pool, gpus, request, asked, buf, size);
		return "ask for a part of a GPU (--gpu 0.5), or wait for room with --wait-for 10m";
	}
	if (count_but_for(pool, gpus, request, PLACE_NO_COMPUTE) >= request->count)
		snprintf(buf, size, "not enough GPU time for %g%%%s",
			 place_compute(request) * 100.0 / SHARE_ONE,
			 request->count > 1 ? " of each GPU" : "");
	else
		snprintf(buf, size, "not enough GPU memory for %s", asked);
	return less;
}

/* The advice where a GPU that the request could be on is another daemon's, or in MIG mode without
 * the role; NULL: none is. */
static const char *not_offered_hint(const struct pool *pool, const struct place_gpu *gpus,
				    const struct place_request *request)
{
	const char *mig = NULL;

	if (pool->count && all_give_instances(pool))
		return "leave out --backend fraction";
	for (uint32_t i = 0; i < pool->count; i++) {
		const struct pool_gpu *gpu = &pool->gpu[i];
		enum claim_state state = gpu->claim.state;

		if (place_check(gpus, i, request) != PLACE_NOT_OFFERED)
			continue;
		if (state == CLAIM_OURS) {
			if (gpu->info.mig && !gpu->gives_instances)
				mig = "carve node set-role --dynamic-mig-enabled lets carve make "
				      "instances of a GPU in MIG mode";
			continue;
		}
		if (state == CLAIM_RESERVED)
			return "as root: systemctl start carved.service; journalctl -u carved says "
			       "why it ended; without systemd: carved --system";
		if (state == CLAIM_SYSTEM)
			return "use the system daemon: leave out --host, CARVE_HOST and "
			       "CARVE_RUNTIME_DIR";
		return "use the daemon that holds the GPU with --host, or end it";
	}
	return mig;
}

static bool mebibytes_meant(const struct place_gpu *gpus, uint32_t count,
			    const struct place_request *request)
{
	uint64_t largest = 0;

	for (uint32_t i = 0; i < count; i++)
		largest = MAX(largest, place_capacity(&gpus[i]));
	return request->kind == PLACE_BYTES && units_mebibytes_meant(request->bytes, largest);
}

void refusal_mebibytes_hint(const struct pool *pool, const struct place_request *request,
			    struct error *err)
{
	struct place_gpu gpus[GPUS_MAX];

	pool_place_gpus(pool, gpus);
	if (mebibytes_meant(gpus, pool->count, request))
		error_hint(err, UNITS_BARE_HINT ": did you mean %" PRIu64 "MiB?",
			   request->bytes >> 30);
}

void refusal_explain(const struct pool *pool, const struct place_request *request, int rc,
		     struct error *err)
{
	struct place_gpu gpus[GPUS_MAX];
	char asked[REQUEST_TEXT_SIZE], text[sizeof(err->message)];

	pool_place_gpus(pool, gpus);
	request_text(request, "", asked);
	bool possible = place_possible(gpus, pool->count, request);
	const char *hint = NULL;
	if (rc == -EDOM)
		snprintf(text, sizeof(text), "a slice of %s is too small", asked);
	else if (possible)
		hint = short_explain(pool, gpus, request, asked, text, sizeof(text));
	else if (!count_explain(pool, gpus, request, text, sizeof(text)))
		snprintf(text, sizeof(text), "%s is more than there is", asked);
	gpus_explain(pool, gpus, request, text, sizeof(text));
	error_set(err, rc == -EDOM ? EXIT_CODE_USAGE : EXIT_CODE_NO_ROOM, "%s", text);
	if (!possible)
		hint = not_offered_hint(pool, gpus, request);
	if (rc != -EDOM && hint)
		error_hint(err, "%s", hint);
	/* No GPU that is offered one day has so much, either. */
	if (rc != -EDOM && !possible)
		refusal_mebibytes_hint(pool, request, err);
}

void refusal_no_gpu(const struct pool *pool, struct error *err)
{
	error_set(err, EXIT_CODE_NO_ROOM, "no GPU found: %s", pool->why.message);
	error_hint(err, "without a GPU, try `carve sim`");
}
