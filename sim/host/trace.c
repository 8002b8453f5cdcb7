#include "host/trace.h"

#include <stdlib.h>

#include "base/macros.h"

#define GROW 4096u

struct trace {
	struct trace_event *events;
	size_t capacity, room; /* the most there may be; what there is room for now */
	uint64_t added;
};

struct trace *trace_new(size_t capacity)
{
	struct trace *t = calloc(1, sizeof(*t));

	if (t)
		t->capacity = capacity;
	return t;
}

void trace_free(struct trace *t)
{
	if (!t)
		return;
	free(t->events);
	free(t);
}

static void trace_grow(struct trace *t)
{
	size_t room = MIN(t->capacity, MAX(t->room * 2, (size_t)GROW));
	struct trace_event *events = realloc(t->events, room * sizeof(*events));

	if (!events) {
		/* Better a shorter memory than none. */
		t->capacity = t->room;
		return;
	}
	t->events = events;
	t->room = room;
}

void trace_add(struct trace *t, const struct trace_event *event)
{
	if (t->added >= t->room && t->room < t->capacity)
		trace_grow(t);
	if (t->room)
		t->events[t->added % t->room] = *event;
	t->added++;
}

size_t trace_count(const struct trace *t)
{
	return MIN(t->added, t->room);
}

uint64_t trace_lost(const struct trace *t)
{
	return t->added - trace_count(t);
}

const struct trace_event *trace_get(const struct trace *t, size_t i)
{
	return &t->events[(trace_lost(t) + i) % t->room];
}
