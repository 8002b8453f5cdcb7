#include "daemon/settle/over.h"

#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/macros.h"
#include "daemon/gpu/pool.h"
#include "daemon/host/log.h"
#include "daemon/host/privileges.h"
#include "daemon/session/process.h"
#include "daemon/session/session.h"
#include "daemon/settle/orphans.h"
#include "daemon/settle/outside.h"
#include "daemon/settle/settling.h"
#include "daemon/settle/strays.h"
#include "daemon/store/store.h"

/* ---- imports ----------------------------------------------------------------------------- */

/* How long after others had less a session's figures may rise by it. */
#define FELL_NS 3000000000ull

/* Whether processes of it opened memory of others, by their own word. That excuses only a rise for
 * which others had less at the same time, by the driver's figures. */
static bool session_imports(struct session *s)
{
	for (const struct process *p = s->processes; p && !s->imported; p = p->next)
		s->imported = atomic_load(&ledger_slot(&s->books.ledger, p->slot)->imported) != 0;
	return s->imported;
}

static bool is_own(const struct session *s, pid_t pid)
{
	const struct process *p = s->processes;

	while (p && p->id.pid != pid)
		p = p->next;
	return p;
}

/* Bytes that others held on the GPU at the sample before this one, and hold no more: whoever they
 * are, in a slice or not, or no process at all. */
static uint64_t fell_of_others(const struct session *s, const struct pool_gpu *gpu)
{
	uint64_t unlisted = (uint64_t)MAX(unlisted_bytes(&gpu->unlisted), 0);
	uint64_t fell = gpu->before.unlisted - MIN(gpu->before.unlisted, unlisted);

	for (size_t i = 0; i < gpu->before.count; i++) {
		const struct gpu_process *before = &gpu->before.processes[i];
		uint64_t now = gpu_sample_process_bytes(&gpu->sample, before->pid);

		if (now < before->bytes && !is_own(s, before->pid))
			fell += before->bytes - now;
	}
	return fell;
}

static void before_keep(struct pool_gpu *gpu)
{
	size_t size = gpu->sample.process_count * sizeof(*gpu->before.processes);
	struct gpu_process *list = realloc(gpu->before.processes, MAX(size, 1));

	if (!list)
		return; /* as it was */
	if (size)
		memcpy(list, gpu->sample.processes, size);
	gpu->before.processes = list;
	gpu->before.count = gpu->sample.process_count;
	gpu->before.unlisted = (uint64_t)MAX(unlisted_bytes(&gpu->unlisted), 0);
}

/* Memory that others had less of, and the session more, in the same few seconds: it may be memory
 * of theirs that the session had imported. */
static void moved_note(struct session *s, uint64_t now)
{
	const struct pool *pool = s->sessions->pool;
	uint64_t held = 0, fell = 0;

	for (uint32_t i = 0; i < s->record.gpu_count; i++) {
		int gpu = s->pool_gpu[i];

		if (gpu < 0 || pool->gpu[gpu].sample.error)
			continue;
		held += session_held(s, i, &pool->gpu[gpu].sample);
		if (pool->mask >> gpu & 1)
			fell += fell_of_others(s, &pool->gpu[gpu]);
	}
	if (now - s->fell_ns > FELL_NS)
		s->fell_bytes = 0;
	if (fell) {
		s->fell_bytes += fell;
		s->fell_ns = now;
	}
	uint64_t moved = MIN(s->fell_bytes, held - MIN(held, s->held_before));
	s->fell_bytes -= moved;
	s->moved_bytes = MIN(s->moved_bytes + moved, held);
	s->held_before = held;
}

static void moved_note_all(struct settling *settling)
{
	uint64_t now = now_monotonic_ns();

	for (struct session *s = settling->sessions->attached; s; s = s->next_attached)
		if (session_imports(s) && !session_is_silent(s))
			moved_note(s, now);
	for (uint32_t i = 0; i < settling->pool->count; i++)
		if (settling->pool->mask >> i & 1 && !settling->pool->gpu[i].sample.error)
			before_keep(&settling->pool->gpu[i]);
}

/* The part beyond the slice that may be imported memory. It may be from another session, whose
 * exporter gave it back or died just then, or from a program outside carve. No process of this
 * session is at fault for it. Exports of its own processes were in its slice before. */
static uint64_t over_inherited(struct session *s, uint64_t over)
{
	uint64_t others = orphans_of_others(s) + s->moved_bytes;

	s->over_inherited_bytes = MAX(s->over_inherited_bytes, MIN(over, others));
	return MIN(s->over_inherited_bytes, over);
}

/* ---- the policy -------------------------------------------------------------------------- */

/* For the next daemon, which is to end nobody for what was inherited, either. A record that could
 * not be written is tried again with the next sample. */
static void over_store(struct session *s)
{
	if (s->record.over_killed != s->over_killed_stored &&
	    store_over_put(s->sessions->store, &s->record) == 0)
		s->over_killed_stored = s->record.over_killed;
	if (s->over_inherited_bytes != s->over_inherited_stored &&
	    store_inherited_put(s->sessions->store, s->record.id, s->over_inherited_bytes) == 0)
		s->over_inherited_stored = s->over_inherited_bytes;
}

