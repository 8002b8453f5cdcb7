#include "daemon/settle/descriptors.h"

#include <string.h>

#include "base/clock.h"
#include "base/macros.h"
#include "daemon/gpu/pool.h"
#include "daemon/session/process.h"
#include "daemon/session/session.h"
#include "daemon/settle/settling.h"
#include "proto/mark.h"

/* The memory that the driver holds for no process that it lists: what descriptors keep, managed
 * memory, and what it has for itself. */
static uint64_t sample_unlisted(const struct gpu_sample *sample)
{
	uint64_t listed = gpu_sample_listed(sample);

	return sample->used > listed ? sample->used - listed : 0;
}

static bool is_wanted(const struct mark *mark, const void *context)
{
	const struct settling *settling = context;

	for (const struct session *s = settling->sessions->first; s; s = s->next)
		if (mark_session(s->record.id) == mark->session)
			return true;
	return orphans_have_mark(settling, mark->session);
}

/* By when the kernel says that it started: what its slot says any process of its session can write.
 */
static bool is_of(const struct process *p, const struct mark *mark)
{
	return p->slot == mark->slot && mark_life(p->id.birth) == mark->life &&
	       mark_session(p->session->record.id) == mark->session;
}

/* Bytes that those of a process stand for. */
static uint64_t found_of(const struct locks *found, const struct process *p)
{
	uint64_t sum = 0;

	for (size_t i = 0; i < found->count; i++)
		if (is_of(p, &found->list[i].mark))
			sum += found->list[i].bytes;
	return sum;
}

bool descriptors_of(const struct process *p)
{
	return found_of(&p->session->sessions->settling->descriptors.now, p) > 0;
}

/* Memory given back while a descriptor was open is as any other when none is. It is looked at
 * before the list: who gives something back in between has changed it. */
static void stale_begin(const struct settling *settling)
{
	for (const struct session *s = settling->sessions->attached; s; s = s->next_attached)
		for (struct process *p = s->processes; p; p = p->next)
			p->exported_fd_bytes = atomic_load(
				&ledger_slot(&s->books.ledger, p->slot)->exported_fd_bytes);
}

static void stale_end(const struct settling *settling)
{
	for (const struct session *s = settling->sessions->attached; s; s = s->next_attached)
		for (struct process *p = s->processes; p; p = p->next)
			if (p->exported_fd_bytes && !descriptors_of(p))
				atomic_compare_exchange_strong(
					&ledger_slot(&s->books.ledger, p->slot)->exported_fd_bytes,
					&p->exported_fd_bytes, 0);
}

/* One that was open is not among them, or of what a process gave back some is not. */
static bool misses_some(const struct locks *found, const void *context)
{
	const struct settling *settling = context;
	const struct locks *before = &settling->descriptors.before;

	for (size_t i = 0; i < before->count; i++)
		if (!locks_have(found, &before->list[i].mark))
			return true;
	for (const struct session *s = settling->sessions->attached; s; s = s->next_attached)
		for (const struct process *p = s->processes; p; p = p->next)
			if (found_of(found, p) < p->exported_fd_bytes)
				return true;
	return false;
}

bool descriptors_exported(const struct session *s)
{
	for (const struct process *p = s->processes; p; p = p->next)
		if (ledger_slot(&s->books.ledger, p->slot)->exported)
			return true;
	return s->exported && s->processes;
}

/* To list its locks the kernel waits until each processor has passed a quiet state (10 ms and
 * more). It holds up processes that set or drop one meanwhile. For most hosts that would be for
 * nothing, as few programs export memory. */
static bool some_are_possible(const struct settling *settling)
{
	for (const struct session *s = settling->sessions->attached; s; s = s->next_attached)
		if (descriptors_exported(s))
			return true;
	return settling->orphans.exporters;
}

/* The longest time that the loop reads, and how many times as long it pauses afterwards. */
#define READ_MOST_NS 15000000ull
#define READ_PAUSES 20

