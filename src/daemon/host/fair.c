#include "daemon/host/fair.h"

#include <stdlib.h>

#include "base/clock.h"

/* The line of one user; it is there as long as something stands in it. */
struct fair_line {
	struct fair_line *next;
	struct fair *fair;
	uid_t owner;
	struct fair_work *first, *last;
};

void fair_begin(struct fair *f)
{
	if (f->depth++ == 0)
		f->began_ns = now_monotonic_ns();
}

void fair_end(struct fair *f)
{
	if (--f->depth == 0)
		f->spent_ns += now_monotonic_ns() - f->began_ns;
}

bool fair_is_spent(const struct fair *f)
{
	uint64_t now = f->depth ? now_monotonic_ns() - f->began_ns : 0;

	return f->spent_ns + now >= FAIR_NS;
}

void fair_pass(struct fair *f)
{
	f->spent_ns = 0;
}

static void run(struct fair *f, struct fair_work *work)
{
	fair_begin(f);
	work->run(work);
	fair_end(f);
}

static void line_append(struct fair *f, struct fair_line *line)
{
	line->next = NULL;
	*(f->last ? &f->last->next : &f->lines) = line;
	f->last = line;
}

static struct fair_line *line_get(struct fair *f, uid_t owner)
{
	struct fair_line *line = f->lines;

	while (line && line->owner != owner)
		line = line->next;
	if (line)
		return line;
	line = calloc(1, sizeof(*line));
	if (!line)
		return NULL;
	line->fair = f;
	line->owner = owner;
	line_append(f, line);
	return line;
}

static void line_remove(struct fair *f, struct fair_line *line)
{
	struct fair_line *before = NULL;

	for (struct fair_line *l = f->lines; l != line; l = l->next)
		before = l;
	*(before ? &before->next : &f->lines) = line->next;
	if (f->last == line)
		f->last = before;
}

bool fair_waits(const struct fair *f)
{
	return f->lines || fair_is_spent(f);
}

bool fair_do(struct fair *f, uid_t owner, struct fair_work *work)
{
	if (fair_waits(f) && fair_line_up(f, owner, work))
		return false;
	run(f, work);
	return true;
}

bool fair_line_up(struct fair *f, uid_t owner, struct fair_work *work)
{
	struct fair_line *line = line_get(f, owner);

	if (!line)
		return false;
	work->line = line;
	work->next = NULL;
	work->previous = line->last;
	*(line->last ? &line->last->next : &line->first) = work;
	line->last = work;
	return true;
}

void fair_withdraw(struct fair_work *work)
{
	struct fair_line *line = work->line;

	if (!line)
		return;
	*(work->previous ? &work->previous->next : &line->first) = work->next;
	*(work->next ? &work->next->previous : &line->last) = work->previous;
	work->line = NULL;
	if (line->first)
		return;
	line_remove(line->fair, line);
	free(line);
}

bool fair_run(struct fair *f)
{
	bool first = true;

	while (f->lines && (first || !fair_is_spent(f))) {
		struct fair_line *line = f->lines;
		struct fair_work *work = line->first;

		first = false;
		/* Its user is the last one from here on. */
		if (line->next) {
			f->lines = line->next;
			line_append(f, line);
		}
		fair_withdraw(work);
		run(f, work);
	}
	return f->lines != NULL;
}
