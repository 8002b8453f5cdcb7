/* One look at a session joins what is said of its parts. A part is what the session has of one GPU.
 *
 * - A session without a living process used nothing, whatever the driver says.
 * - Where the GPU's time is sliced, its turns tell. Nobody else is asked.
 * - In a MIG instance, the driver's counters of the instance tell. All sessions that share an
 *   instance count as working while it works.
 * - Anywhere else the driver's figures of processes tell. They are believed only where the driver
 *   lists a process of the session that holds memory there. Work that the driver gives to no
 * process counts for each session that may have done it.
 *
 * If nobody can tell, the look is IDLE_LOOK_UNKNOWN, and the session stays. An error here costs an
 * administrator some time, and an error in the other direction costs a user's work. */
#include "daemon/idle/idle_look.h"

#include <errno.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/macros.h"
#include "daemon/gpu/pool.h"
#include "daemon/lease/leases.h"
#include "daemon/mig/mig.h"
#include "daemon/session/process.h"
#include "daemon/session/session.h"
#include "daemon/session/sessions.h"
#include "daemon/settle/settling.h"
#include "daemon/settle/strays.h"

/* A look reaches back to the one before, and a little further, as the driver's figures come late.
 */
#define WINDOW_NS_LEAST 1100000000ull
#define WINDOW_SLACK_NS 200000000ull
/* The driver keeps its figures for some seconds. Use from before that may be lost. */
#define WINDOW_NS_MOST 8000000000ull

/* ---- the driver -------------------------------------------------------------------------- */

static bool has_strays(const struct session *s)
{
	const struct stray *stray = s->sessions->settling->strays;

	while (stray && stray->session != s)
		stray = stray->next;
	return stray;
}

/* Somebody of it may be using a GPU. */
static bool may_work(const struct session *s)
{
	return session_live(s) || has_strays(s);
}

static bool by_processes(const struct session *s, uint32_t i)
{
	const struct pool_gpu *gpu = &s->sessions->pool->gpu[s->pool_gpu[i]];

	return !s->record.gpu[i].instance[0] && pool_gpu_is_ours(gpu) && gpu->mode == COMPUTE_OFF;
}

uint64_t idle_look_mask(const struct sessions *sessions)
{
	uint64_t mask = 0;

	for (const struct session *s = sessions->first; s; s = s->next)
		for (uint32_t i = 0; s->state == SESSION_ACTIVE && i < s->record.gpu_count; i++)
			if (s->pool_gpu[i] >= 0 && !(mask >> s->pool_gpu[i] & 1) &&
			    by_processes(s, i) && may_work(s))
				mask |= 1ull << s->pool_gpu[i];
	return mask;
}

static int by_number(const void *a, const void *b)
{
	pid_t x = *(const pid_t *)a, y = *(const pid_t *)b;

	return (x > y) - (x < y);
}

void idle_sheet_clear(struct idle_sheet *sheet)
{
	free(sheet->pids);
	sheet->pids = NULL;
	sheet->count = 0;
}

void idle_sheet_fill(const struct pool *pool, uint32_t position, struct idle_sheet *sheet)
{
	cleanup_free struct gpu_use *list = calloc(GPU_PROCESSES_MAX, sizeof(*list));
	uint64_t now = now_monotonic_ns(), window = WINDOW_NS_LEAST;
	uint32_t busy = 0;
	size_t count = 0;

	idle_sheet_clear(sheet);
	sheet->before_ns = sheet->looked_ns;
	sheet->looked_ns = now;
	sheet->pids = calloc(GPU_PROCESSES_MAX, sizeof(*sheet->pids));
	sheet->error = -ENOMEM;
	if (!list || !sheet->pids)
		return; // NOLINT(clang-analyzer-unix.Malloc): idle_sheet_clear() frees the list
	if (sheet->before_ns)
		window = MIN(MAX(window, now - sheet->before_ns + WINDOW_SLACK_NS), WINDOW_NS_MOST);
	sheet->error = gpus_use(pool->gpus, pool->gpu[position].info.index, window, list,
				GPU_PROCESSES_MAX, &count, &busy);
	for (size_t i = 0; sheet->error == 0 && i < count; i++)
		if (list[i].works)
			sheet->pids[sheet->count++] = list[i].pid;
	sheet->unlisted = !sheet->count && busy && busy != GPU_USE_UNKNOWN;
	qsort(sheet->pids, sheet->count, sizeof(*sheet->pids), by_number);
}

/* ---- one part of a session --------------------------------------------------------------- */

