#include "daemon/api/metrics_view.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/macros.h"
#include "core/place.h"
#include "daemon/api/http.h"
#include "daemon/attach/attach.h"
#include "daemon/metrics/job_mapping.h"
#include "daemon/metrics/text.h"
#include "daemon/mig/mig.h"
#include "daemon/node.h"
#include "daemon/queue/agents.h"
#include "daemon/queue/job_table.h"
#include "daemon/queue/queue_context.h"
#include "daemon/store/database.h"
#include "daemon/waiting/waiting.h"

/* Users choose names of queues, and administrators' agents serve some of them. */
#define QUEUES_MAX 256u
#define NS_PER_S 1000000000ull

/* ---- GPUs -------------------------------------------------------------------------------- */

struct gpu_view {
	const struct node *node;
	struct place_gpu place[GPUS_MAX];
	struct metrics_text labels;
	size_t begun[GPUS_MAX + 1]; /* where each GPU's labels begin */
};

static bool is_answered(const struct gpu_view *v, uint32_t i)
{
	const struct gpu_sample *sample = &v->node->pool.gpu[i].sample;

	return sample->total && !sample->error;
}

static uint64_t gpu_total(const struct gpu_view *v, uint32_t i)
{
	return v->node->pool.gpu[i].info.total;
}

static uint64_t gpu_promised(const struct gpu_view *v, uint32_t i)
{
	return v->node->pool.gpu[i].promised + mig_promised(v->node->mig, i);
}

static uint64_t gpu_available(const struct gpu_view *v, uint32_t i)
{
	return v->place[i].offered             ? place_available(&v->place[i])
	       : mig_has_role(v->node->mig, i) ? mig_available(v->node->mig, i)
					       : 0;
}

static uint64_t gpu_used(const struct gpu_view *v, uint32_t i)
{
	return is_answered(v, i) ? v->node->pool.gpu[i].sample.used : METRICS_NONE;
}

static uint64_t gpu_outside(const struct gpu_view *v, uint32_t i)
{
	return is_answered(v, i) ? v->node->pool.gpu[i].outside : METRICS_NONE;
}

static uint64_t gpu_sessions(const struct gpu_view *v, uint32_t i)
{
	return v->node->pool.gpu[i].sessions;
}

static uint64_t gpu_compute(const struct gpu_view *v, uint32_t i)
{
	return v->node->pool.gpu[i].share;
}

static uint64_t gpu_up(const struct gpu_view *v, uint32_t i)
{
	enum gpu_state state = v->node->pool.gpu[i].state;

	return state != GPU_STATE_LOST && state != GPU_STATE_FAILING;
}

static const struct {
	struct metrics_family family;
	uint64_t (*number)(const struct gpu_view *view, uint32_t gpu);
} gpu_families[] = {
	{{"carve_gpu_memory_total_bytes", "Memory of the GPU.", METRICS_PLAIN, false}, gpu_total},
	{{"carve_gpu_memory_promised_bytes", "Memory that slices on the GPU are promised.",
	  METRICS_PLAIN, false},
	 gpu_promised},
	{{"carve_gpu_memory_available_bytes", "Memory that the GPU can still grant.", METRICS_PLAIN,
	  false},
	 gpu_available},
	{{"carve_gpu_memory_used_bytes", "Memory in use, as the driver reports it.", METRICS_PLAIN,
	  false},
	 gpu_used},
	{{"carve_gpu_memory_outside_bytes", "Memory that programs outside carve hold.",
	  METRICS_PLAIN, false},
	 gpu_outside},
	{{"carve_gpu_sessions", "Sessions that have a slice on the GPU.", METRICS_PLAIN, false},
	 gpu_sessions},
	{{"carve_gpu_compute_promised_ratio", "Share of the GPU's time that is promised.",
	  METRICS_RATIO, false},
	 gpu_compute},
	{{"carve_gpu_up", "1 while the driver answers for the GPU.", METRICS_PLAIN, false}, gpu_up},
};

void metrics_view_gpus(const struct node *node, struct metrics_text *text)
{
	struct gpu_view *v = calloc(1, sizeof(*v));

	if (!v) {
		text->failed = true;
		return;
	}
	v->node = node;
	pool_place_gpus(&node->pool, v->place);
	for (uint32_t i = 0; i < node->pool.count; i++) {
		char index[16];

		v->begun[i] = v->labels.size;
		snprintf(index, sizeof(index), "%u", node->pool.gpu[i].info.index);
		metrics_label(&v->labels, v->begun[i], "gpu", index);
		metrics_label(&v->labels, v->begun[i], "gpu_uuid",
			      node->pool.gpu[i].info.uuid_text);
		v->begun[i + 1] = v->labels.size;
	}
	for (size_t f = 0; f < ARRAY_SIZE(gpu_families) && node->pool.count; f++) {
		metrics_family_begin(text, &gpu_families[f].family);
		for (uint32_t i = 0; i < node->pool.count && !v->labels.failed; i++)
			metrics_sample(text, &gpu_families[f].family, v->labels.data + v->begun[i],
				       v->begun[i + 1] - v->begun[i], gpu_families[f].number(v, i));
	}
	text->failed |= v->labels.failed;
	metrics_text_free(&v->labels);
	free(v);
}