/* A list that cannot be read stays as it was. False: it could not. */
static bool read_all(struct settling *settling)
{
	struct descriptors *d = &settling->descriptors;
	uint64_t begin = now_monotonic_ns();
	struct locks was = d->now;

	if (begin < d->pause_until_ns)
		return false;
	d->now = d->before;
	d->before = was;
	d->now.count = 0;
	int r = some_are_possible(settling)
			? locks_read(&d->now, READ_MOST_NS, is_wanted, misses_some, settling)
			: 0;
	if (r < 0) {
		d->before = d->now;
		d->now = was;
	}
	d->read_ns = now_monotonic_ns() - begin;
	if (r == -ETIME)
		d->pause_until_ns = begin + READ_PAUSES * d->read_ns;
	return r == 0;
}

void descriptors_read(struct settling *settling)
{
	struct descriptors *d = &settling->descriptors;
	struct pool *pool = settling->pool;

	stale_begin(settling);
	if (read_all(settling))
		stale_end(settling);
	/* Right after the last was closed the sample may be of before. */
	for (uint32_t i = 0; i < pool->count && !d->now.count; i++) {
		if (!(pool->mask >> i & 1) || pool->gpu[i].sample.error)
			continue;
		uint64_t bytes = sample_unlisted(&pool->gpu[i].sample);

		if (!d->had_some)
			d->unlisted[i] = MIN(bytes, d->last[i]);
		d->last[i] = bytes;
	}
	d->had_some = d->now.count > 0;
}

void descriptors_free(struct settling *settling)
{
	locks_free(&settling->descriptors.now);
	locks_free(&settling->descriptors.before);
	settling->descriptors = (struct descriptors){0};
}

static const struct process *process_of(const struct session *s, const struct mark *mark)
{
	for (const struct process *p = s ? s->processes : NULL; p; p = p->next)
		if (is_of(p, mark))
			return p;
	return NULL;
}

/* If the process's slot is charged, it is as much as it gave back, as all else is charged. */
static uint64_t of_process(const struct process *p, uint32_t position)
{
	const struct locks *now = &p->session->sessions->settling->descriptors.now;
	uint64_t sum = 0;

	for (size_t i = 0; i < now->count; i++)
		if (now->list[i].mark.gpu == position && is_of(p, &now->list[i].mark))
			sum += now->list[i].bytes;
	return MIN(
		sum,
		atomic_load(&ledger_slot(&p->session->books.ledger, p->slot)->exported_fd_bytes));
}

static bool is_of_gpu(const struct mark *mark, uint32_t session, uint32_t position)
{
	return mark->session == session && mark->gpu == position;
}

uint64_t descriptors_marked(const struct settling *settling, const char *id, uint32_t position)
{
	const struct session *s = session_find(settling->sessions, id);
	const struct locks *now = &settling->descriptors.now;
	uint32_t session = mark_session(id);
	uint64_t sum = 0;

	for (size_t i = 0; i < now->count; i++)
		if (is_of_gpu(&now->list[i].mark, session, position) &&
		    !process_of(s, &now->list[i].mark))
			sum += now->list[i].bytes;
	/* Anybody can lock any file: marks of a session that exported nothing are not its own. */
	sum = MIN(sum, orphans_remain(settling, id, position));
	for (const struct process *p = s ? s->processes : NULL; p; p = p->next)
		sum += of_process(p, position);
	return sum;
}

bool descriptors_open(const struct settling *settling, const char *id, uint32_t position)
{
	const struct locks *of[] = {&settling->descriptors.now, &settling->descriptors.before};
	uint32_t session = mark_session(id);

	for (size_t k = 0; k < ARRAY_SIZE(of); k++)
		for (size_t i = 0; i < of[k]->count; i++)
			if (is_of_gpu(&of[k]->list[i].mark, session, position))
				return true;
	return false;
}

uint64_t descriptors_unlisted(const struct settling *settling, int gpu)
{
	uint64_t held = sample_unlisted(&settling->pool->gpu[gpu].sample);
	uint64_t usual = settling->descriptors.unlisted[gpu];

	return held > usual ? held - usual : 0;
}

uint64_t descriptors_keep(const struct session *s, uint32_t position)
{
	const struct settling *settling = s->sessions->settling;
	int gpu = s->pool_gpu[position];

	if (!settling->descriptors.now.count || gpu < 0 || settling->pool->gpu[gpu].sample.error)
		return 0;
	return MIN(descriptors_marked(settling, s->record.id, position),
		   descriptors_unlisted(settling, gpu));
}
