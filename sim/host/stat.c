#include "host/stat.h"

#include <errno.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include <jansson.h>

#include "base/file.h"
#include "base/macros.h"
#include "host/host.h"

const char *const stat_memory_names[WIRE_MEMORY_KINDS] = {
	"context", "linear", "pool", "vmm", "array", "managed", "graph", "module", "local", "other",
};
const char *const stat_engine_names[WIRE_ENGINES] = {"compute", "h2d", "d2h", "d2d", "none"};

static void set_int(json_t *o, const char *key, uint64_t value)
{
	json_object_set_new(o, key, json_integer((json_int_t)value));
}

static void add_int(json_t *o, const char *key, uint64_t value)
{
	json_int_t old = json_integer_value(json_object_get(o, key));

	set_int(o, key, (uint64_t)old + value);
}

static json_t *kinds_json(const uint64_t kind[WIRE_MEMORY_KINDS])
{
	json_t *o = json_object();

	for (size_t i = 0; i < WIRE_MEMORY_KINDS; i++) {
		if (kind[i])
			set_int(o, stat_memory_names[i], kind[i]);
	}
	return o;
}

static void process_add_memory(json_t *o, const struct process *p, uint32_t gpu)
{
	json_t *devices = json_object_get(o, "memory");

	list_for_each (node, &p->memory.accounts) {
		const struct book_account *a = list_entry(node, struct book_account, node);

		if (a->space->gpu != gpu)
			continue;
		add_int(o, "memory_bytes", a->bytes);
		add_int(o, "memory_peak_bytes", a->peak);
		json_t *device = json_object();
		set_int(device, "device", a->space->device);
		json_object_set_new(device, "kinds", kinds_json(a->kind));
		json_object_set_new(device, "peak_kinds", kinds_json(a->kind_peak));
		json_array_append_new(devices, device);
	}
}

static void process_add_work(json_t *o, const struct process *p, uint32_t gpu)
{
	json_t *copied = json_object_get(o, "copied_bytes");

	list_for_each (node, &p->parts) {
		const struct process_part *place = list_entry(node, struct process_part, node);

		if (wire_device_gpu(place->part->device) != gpu)
			continue;
		add_int(o, "busy_ns", place->client.busy_ns);
		add_int(o, "copy_ns", place->client.copy_ns);
		add_int(o, "launches", place->launches);
		add_int(o, "copies", place->copies);
		add_int(o, "lag_ns", place->lag_ns);
		for (size_t i = WIRE_ENGINE_H2D; i <= WIRE_ENGINE_D2D; i++)
			add_int(copied, stat_engine_names[i], place->copied_bytes[i]);
	}
}

static json_t *process_json(const struct process *p, uint32_t gpu)
{
	static const char *const counters[] = {"memory_bytes", "memory_peak_bytes", "busy_ns",
					       "copy_ns",      "launches",          "copies",
					       "lag_ns"};
	json_t *o = json_object(), *calls = json_object();

	set_int(o, "pid", (uint64_t)p->pid);
	json_object_set_new(o, "command", json_string_nocheck(p->command));
	for (size_t i = 0; i < ARRAY_SIZE(counters); i++)
		set_int(o, counters[i], 0);
	json_object_set_new(o, "memory", json_array());
	json_object_set_new(o, "copied_bytes", json_object());
	process_add_memory(o, p, gpu);
	process_add_work(o, p, gpu);
	set_int(o, "unsupported", p->unsupported_calls);
	for (uint32_t i = 0; i < p->unsupported_count; i++)
		set_int(calls, p->unsupported[i].name, p->unsupported[i].count);
	json_object_set_new(o, "unsupported_calls", calls);
	return o;
}

static bool process_on_gpu(const struct process *p, uint32_t gpu)
{
	list_for_each (node, &p->memory.accounts) {
		if (list_entry(node, struct book_account, node)->space->gpu == gpu)
			return true;
	}
	list_for_each (node, &p->parts) {
		if (wire_device_gpu(list_entry(node, struct process_part, node)->part->device) ==
		    gpu)
			return true;
	}
	/* A process that never got so far as to use a GPU shows its unsupported calls on the first.
	 */
	return gpu == 0 && p->unsupported_calls && list_empty(&p->memory.accounts) &&
	       list_empty(&p->parts);
}