/* ---- queues ------------------------------------------------------------------------------ */

struct queue_list {
	const char *name[QUEUES_MAX];
	uint32_t count;
	uint64_t left_out;
};

static void queue_add(struct queue_list *list, const char *name)
{
	if (list->count < QUEUES_MAX)
		list->name[list->count++] = name;
	else
		list->left_out++;
}

/* Those that agents serve, and then others until the list is full. */
static void queues_list(const struct queues *queues, struct queue_list *list)
{
	uint32_t position;

	for (const struct agent *a = queues->agents; a; a = a->next)
		for (uint32_t i = 0; i < a->queue_count; i++)
			/* Several agents may serve one queue. */
			if (list->count == QUEUES_MAX ||
			    (agent_serving(queues, a->queue[i].spec.name, (uid_t)-1, &position) ==
				     a &&
			     position == i))
				queue_add(list, a->queue[i].spec.name);
	for (size_t i = 0; i < JOBS_TABLE_BUCKETS && list->count < QUEUES_MAX; i++)
		for (const struct queue_name *name = queues->jobs->names[i];
		     name && list->count < QUEUES_MAX; name = name->next)
			if (!agent_serving(queues, name->text, (uid_t)-1, &position))
				queue_add(list, name->text);
}

static void queue_family_write(const struct queues *queues, const struct queue_list *list,
			       const struct metrics_family *family, bool running,
			       struct metrics_text *text)
{
	struct metrics_text label = {0};

	metrics_family_begin(text, family);
	for (uint32_t i = 0; i < list->count; i++) {
		const struct queue_name *its = queue_name_find(queues, list->name[i]);

		label.size = 0;
		metrics_label(&label, 0, "queue", list->name[i]);
		if (!label.failed)
			metrics_sample(text, family, label.data, label.size,
				       !its      ? 0
				       : running ? its->running
						 : its->waiting);
	}
	text->failed |= label.failed;
	metrics_text_free(&label);
}

void metrics_view_queues(const struct node *node, struct metrics_text *text)
{
	static const struct metrics_family waits = {
		"carve_queue_waiting", "Jobs of the queue that wait.", METRICS_PLAIN, false};
	static const struct metrics_family runs = {
		"carve_queue_running", "Jobs of the queue that run.", METRICS_PLAIN, false};
	static const struct metrics_family left_out = {
		"carve_queues_omitted",
		"Queues of agents that are left out, as there are more than "
		"256.",
		METRICS_PLAIN, false};
	struct queue_list list = {.count = 0};

	if (!node->queues)
		return;
	queues_list(node->queues, &list);
	if (list.count) {
		queue_family_write(node->queues, &list, &waits, false, text);
		queue_family_write(node->queues, &list, &runs, true, text);
	}
	metrics_single(text, &left_out, list.left_out);
}

/* ---- the daemon -------------------------------------------------------------------------- */

static uint64_t now_started(const struct node *n)
{
	return (uint64_t)n->started;
}

static uint64_t now_ready(const struct node *n)
{
	return n->ready;
}

static uint64_t config_wrong(const struct node *n)
{
	return *n->config_wrong != '\0';
}

/* A user's own daemon has no warden, and misses none. */
static uint64_t warden_up(const struct node *n)
{
	return n->options.system ? privileges_guarded(&n->privileges) : METRICS_NONE;
}

static uint64_t sessions(const struct node *n)
{
	return n->sessions.count;
}

static uint64_t requests_waiting(const struct node *n)
{
	return n->waiting.budget.total;
}

static uint64_t loop_delay(const struct node *n)
{
	return MAX(n->health.longest_ns, n->health.longest_before_ns);
}

static uint64_t loop_busy(const struct node *n)
{
	return n->health.busy_ns;
}

static uint64_t database_faults_number(const struct node *n)
{
	return database_faults();
}

static uint64_t samples(const struct node *n)
{
	return n->pool.done;
}

static uint64_t sample_cost(const struct node *n)
{
	return n->pool.took_all_ns;
}

static uint64_t sample_age(const struct node *n)
{
	return n->pool.done_ns ? now_monotonic_ns() - n->pool.done_ns : METRICS_NONE;
}

static uint64_t http_connections_number(const struct node *n)
{
	return http_connections(n->http);
}

static uint64_t attach_connections_number(const struct node *n)
{
	return attach_connections(n->attach);
}

static uint64_t http_refused_number(const struct node *n)
{
	return http_refused(n->http);
}

static uint64_t scrapes(const struct node *n)
{
	return n->health.scrapes;
}

static uint64_t scrapes_cost(const struct node *n)
{
	return n->health.scrape_ns;
}

static uint64_t scrapes_refused(const struct node *n)
{
	return n->health.refused;
}