/* now: since when it is over; 0: it is not. */
static void over_begin(struct session *s, uint64_t now)
{
	s->over_since_ns = now;
	s->over = SESSION_OVER_UNREPORTED;
}

static void on_over_killed(void *context, const char *session, struct process_id process, int rc)
{
	struct settling *settling = context;
	struct session *s = session_find(settling->sessions, session);

	if (rc < 0 || !s)
		return;
	session_over_killed(s, process.pid);
	s->over_ended = true;
}

/* Ends, by policy, who bypassed the slice. */
static void over_end(struct session *s, uint64_t now)
{
	if (strays_kill(s)) {
		/* The others have as long again to show that it was not they. */
		over_begin(s, now);
		s->over_ended = !session_live(s);
		return;
	}
	/* One of them did; which, the sum of all does not say. */
	for (struct process *p = s->processes; p; p = p->next)
		if (!process_is_dead(p))
			privileges_signal(s->sessions->privileges, s->record.uid, s->record.id,
					  p->id, SIGKILL, on_over_killed, s->sessions->settling);
}

/* Notes what the driver says goes beyond the slice, and logs it once where it lasts. */
static void over_note(struct session *s, uint64_t over)
{
	const struct over_setting *setting = &s->sessions->settling->over;
	uint64_t now = now_monotonic_ns();
	uint64_t inherited = over_inherited(s, over);

	s->over_bytes = over;
	if (over <= setting->tolerance_bytes) {
		s->over_inherited_bytes = 0;
		over_begin(s, 0);
		return;
	}
	if (!s->over_since_ns)
		s->over_since_ns = now;
	bool excused = over - inherited <= setting->tolerance_bytes;
	/* Now it is more than that, and has to last. */
	if (s->over == SESSION_OVER_EXCUSED && !excused)
		over_begin(s, now);
	if (s->over != SESSION_OVER_UNREPORTED || now - s->over_since_ns < setting->after_ns)
		return;
	s->over = excused ? SESSION_OVER_EXCUSED : SESSION_OVER_REPORTED;
	log_event(LOG_WARNING, "session.over id=%s uid=%u over_bytes=%" PRIu64, s->record.id,
		  s->record.uid, over);
	if (!excused && setting->kills)
		over_end(s, now);
}

/* The memory that its processes hold on a GPU of which it has no slice: all of it is too much. */
static uint64_t held_elsewhere(const struct session *s, int gpu)
{
	const struct gpu_sample *sample = &s->sessions->pool->gpu[gpu].sample;
	uint64_t held = sample->process_count ? strays_held(s, sample, NULL) : 0;

	for (const struct process *p = sample->process_count ? s->processes : NULL; p; p = p->next)
		if (!process_is_dead(p) && process_first_twin(p) == p) {
			uint64_t figure = process_figure(p, gpu);

			held += figure && !process_has_slice_elsewhere(p, gpu) ? figure : 0;
		}
	return held;
}

/* The most of any GPU. Other daemons' GPUs are not looked at: there it may have a slice of theirs.
 */
static uint64_t over_elsewhere(const struct session *s)
{
	const struct pool *pool = s->sessions->pool;
	uint64_t own = session_gpu_mask(s), over = 0;

	for (uint32_t i = 0; i < pool->count; i++)
		if (!(own >> i & 1) && pool_gpu_is_ours(&pool->gpu[i]) &&
		    !pool->gpu[i].sample.error)
			over = MAX(over, held_elsewhere(s, (int)i));
	return over;
}

static void peak_note(struct session *s, uint32_t position, uint64_t held)
{
	struct store_gpu *gpu = &s->record.gpu[position];

	if (!books_exist(&s->books))
		gpu->peak = MAX(gpu->peak, held);
	else if (held)
		ledger_peak(&s->books.ledger, position, held);
}

void over_compute(struct settling *settling)
{
	moved_note_all(settling);
	for (struct session *s = holding_first(settling); s; s = holding_next(s)) {
		if (session_gpu_mask(s) & ~settling->pool->mask)
			continue; /* not all of its GPUs were looked at */
		uint64_t over = over_elsewhere(s);

		for (uint32_t i = 0; i < s->record.gpu_count; i++) {
			int gpu = s->pool_gpu[i];
			uint64_t held =
				gpu < 0 ? 0 : session_held(s, i, &settling->pool->gpu[gpu].sample);

			/* The hardware holds each instance to its size. */
			if (s->record.gpu[i].instance[0])
				continue;
			peak_note(s, i, held);
			if (held > s->record.gpu[i].bytes)
				over = MAX(over, held - s->record.gpu[i].bytes);
		}
		/* Memory that seems to be gone may be there still. */
		if (over < s->over_bytes && session_is_silent(s))
			continue;
		over_note(s, over);
		over_store(s);
	}
}
