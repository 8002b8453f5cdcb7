/* The events on a host, so that a breach between two looks is found afterwards: the newest
 * events, in order of time of their end. Peaks are kept elsewhere and never lost. One thread. */
#pragma once

#include <stddef.h>
#include <stdint.h>

enum trace_kind {
	TRACE_TURN = 1,   /* a process had the compute engine from `at` for `value` ns */
	TRACE_COPY = 2,   /* a copy ran likewise; `detail` is its enum wire_engine */
	TRACE_MEMORY = 3, /* a process now holds `value` bytes; `detail` is the kind that changed */
	TRACE_DEVICE = 4, /* a GPU's processes now hold `value` bytes */
	TRACE_START = 5,  /* a process connected ... */
	TRACE_END = 6,    /* ... and its last holder went away */
};

struct trace_event {
	uint64_t at;    /* model time, ns */
	uint64_t shift; /* a shift of work: the GPU's own clock was so far behind */
	int64_t value;
	uint64_t process; /* number of the connection, 0: none */
	int32_t pid;
	uint32_t device; /* wire_device */
	uint16_t kind;   /* enum trace_kind */
	uint16_t detail;
	uint32_t spare;
};

struct trace;

struct trace *trace_new(size_t capacity);
void trace_free(struct trace *t);
void trace_add(struct trace *t, const struct trace_event *event);
/* Events kept, and those that were pushed out. */
size_t trace_count(const struct trace *t);
uint64_t trace_lost(const struct trace *t);
/* The i-th oldest that is kept. */
const struct trace_event *trace_get(const struct trace *t, size_t i);