static enum idle_look unknown(struct session *s, const char *why)
{
	s->idle.unknown_why = why;
	return IDLE_LOOK_UNKNOWN;
}

static bool worked(const struct idle_sheet *sheet, pid_t pid)
{
	return sheet->count &&
	       bsearch(&pid, sheet->pids, sheet->count, sizeof(pid), by_number) != NULL;
}

/* Whether any process of it used the GPU, and whether the driver lists one that holds memory. */
static bool processes_worked(const struct session *s, const struct idle_sheet *sheet,
			     const struct gpu_sample *sample, bool *ret_listed)
{
	bool any = false;

	*ret_listed = false;
	for (const struct process *p = s->processes; p; p = p->next) {
		any |= !process_is_dead(p) && worked(sheet, p->id.pid);
		*ret_listed |= gpu_sample_process_bytes(sample, p->id.pid) > 0;
	}
	for (const struct holder *h = s->holders; h; h = h->next) {
		any |= h->unread && worked(sheet, h->process.pid);
		*ret_listed |= h->unread && gpu_sample_process_bytes(sample, h->process.pid) > 0;
	}
	for (const struct stray *stray = s->sessions->settling->strays; stray; stray = stray->next)
		any |= stray->session == s && worked(sheet, stray->id.pid);
	return any;
}

static enum idle_look look_at_processes(struct session *s, uint32_t i,
					const struct idle_sheet *sheet)
{
	const struct gpu_sample *sample = &s->sessions->pool->gpu[s->pool_gpu[i]].sample;
	bool listed;

	if (sheet->error == -ENOTSUP)
		return unknown(s, "the driver does not tell which process uses GPU time");
	if (sheet->error || sample->error)
		return unknown(s, "the driver does not answer");
	if (!sheet->before_ns || sheet->looked_ns - sheet->before_ns > WINDOW_NS_MOST)
		return unknown(s, "it is looked at anew");
	if (processes_worked(s, sheet, sample, &listed))
		return IDLE_LOOK_USED;
	if (!session_used(s, i))
		return IDLE_LOOK_UNUSED;
	if (!listed)
		return unknown(s, "the driver does not list its processes");
	return sheet->unlisted ? IDLE_LOOK_USED : IDLE_LOOK_UNUSED;
}

static enum idle_look look_at_turns(struct session *s)
{
	struct lease_standing standing;

	if (!s->lease)
		return unknown(s, "its programs take no turns");
	if (has_strays(s))
		return unknown(s, "a program of it bypasses the slice");
	leases_standing(s->sessions->leases, s->lease, &standing);
	const struct lease_client_stat *stat = &standing.stat;
	bool used = stat->held_ns != s->idle.held_ns || stat->wants || stat->holds;
	s->idle.held_ns = stat->held_ns;
	return used ? IDLE_LOOK_USED : IDLE_LOOK_UNUSED;
}

static enum idle_look look_at_instance(struct session *s, uint32_t i)
{
	int percent = mig_instance_utilization(s->sessions->mig, (uint32_t)s->pool_gpu[i],
					       s->record.gpu[i].instance);

	if (percent < 0)
		return unknown(s, "the driver does not tell whether its MIG instance works");
	return percent ? IDLE_LOOK_USED : IDLE_LOOK_UNUSED;
}

static enum idle_look look_at_part(struct session *s, uint32_t i, const struct idle_sheet *sheets)
{
	if (s->pool_gpu[i] < 0)
		return unknown(s, "its GPU is gone");
	const struct pool_gpu *gpu = &s->sessions->pool->gpu[s->pool_gpu[i]];
	if (s->record.gpu[i].instance[0])
		return look_at_instance(s, i);
	if (by_processes(s, i))
		return look_at_processes(s, i, &sheets[s->pool_gpu[i]]);
	return gpu->mode != COMPUTE_OFF && pool_gpu_is_ours(gpu)
		       ? look_at_turns(s)
		       : unknown(s, "its GPU is not this daemon's to look at");
}

enum idle_look idle_look(struct session *s, const struct idle_sheet *sheets)
{
	enum idle_look all = IDLE_LOOK_UNUSED;

	s->idle.unknown_why = NULL;
	if (!may_work(s))
		return IDLE_LOOK_UNUSED;
	for (uint32_t i = 0; i < s->record.gpu_count; i++) {
		enum idle_look part = look_at_part(s, i, sheets);

		if (part == IDLE_LOOK_USED) {
			s->idle.unknown_why = NULL;
			return part;
		}
		if (part == IDLE_LOOK_UNKNOWN)
			all = part;
	}
	return all;
}
