#include "daemon/descriptors.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/macros.h"
#include "daemon/node.h"
#include "daemon/process.h"
#include "daemon/session.h"
#include "proto/mark.h"

struct descriptor {
	struct mark mark;
	uint64_t bytes;
};

static uint64_t unlisted(const struct gpu_sample *sample)
{
	uint64_t listed = 0;

	for (size_t i = 0; i < sample->process_count; i++)
		listed += sample->processes[i].bytes;
	return sample->used > listed ? sample->used - listed : 0;
}

static bool same_memory(const struct mark *a, const struct mark *b)
{
	return mark_start(a) == mark_start(b);
}

/* There may be several of one memory. */
static void add(struct descriptors *d, struct mark mark, uint64_t bytes)
{
	for (size_t i = 0; i < d->count; i++)
		if (same_memory(&d->list[i].mark, &mark))
			return;
	if (d->count == d->room) {
		size_t room = d->room ? 2 * d->room : 16;
		struct descriptor *list = realloc(d->list, room * sizeof(*list));

		if (!list)
			return;
		d->list = list;
		d->room = room;
	}
	d->list[d->count++] = (struct descriptor){mark, bytes};
}

static const struct session *session_of(const struct node *node, const struct mark *mark)
{
	for (const struct session *s = node->sessions; s; s = s->next)
		if (mark_session(s->record.id) == mark->session)
			return s;
	return NULL;
}

/* The fields of a line: "1: OFDLCK ADVISORY  READ -1 00:09:102389 FIRST LAST". */
enum { FIELD_KIND = 1, FIELD_TYPE = 3, FIELD_FIRST = 6, FIELD_LAST, FIELDS };

/* False: fewer than that. */
static bool fields_read(char *line, char *fields[static FIELDS])
{
	char *rest = line;

	for (int i = 0; i < FIELDS; i++)
		if (!(fields[i] = strtok_r(i ? NULL : line, " \n", &rest)))
			return false;
	return true;
}

static bool number_read(const char *text, uint64_t *ret)
{
	char *end;

	errno = 0;
	*ret = strtoull(text, &end, 10);
	return end != text && !*end && !errno;
}

static void read_line(struct node *node, char *line)
{
	char *fields[FIELDS];
	uint64_t first, last;

	/* A range without an end has no number there. */
	if (!fields_read(line, fields) || strcmp(fields[FIELD_KIND], "OFDLCK") != 0 ||
	    strcmp(fields[FIELD_TYPE], "READ") != 0 || !number_read(fields[FIELD_FIRST], &first) ||
	    !number_read(fields[FIELD_LAST], &last) || last < first ||
	    last - first >= MARK_BYTES_MOST / MARK_UNIT)
		return;
	struct mark mark = mark_of(first);
	if (session_of(node, &mark))
		add(&node->descriptors, mark, (last - first + 1) * MARK_UNIT);
}

static void read_all(struct node *node)
{
	FILE *file = fopen("/proc/locks", "re");
	char *line = NULL;
	size_t size = 0;

	if (!file)
		return;
	while (getline(&line, &size, file) > 0)
		read_line(node, line);
	free(line);
	fclose(file);
}

static bool is_of(const struct process *p, const struct mark *mark)
{
	return p->slot == mark->slot && mark_session(p->session->record.id) == mark->session &&
	       mark_life(ledger_slot(&p->session->books.ledger, p->slot)) == mark->life;
}

bool descriptors_of(const struct process *p)
{
	const struct descriptors *d = &p->session->node->descriptors;

	for (size_t i = 0; i < d->count; i++)
		if (is_of(p, &d->list[i].mark))
			return true;
	return false;
}

/* What was given back while a descriptor was open is as any other when none is. It is looked at
 * before the list: who gives something back in between has changed it. */
static void stale_begin(const struct node *node)
{
	for (const struct session *s = node->attached; s; s = s->next_attached)
		for (struct process *p = s->processes; p; p = p->next)
			p->described =
				atomic_load(&ledger_slot(&s->books.ledger, p->slot)->described);
}

static void stale_end(const struct node *node)
{
	for (const struct session *s = node->attached; s; s = s->next_attached)
		for (struct process *p = s->processes; p; p = p->next)
			if (p->described && !descriptors_of(p))
				atomic_compare_exchange_strong(
					&ledger_slot(&s->books.ledger, p->slot)->described,
					&p->described, 0);
}

void descriptors_read(struct node *node)
{
	struct descriptors *d = &node->descriptors;
	struct pool *pool = &node->pool;

	d->count = 0;
	stale_begin(node);
	if (node->sessions)
		read_all(node);
	stale_end(node);
	/* Right after the last was closed the sample may be of before. */
	for (uint32_t i = 0; i < pool->count && !d->count; i++) {
		if (!(pool->mask >> i & 1) || pool->gpu[i].sample.error)
			continue;
		uint64_t bytes = unlisted(&pool->gpu[i].sample);

		if (!d->had_some)
			d->unlisted[i] = MIN(bytes, d->last[i]);
		d->last[i] = bytes;
	}
	d->had_some = d->count > 0;
}

void descriptors_free(struct node *node)
{
	free(node->descriptors.list);
	node->descriptors = (struct descriptors){0};
}

static const struct process *process_of(const struct session *s, const struct mark *mark)
{
	for (const struct process *p = s->processes; p; p = p->next)
		if (is_of(p, mark))
			return p;
	return NULL;
}

/* Of a process whose slot is charged: as much as it gave back, as all else is charged. */
static uint64_t of_process(const struct process *p, uint32_t position)
{
	const struct descriptors *d = &p->session->node->descriptors;
	uint64_t sum = 0;

	for (size_t i = 0; i < d->count; i++)
		if (d->list[i].mark.gpu == position && is_of(p, &d->list[i].mark))
			sum += d->list[i].bytes;
	return MIN(sum, atomic_load(&ledger_slot(&p->session->books.ledger, p->slot)->described));
}

static uint64_t of_the_dead(const struct session *s, uint32_t position)
{
	const struct descriptors *d = &s->node->descriptors;
	uint32_t session = mark_session(s->record.id);
	uint64_t sum = 0;

	for (size_t i = 0; i < d->count; i++)
		if (d->list[i].mark.session == session && d->list[i].mark.gpu == position &&
		    !process_of(s, &d->list[i].mark))
			sum += d->list[i].bytes;
	return sum;
}

uint64_t descriptors_keep(const struct session *s, uint32_t position)
{
	const struct node *node = s->node;
	int gpu = s->pool_gpu[position];

	if (!node->descriptors.count || gpu < 0 || node->pool.gpu[gpu].sample.error)
		return 0;
	uint64_t held = unlisted(&node->pool.gpu[gpu].sample);
	uint64_t usual = node->descriptors.unlisted[gpu];
	uint64_t sum = of_the_dead(s, position);
	for (const struct process *p = s->processes; p; p = p->next)
		sum += of_process(p, position);
	return MIN(sum, held > usual ? held - usual : 0);
}