/* The processes that are gone, oldest first. */
static json_t *ended_json(const struct host *h, uint32_t gpu)
{
	json_t *all = json_array();
	uint64_t first = h->ended_count - MIN(h->ended_count, ENDED_MAX);

	for (uint64_t i = first; i < h->ended_count; i++) {
		const struct ended *e = &h->ended[i % ENDED_MAX];

		if (e->gpu != gpu)
			continue;
		json_t *o = json_object();
		set_int(o, "pid", (uint64_t)e->pid);
		json_object_set_new(o, "command", json_string_nocheck(e->command));
		set_int(o, "started_ns", e->started);
		set_int(o, "ended_ns", e->ended);
		set_int(o, "memory_peak_bytes", e->memory_peak);
		set_int(o, "busy_ns", e->busy_ns);
		set_int(o, "launches", e->launches);
		set_int(o, "copies", e->copies);
		set_int(o, "lag_ns", e->lag_ns);
		set_int(o, "unsupported", e->unsupported);
		json_array_append_new(all, o);
	}
	return all;
}

/* `gone`: its cgroup was removed while it carried the limit. */
static json_t *limits_json(const struct host *h, uint32_t gpu)
{
	json_t *all = json_array();

	for (uint32_t i = 0; i < h->partitions.count; i++) {
		const struct partition *p = &h->partitions.list[i];

		if (p->gpu != gpu)
			continue;
		json_t *o = json_object();
		json_object_set_new(o, "path", json_string_nocheck(p->path));
		set_int(o, "soft_bytes", p->soft);
		set_int(o, "hard_bytes", p->hard);
		set_int(o, "used_bytes", partition_used(h, gpu, p->path));
		json_object_set_new(o, "gone", json_boolean(!partition_stands(h, p)));
		json_array_append_new(all, o);
	}
	return all;
}

static json_t *gpu_json(struct host *h, uint32_t gpu)
{
	const struct wire_gpu *page = &h->page->gpu[gpu];
	json_t *o = json_object(), *processes = json_array(), *copied = json_object();

	set_int(o, "index", gpu);
	json_object_set_new(o, "uuid", json_string(page->uuid_text));
	json_object_set_new(o, "name", json_string(h->gpu[gpu].model->name));
	set_int(o, "memory_total_bytes", page->memory_total);
	set_int(o, "memory_reserved_bytes", page->memory_reserved);
	set_int(o, "memory_used_bytes", host_gpu_used(h, gpu));
	set_int(o, "memory_peak_bytes", h->gpu[gpu].peak);
	set_int(o, "busy_ns", 0);
	uint64_t clock = h->now;
	list_for_each (node, &h->gpu[gpu].parts) {
		const struct engine *e = &list_entry(node, struct part, node)->engine;

		clock = MIN(clock, e->now);
		add_int(o, "busy_ns", e->busy_ns);
		for (size_t i = WIRE_ENGINE_H2D; i <= WIRE_ENGINE_D2D; i++)
			add_int(copied, stat_engine_names[i], e->copied_bytes[i]);
	}
	/* Its own clock (its slowest part's), how far that is behind the host's, and as kernels
	 * read it. */
	set_int(o, "clock_ns", clock);
	set_int(o, "lag_ns", h->now - clock);
	set_int(o, "globaltimer_ns", clock + h->page->realtime_offset);
	json_object_set_new(o, "copied_bytes", copied);
	list_for_each (node, &h->processes) {
		const struct process *p = list_entry(node, struct process, node);
		if (process_on_gpu(p, gpu))
			json_array_append_new(processes, process_json(p, gpu));
	}
	json_object_set_new(o, "processes", processes);
	json_object_set_new(o, "ended", ended_json(h, gpu));
	json_object_set_new(o, "cgroup_limits", limits_json(h, gpu));
	return o;
}

static json_t *host_json(struct host *h)
{
	json_t *o = json_object(), *gpus = json_array();

	json_object_set_new(o, "driver_version", json_string(h->page->driver_version));
	set_int(o, "now_ns", h->now);
	set_int(o, "started_ns", h->page->started);
	for (uint32_t i = 0; i < h->gpu_count; i++)
		json_array_append_new(gpus, gpu_json(h, i));
	json_object_set_new(o, "gpus", gpus);
	return o;
}

int stat_write(struct host *h)
{
	cleanup_close int fd = memfd_create("simgpu-stat", MFD_CLOEXEC);

	if (fd < 0)
		return -errno;
	json_t *o = host_json(h);
	int status = json_dumpfd(o, fd, JSON_COMPACT);
	json_decref(o);
	if (status < 0 || lseek(fd, 0, SEEK_SET) < 0)
		return -EIO;
	return steal_fd(&fd);
}
