/* How long launches take on the GPU, learned while others want it: two timing events around the
 * first ones of a kind and then around few. The thread that launches next reads what is there. */
#include "base/macros.h"
#include "front/cuda/gate/gate_parts.h"
#include "front/cuda/hooks.h"

#define SAMPLES_FIRST 3u
#define SAMPLE_EACH 256u
/* Before anything is known: bytes move about this fast, and a launch takes that at least. */
#define BYTES_PER_NS 400u
#define LAUNCH_NS 2000u

static uint64_t key_of(struct gate_work work)
{
	uint64_t bucket = work.size ? 63u - (uint32_t)__builtin_clzll(work.size) : 0;

	return (work.what << 6 ^ bucket) | 1;
}

/* Two places; the one used less gives way. */
struct gate_learned *gate_learned_find(struct gate *g, struct gate_work work)
{
	uint64_t key = key_of(work);
	uint32_t at = (uint32_t)(key * 0x9e3779b97f4a7c15ull >> (64 - GATE_LEARNED_BITS));
	struct gate_learned *one = &g->learned[at], *other = &g->learned[at ^ 1];

	if (atomic_load_explicit(&one->key, memory_order_relaxed) == key)
		return one;
	if (atomic_load_explicit(&other->key, memory_order_relaxed) == key)
		return other;
	if (atomic_load(&other->uses) < atomic_load(&one->uses))
		one = other;
	atomic_store(&one->ns, 0);
	atomic_store(&one->samples, 0);
	atomic_store(&one->uses, 0);
	atomic_store(&one->key, key);
	return one;
}

uint64_t gate_learned_ns(const struct gate_learned *learned, struct gate_work work,
			 bool *ret_unknown)
{
	uint32_t ns = atomic_load_explicit(&learned->ns, memory_order_relaxed);

	*ret_unknown = false;
	if (ns)
		return ns;
	if (work.what <= GATE_WORK_COPY)
		return work.size / BYTES_PER_NS + LAUNCH_NS;
	*ret_unknown = true;
	return GATE_UNKNOWN_NS;
}

void gate_forget_work(const void *what)
{
	struct gate *g = gate_peek();

	for (size_t i = 0; g && i < ARRAY_SIZE(g->learned); i++)
		if (atomic_load(&g->learned[i].key) >> 6 == (uintptr_t)what)
			atomic_store(&g->learned[i].key, 0);
}

/* ---- samples ------------------------------------------------------------------------------- */

static bool sample_take(struct gate_sample *s, uint32_t from)
{
	return atomic_compare_exchange_strong(&s->used, &from, 1);
}

static void learn(struct gate_sample *s, float ms)
{
	struct gate_learned *learned = s->learned;
	uint32_t before = atomic_load(&learned->ns);
	uint32_t ns = ms <= 0 ? 1 : ms > 4000 ? 4000000000u : (uint32_t)(ms * 1e6f) + 1;

	if (atomic_load(&learned->key) != s->key)
		return;
	/* The first ones may have waited for their code to be loaded: less is nearer the truth. */
	if (before && ns > before)
		ns = before + (ns - before) / 4;
	atomic_store(&learned->ns, ns);
	atomic_fetch_add(&learned->samples, 1);
}

/* Reads those that are done, of the current context. */
static void gate_samples_read(struct gate *g, CUcontext context)
{
	for (uint32_t i = 0; i < GATE_SAMPLES; i++) {
		struct gate_sample *s = &g->samples[i];
		float ms = 0;

		if (atomic_load_explicit(&s->used, memory_order_relaxed) != 2 ||
		    s->context != context || !sample_take(s, 2))
			continue;
		CUresult result = real_cuEventQuery(s->end);
		if (result == CUDA_SUCCESS &&
		    real_cuEventElapsedTime(&ms, s->begin, s->end) == CUDA_SUCCESS)
			learn(s, ms);
		atomic_store(&s->used, result == CUDA_ERROR_NOT_READY ? 2 : 0);
	}
}

void gate_samples_look(struct gate *g, const struct gate_lane *lane)
{
	if (gate_lane_by_query(lane) || !gate_look_begin())
		return;
	if (!atomic_load(&gate_captures))
		gate_samples_read(g, lane->context->handle);
	gate_look_end();
}

void gate_samples_drop(struct gate *g, CUcontext context)
{
	for (uint32_t i = 0; i < GATE_SAMPLES; i++)
		if (g->samples[i].context == context) {
			g->samples[i].context = NULL;
			atomic_store(&g->samples[i].used, 0);
		}
}

/* Makes its events; those of another context end with that. */
static bool sample_prepare(struct gate_sample *s, CUcontext context)
{
	if (s->context == context)
		return true;
	s->context = NULL;
	if (real_cuEventCreate(&s->begin, 0) != CUDA_SUCCESS)
		return false;
	if (real_cuEventCreate(&s->end, 0) != CUDA_SUCCESS) {
		real_cuEventDestroy_v2(s->begin);
		return false;
	}
	s->context = context;
	return true;
}

/* One of the context's, or one that has no events yet. */
static struct gate_sample *sample_choose(struct gate *g, CUcontext context)
{
	for (uint32_t i = 0; i < GATE_SAMPLES; i++) {
		struct gate_sample *s = &g->samples[i];

		if ((!s->context || s->context == context) && sample_take(s, 0)) {
			if (sample_prepare(s, context))
				return s;
			atomic_store(&s->used, 0);
			return NULL;
		}
	}
	return NULL;
}

static bool is_wanted(struct gate_learned *learned)
{
	uint32_t uses = atomic_load_explicit(&learned->uses, memory_order_relaxed) + 1;

	atomic_store_explicit(&learned->uses, uses, memory_order_relaxed);
	return uses % SAMPLE_EACH == 0 ||
	       atomic_load_explicit(&learned->samples, memory_order_relaxed) < SAMPLES_FIRST;
}

struct gate_sample *gate_sample_begin(struct gate *g, struct gate_learned *learned,
				      struct gate_lane *lane)
{
	CUcontext context = lane->context->handle;
	struct gate_sample *s = NULL;

	/* Events in the NULL stream are barriers as markers are. */
	if (!is_wanted(learned) || gate_lane_by_query(lane))
		return NULL;
	if (!gate_look_begin())
		return NULL;
	if (!atomic_load(&gate_captures)) {
		gate_samples_read(g, context);
		s = sample_choose(g, context);
	}
	gate_look_end();
	if (!s)
		return NULL;
	s->learned = learned;
	s->key = atomic_load(&learned->key);
	if (real_cuEventRecord(s->begin, atomic_load(&lane->stream)) == CUDA_SUCCESS)
		return s;
	atomic_store(&s->used, 0);
	return NULL;
}

void gate_sample_end(struct gate_sample *s, struct gate_lane *lane, CUresult result)
{
	bool ok = result == CUDA_SUCCESS &&
		  real_cuEventRecord(s->end, atomic_load(&lane->stream)) == CUDA_SUCCESS;

	atomic_store(&s->used, ok ? 2 : 0);
}
