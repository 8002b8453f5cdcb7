#include "daemon/metrics/gpu_time.h"

#include <errno.h>
#include <stdlib.h>
#include <uv.h>

#include "backend/gpus.h"
#include "base/clock.h"
#include "base/macros.h"
#include "base/units.h"
#include "daemon/gpu/pool.h"
#include "daemon/session/process.h"
#include "daemon/session/session.h"
#include "daemon/session/sessions.h"

#define WANTED_NS 300000000000ull
/* The driver says what was in the last second. */
#define WINDOW_NS 1000000000ull
/* Asking takes a part in this many of the time at most. */
#define COST_PART 20

struct sheet {
	struct gpu_use *uses;
	size_t count;
	int error;
};

struct gpu_time {
	struct sessions *sessions;
	uint64_t wanted_until_ns;
	uint64_t measured_ns[GPUS_MAX]; /* 0: not yet */
	uv_work_t work;
	bool running, stopped;
	uint64_t mask, took_ns, ended_ns;
	struct sheet sheet[GPUS_MAX];
};

/* ---- on the thread pool -------------------------------------------------------------------- */

static void on_work(uv_work_t *work)
{
	struct gpu_time *t = work->data;
	const struct pool *pool = t->sessions->pool;
	uint64_t began = now_monotonic_ns();

	for (uint64_t mask = t->mask; mask; mask &= mask - 1) {
		uint32_t i = (uint32_t)__builtin_ctzll(mask), busy;
		struct sheet *sheet = &t->sheet[i];

		sheet->error = gpus_use(pool->gpus, pool->gpu[i].info.index, GPU_USE_WINDOW_NS,
					sheet->uses, GPU_PROCESSES_MAX, &sheet->count, &busy);
	}
	t->took_ns = now_monotonic_ns() - began;
}

/* ---- on the loop --------------------------------------------------------------------------- */

static int by_pid(const void *a, const void *b)
{
	const struct gpu_use *x = a, *y = b;

	return (x->pid > y->pid) - (x->pid < y->pid);
}

/* Adds what the session's living processes used of this GPU. */
static void session_add(struct session *s, uint32_t gpu, const struct sheet *sheet, uint64_t ns)
{
	for (uint32_t i = 0; i < s->record.gpu_count; i++) {
		if (s->pool_gpu[i] != (int)gpu)
			continue;
		for (const struct process *p = s->processes; p; p = p->next) {
			const struct gpu_use key = {.pid = p->id.pid}, *use;

			if (process_is_dead(p) || !process_counts_at(p, i))
				continue;
			use = bsearch(&key, sheet->uses, sheet->count, sizeof(key), by_pid);
			s->used_ns[i] += use ? use->ppm * ns / SHARE_ONE : 0;
		}
	}
}

static void sheet_take(struct gpu_time *t, uint32_t gpu, uint64_t now)
{
	struct sheet *sheet = &t->sheet[gpu];
	uint64_t passed = t->measured_ns[gpu] ? now - t->measured_ns[gpu] : 0;

	t->measured_ns[gpu] = now;
	t->sessions->pool->gpu[gpu].use_untold = sheet->error == -ENOTSUP;
	if (sheet->error == 0)
		qsort(sheet->uses, sheet->count, sizeof(*sheet->uses), by_pid);
	for (struct session *s = sheet->error == 0 ? t->sessions->attached : NULL; s;
	     s = s->next_attached)
		session_add(s, gpu, sheet, MIN(passed, 2 * WINDOW_NS));
}

static void sheets_free(struct gpu_time *t)
{
	for (uint64_t mask = t->mask; mask; mask &= mask - 1) {
		struct sheet *sheet = &t->sheet[__builtin_ctzll(mask)];

		free(sheet->uses);
		*sheet = (struct sheet){0};
	}
}

static void on_worked(uv_work_t *work, int status)
{
	struct gpu_time *t = work->data;
	uint64_t now = now_monotonic_ns();

	t->running = false;
	t->ended_ns = now;
	for (uint64_t mask = t->stopped ? 0 : t->mask; mask; mask &= mask - 1)
		sheet_take(t, (uint32_t)__builtin_ctzll(mask), now);
	sheets_free(t);
}

/* GPUs that processes of sessions may use, and whose time is not sliced. MIG instances have no
 * such figures. */
static uint64_t measured(const struct sessions *sessions)
{
	uint64_t used = 0, mask = 0;

	for (const struct session *s = sessions->attached; s; s = s->next_attached)
		used |= session_gpu_mask(s);
	for (; used; used &= used - 1) {
		uint32_t i = (uint32_t)__builtin_ctzll(used);
		const struct pool_gpu *gpu = &sessions->pool->gpu[i];

		if (gpu->mode == COMPUTE_OFF && pool_gpu_is_ours(gpu))
			mask |= 1ull << i;
	}
	return mask;
}

void gpu_time_tick(struct gpu_time *t)
{
	uint64_t now = now_monotonic_ns();
	bool ready = true;

	if (t->running || now > t->wanted_until_ns || now - t->ended_ns < COST_PART * t->took_ns)
		return;
	t->mask = measured(t->sessions);
	for (uint64_t mask = t->mask; mask; mask &= mask - 1) {
		struct sheet *sheet = &t->sheet[__builtin_ctzll(mask)];

		sheet->uses = calloc(GPU_PROCESSES_MAX, sizeof(*sheet->uses));
		ready = ready && sheet->uses;
	}
	t->work.data = t;
	t->running = t->mask && ready &&
		     uv_queue_work(t->sessions->loop, &t->work, on_work, on_worked) == 0;
	if (!t->running)
		sheets_free(t);
}

void gpu_time_want(struct gpu_time *t)
{
	t->wanted_until_ns = now_monotonic_ns() + WANTED_NS;
}

struct gpu_time *gpu_time_new(struct sessions *sessions)
{
	struct gpu_time *t = calloc(1, sizeof(*t));

	if (t)
		t->sessions = sessions;
	return t;
}

void gpu_time_stop(struct gpu_time *t)
{
	if (t)
		t->stopped = true;
}

void gpu_time_free(struct gpu_time *t)
{
	free(t);
}