static uint64_t job_mapping(const struct node *n)
{
	return *n->config.metrics.job_mapping_dir ? job_mapping_failed(n->job_mapping)
						  : METRICS_NONE;
}

static uint64_t cpu_time(const struct node *n)
{
	struct rusage use;

	if (getrusage(RUSAGE_SELF, &use) < 0)
		return METRICS_NONE;
	return ((uint64_t)use.ru_utime.tv_sec + (uint64_t)use.ru_stime.tv_sec) * NS_PER_S +
	       ((uint64_t)use.ru_utime.tv_usec + (uint64_t)use.ru_stime.tv_usec) * 1000;
}

static uint64_t resident(const struct node *n)
{
	char text[128], *end;

	if (file_read("/proc/self/statm", text, sizeof(text)) < 0)
		return METRICS_NONE;
	(void)strtoull(text, &end, 10); /* the size of its address space */
	uint64_t pages = strtoull(end, NULL, 10);
	return pages * (uint64_t)sysconf(_SC_PAGESIZE);
}

#define GAUGE(name, unit, number, help)           \
	{                                         \
		{name, help, unit, false}, number \
	}
#define COUNTER(name, unit, number, help)        \
	{                                        \
		{name, help, unit, true}, number \
	}
static const struct {
	struct metrics_family family;
	uint64_t (*number)(const struct node *node);
} daemon_families[] = {
	GAUGE("carve_start_time_seconds", METRICS_SECONDS, now_started,
	      "When the daemon started, since 1970; each restart sets it anew."),
	GAUGE("carve_ready", METRICS_PLAIN, now_ready, "1 once the daemon grants slices."),
	GAUGE("carve_config_wrong", METRICS_PLAIN, config_wrong,
	      "1 while carved.json is wrong and the last good settings hold."),
	GAUGE("carve_warden_up", METRICS_PLAIN, warden_up,
	      "1 while the warden does what takes root's rights."),
	GAUGE("carve_sessions", METRICS_PLAIN, sessions, "Sessions that have not ended."),
	GAUGE("carve_requests_waiting", METRICS_PLAIN, requests_waiting,
	      "Requests for slices that wait for room."),
	GAUGE("carve_loop_delay_seconds", METRICS_SECONDS, loop_delay,
	      "The longest time for which the daemon's loop was busy at once, in this minute or "
	      "the "
	      "last."),
	COUNTER("carve_loop_busy_seconds_total", METRICS_SECONDS, loop_busy,
		"Time for which the daemon's loop was busy."),
	COUNTER("carve_database_faults_total", METRICS_PLAIN, database_faults_number,
		"Writes or reads of the databases that failed."),
	COUNTER("carve_samples_total", METRICS_PLAIN, samples,
		"Samples of the driver's figures that were taken."),
	COUNTER("carve_sample_seconds_total", METRICS_SECONDS, sample_cost,
		"Time that the samples took, on a thread beside the loop."),
	GAUGE("carve_sample_age_seconds", METRICS_SECONDS, sample_age,
	      "Age of the driver's figures in this scrape."),
	GAUGE("carve_http_connections", METRICS_PLAIN, http_connections_number,
	      "Connections to the HTTP socket."),
	GAUGE("carve_attach_connections", METRICS_PLAIN, attach_connections_number,
	      "Connections of programs in slices."),
	COUNTER("carve_http_refused_total", METRICS_PLAIN, http_refused_number,
		"Requests that were answered with 403, as their user may not ask them."),
	COUNTER("carve_scrapes_total", METRICS_PLAIN, scrapes, "Scrapes that were answered."),
	COUNTER("carve_scrape_seconds_total", METRICS_SECONDS, scrapes_cost,
		"Time of the daemon's loop that scrapes took."),
	COUNTER("carve_scrapes_refused_total", METRICS_PLAIN, scrapes_refused,
		"Scrapes that were refused, as their reader had too many under way."),
	GAUGE("carve_job_mapping_failed", METRICS_PLAIN, job_mapping,
	      "1 while files for dcgm-exporter cannot be written."),
	COUNTER("process_cpu_seconds_total", METRICS_SECONDS, cpu_time,
		"CPU time of the daemon since it started."),
	GAUGE("process_resident_memory_bytes", METRICS_PLAIN, resident,
	      "Memory that the daemon has in RAM."),
};

void metrics_view_daemon(const struct node *node, struct metrics_text *text)
{
	static const struct metrics_family build = {
		"carve_build_info", "The version of the daemon.", METRICS_PLAIN, false};
	struct metrics_text label = {0};

	metrics_label(&label, 0, "version", CARVE_VERSION);
	if (!label.failed) {
		metrics_family_begin(text, &build);
		metrics_sample(text, &build, label.data, label.size, 1);
	}
	text->failed |= label.failed;
	metrics_text_free(&label);
	for (size_t i = 0; i < ARRAY_SIZE(daemon_families); i++)
		metrics_single(text, &daemon_families[i].family, daemon_families[i].number(node));
}
