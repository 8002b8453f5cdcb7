#include "daemon/settle/outsiders.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "daemon/gpu/pool.h"
#include "daemon/host/log.h"
#include "daemon/host/privileges.h"
#include "daemon/session/process.h"
#include "daemon/session/session.h"
#include "daemon/settle/settling.h"
#include "daemon/settle/strays.h"

/* Where the policy only reports, an idle daemon has the driver asked this often. */
#define REPORT_SECONDS 10u

/* ---- one process --------------------------------------------------------------------------- */

/* Its own word, fit for a log and for JSON. */
static void command_read(pid_t pid, char ret[static OUTSIDER_COMMAND_SIZE])
{
	char path[64], text[64];

	snprintf(path, sizeof(path), "/proc/%d/comm", (int)pid);
	ssize_t n = file_read(path, text, sizeof(text));
	text[n < 0 ? 0 : strcspn(text, "\n")] = '\0';
	snprintf(ret, OUTSIDER_COMMAND_SIZE, "%.19s", text);
	for (char *at = ret; *at; at++)
		if (*at < ' ' || *at > '~')
			*at = '?';
}

static bool is_inside(const struct outsiders *o, struct process_id id)
{
	const struct settling *settling = o->settling;

	return id.pid == *o->probe || id.pid == getpid() ||
	       process_is_attached(settling->sessions, id) || strays_session(settling, id);
}

struct outsider *outsiders_find(const struct outsiders *o, pid_t pid)
{
	struct outsider *x = o->first;

	while (x && x->id.pid != pid)
		x = x->next;
	return x;
}

static struct outsider *outsider_add(struct outsiders *o, pid_t pid)
{
	struct process_id id;

	if (o->count >= OUTSIDERS_MAX || process_identify(pid, &id) < 0 || is_inside(o, id))
		return NULL;
	struct outsider *x = calloc(1, sizeof(*x));
	if (!x)
		return NULL;
	struct outsider **end = &o->first;
	while (*end)
		end = &(*end)->next;
	*end = x; /* the oldest is first */
	x->id = id;
	o->count++;
	command_read(pid, x->command);
	return x;
}

/* ---- the lists of the driver ------------------------------------------------------------- */

static void sample_take(struct outsiders *o, uint32_t gpu)
{
	const struct gpu_sample *sample = &o->settling->pool->gpu[gpu].sample;

	for (size_t i = 0; i < sample->process_count; i++) {
		const struct gpu_process *p = &sample->processes[i];
		struct outsider *x = outsiders_find(o, p->pid);

		if (!x)
			x = outsider_add(o, p->pid);
		if (x)
			x->gpus |= 1ull << gpu;
		if (x && !p->graphics)
			x->computes |= 1ull << gpu;
	}
}

static void drop_former(struct outsiders *o)
{
	for (struct outsider **at = &o->first, *x; (x = *at);) {
		if (x->gpus && process_alive(x->id) && !is_inside(o, x->id)) {
			at = &x->next;
			continue;
		}
		*at = x->next;
		o->count--;
		free(x);
	}
}

/* GPUs that were not asked, or did not answer, have the processes that they had. */
static void lists_read(struct outsiders *o)
{
	const struct pool *pool = o->settling->pool;
	uint64_t asked = 0;

	for (uint32_t i = 0; i < pool->count; i++)
		if (pool->mask >> i & 1 && !pool->gpu[i].sample.error)
			asked |= 1ull << i;
	for (struct outsider *x = o->first; x; x = x->next) {
		x->gpus &= ~asked;
		x->computes &= ~asked;
	}
	for (uint32_t i = 0; i < pool->count; i++)
		if (asked >> i & 1 && pool_gpu_is_ours(&pool->gpu[i]))
			sample_take(o, i);
	drop_former(o);
}

uint64_t outsider_bytes(const struct outsiders *o, const struct outsider *x)
{
	const struct pool *pool = o->settling->pool;
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < pool->count; i++)
		if (x->gpus >> i & 1)
			bytes += gpu_sample_process_bytes(&pool->gpu[i].sample, x->id.pid);
	return bytes;
}

/* ---- the whole --------------------------------------------------------------------------- */

/* The reasons for which a policy that kills does not. */
static void problem_look(struct outsiders *o)
{
	bool group = false;
	const char *unknown = exempt_look(&o->exempt, &group);

	o->problem[0] = '\0';
	if (!o->setting.kills)
		return;
	if (!privileges_guarded(o->settling->sessions->privileges))
		snprintf(o->problem, sizeof(o->problem),
			 "a user's own daemon ends no program outside carve");
	else if (unknown)
		snprintf(o->problem, sizeof(o->problem),
			 "outside_exempt names the %s %.40s, which this machine does not know; "
			 "nobody is ended until it does",
			 group ? "group" : "user", unknown);
	if (unknown && !o->exempt_told)
		log_event(LOG_WARNING, "outside.no_%s name=%s", group ? "group" : "user", unknown);
	o->exempt_told = unknown;
}

void outsiders_sampled(struct outsiders *o)
{
	uint64_t now = now_monotonic_ns();

	o->idle_seconds = 0;
	problem_look(o);
	lists_read(o);
	for (struct outsider *x = o->first; x; x = x->next)
		outsider_judge(o, x, now);
}

/* A user's own daemon looks when something else has it look. */
void outsiders_tick(struct outsiders *o)
{
	if (o->settling->pool->state != POOL_READY ||
	    !privileges_guarded(o->settling->sessions->privileges))
		return;
	if (o->setting.kills || ++o->idle_seconds >= REPORT_SECONDS) {
		o->idle_seconds = 0;
		pool_refresh(o->settling->pool, POOL_ALL);
	}
}

void outsiders_set(struct outsiders *o, const struct outside_setting *setting,
		   const struct exempt_names *users, const struct exempt_names *groups)
{
	o->setting = *setting;
	exempt_set(&o->exempt, users, groups);
	o->exempt_told = false;
}

void outsiders_free(struct outsiders *o)
{
	while (o->first) {
		struct outsider *x = o->first;

		o->first = x->next;
		free(x);
	}
	o->count = 0;
	exempt_free(&o->exempt);
}
