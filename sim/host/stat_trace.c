#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/file.h"
#include "base/macros.h"
#include "host/host.h"
#include "host/stat.h"

/* In Chrome's format a "process" is the OS's, a "thread" one engine of one GPU. */
static uint32_t thread_id(wire_device device, uint32_t engine)
{
	return wire_device_gpu(device) * WIRE_ENGINES + engine;
}

static double microseconds(uint64_t ns)
{
	return (double)ns / 1000;
}

/* clock_ns is the start as kernels see it in %globaltimer. */
static void write_slice(FILE *f, const struct host *h, const struct trace_event *e)
{
	uint32_t engine = e->kind == TRACE_TURN ? WIRE_ENGINE_COMPUTE : e->detail;

	fprintf(f,
		"{\"ph\":\"X\",\"name\":\"%s\",\"cat\":\"gpu\",\"pid\":%d,\"tid\":%u,\"ts\":%.3f,"
		"\"dur\":%.3f,\"args\":{\"gpu\":%u,\"device\":%u,\"start_ns\":%" PRIu64
		",\"clock_ns\":%" PRIu64 ",\"ns\":%" PRId64 "}}",
		stat_engine_names[engine], e->pid, thread_id(e->device, engine),
		microseconds(e->at), microseconds((uint64_t)e->value), wire_device_gpu(e->device),
		e->device, e->at, e->at - e->shift + h->page->realtime_offset, e->value);
}

static void write_memory(FILE *f, const struct trace_event *e)
{
	fprintf(f,
		"{\"ph\":\"C\",\"name\":\"memory gpu %u\",\"cat\":\"%s\",\"pid\":%d,\"ts\":%.3f,"
		"\"id\":%u,\"args\":{\"bytes\":%" PRId64 "}}",
		wire_device_gpu(e->device), stat_memory_names[e->detail], e->pid,
		microseconds(e->at), e->device, e->value);
}

static void write_device(FILE *f, const struct trace_event *e)
{
	fprintf(f,
		"{\"ph\":\"C\",\"name\":\"device memory gpu %u\",\"pid\":0,\"ts\":%.3f,"
		"\"args\":{\"bytes\":%" PRId64 "}}",
		wire_device_gpu(e->device), microseconds(e->at), e->value);
}

static void write_event(FILE *f, const struct host *h, const struct trace_event *e)
{
	switch ((enum trace_kind)e->kind) {
	case TRACE_TURN:
	case TRACE_COPY:
		write_slice(f, h, e);
		return;
	case TRACE_MEMORY:
		write_memory(f, e);
		return;
	case TRACE_DEVICE:
		write_device(f, e);
		return;
	case TRACE_START:
	case TRACE_END:
		fprintf(f, "{\"ph\":\"i\",\"s\":\"p\",\"name\":\"%s\",\"pid\":%d,\"ts\":%.3f}",
			e->kind == TRACE_START ? "start" : "end", e->pid, microseconds(e->at));
	}
}

static void write_events(FILE *f, const struct host *h, const struct trace *t)
{
	for (size_t i = 0; i < trace_count(t); i++) {
		fputs(",\n", f);
		write_event(f, h, trace_get(t, i));
	}
}

/* Turns that are not over yet are no events: what of them has passed until now. */
static void write_running(FILE *f, const struct host *h)
{
	for (uint32_t i = 0; i < h->gpu_count; i++) {
		list_for_each (node, &h->gpu[i].parts) {
			const struct part *part = list_entry(node, struct part, node);
			const struct process_part *place = engine_turn_owner(&part->engine);
			const struct engine *e = &part->engine;

			if (!place || e->now <= e->turn_start)
				continue;
			fputs(",\n", f);
			write_slice(
				f, h,
				&(struct trace_event){.kind = TRACE_TURN,
						      .at = e->turn_start + e->shift,
						      .shift = e->shift,
						      .value = (int64_t)(e->now - e->turn_start),
						      .pid = place->process->pid,
						      .device = part->device});
		}
	}
}

/* The meaning of the thread IDs of a process on a GPU. */
static void write_thread_names(FILE *f, int pid, uint32_t gpu)
{
	for (uint32_t engine = WIRE_ENGINE_COMPUTE; engine <= WIRE_ENGINE_D2D; engine++)
		fprintf(f,
			",\n{\"ph\":\"M\",\"name\":\"thread_name\",\"pid\":%d,\"tid\":%u,"
			"\"args\":{\"name\":\"GPU %u %s\"}}",
			pid, thread_id(gpu, engine), gpu, stat_engine_names[engine]);
}

/* The array's first elements: the first one has no comma before it. */
static void write_names(FILE *f, const struct host *h)
{
	struct ended unused;

	fputs("{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":0,"
	      "\"args\":{\"name\":\"GPU memory\"}}",
	      f);
	for (uint64_t i = 0; i < MIN(h->ended_count, ENDED_MAX); i++)
		write_thread_names(f, h->ended[i].pid, h->ended[i].gpu);
	list_for_each (node, &h->processes) {
		const struct process *p = list_entry(node, struct process, node);

		for (uint32_t gpu = 0; gpu < h->gpu_count; gpu++) {
			if (process_summarize(p, gpu, &unused))
				write_thread_names(f, p->pid, gpu);
		}
	}
}

int stat_write_trace(struct host *h)
{
	cleanup_close int fd = memfd_create("simgpu-trace", MFD_CLOEXEC);
	FILE *f = fd < 0 ? NULL : fdopen(dup(fd), "w");

	if (!f)
		return -errno;
	fprintf(f,
		"{\"displayTimeUnit\":\"ms\",\"otherData\":{\"lost_work_events\":%" PRIu64
		",\"lost_memory_events\":%" PRIu64 "},\"traceEvents\":[\n",
		trace_lost(h->work_trace), trace_lost(h->memory_trace));
	write_names(f, h);
	write_events(f, h, h->memory_trace);
	write_events(f, h, h->work_trace);
	write_running(f, h);
	fputs("\n]}\n", f);
	if (fclose(f) != 0 || lseek(fd, 0, SEEK_SET) < 0)
		return -EIO;
	return steal_fd(&fd);
}
