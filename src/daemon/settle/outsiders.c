#include "daemon/settle/outsiders.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/array.h"
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

/* ---- processes in slices ------------------------------------------------------------------- */

static void inside_add(struct outsiders *o, pid_t pid)
{
	pid_t *grown = array_grown(o->inside, o->inside_count, &o->inside_room, sizeof(*grown));

	if (!grown)
		return;
	o->inside = grown;
	o->inside[o->inside_count++] = pid;
}

static int by_number(const void *a, const void *b)
{
	const pid_t *one = a, *other = b;

	return (*one > *other) - (*one < *other);
}

/* By PID alone: a process that has the PID of an ended one is let be until the slot of that is
 * free. */
static void inside_read(struct outsiders *o)
{
	const struct settling *settling = o->settling;

	o->inside_count = 0;
	inside_add(o, getpid());
	inside_add(o, *o->probe);
	for (const struct session *s = settling->sessions->attached; s; s = s->next_attached)
		for (const struct process *p = s->processes; p; p = p->next)
			inside_add(o, p->id.pid);
	for (const struct stray *stray = settling->strays; stray; stray = stray->next)
		if (stray->session)
			inside_add(o, stray->id.pid);
	if (o->inside_count)
		qsort(o->inside, o->inside_count, sizeof(*o->inside), by_number);
}

static bool is_inside(const struct outsiders *o, pid_t pid)
{
	return o->inside_count && bsearch(&pid, o->inside, o->inside_count, sizeof(pid), by_number);
}

/* ---- the list ------------------------------------------------------------------------------ */

static struct outsider **bucket_of(struct outsiders *o, pid_t pid)
{
	return &o->by_pid[(unsigned)pid % OUTSIDERS_BUCKETS];
}

struct outsider *outsiders_find(const struct outsiders *o, pid_t pid)
{
	struct outsider *x = *bucket_of((struct outsiders *)o, pid);

	while (x && x->id.pid != pid)
		x = x->next_pid;
	return x;
}

/* A user with many programs keeps nobody else's from being looked after. */
static bool has_room(const struct outsiders *o, uid_t uid)
{
	uint32_t count = 0;

	for (const struct outsider *x = o->first; x; x = x->next)
		count += x->facts.uid == uid;
	return o->count < OUTSIDERS_MAX && count < OUTSIDERS_OF_USER;
}

static struct outsider *outsider_add(struct outsiders *o, pid_t pid)
{
	struct process_id id;
	uid_t uid = UINT32_MAX;

	if (is_inside(o, pid) || o->fresh >= OUTSIDERS_FRESH)
		return NULL;
	o->fresh++;
	bool one_user = process_user(pid, &uid);
	if (!has_room(o, uid) || process_identify(pid, &id) < 0)
		return NULL;
	struct outsider *x = calloc(1, sizeof(*x)), **end = &o->first;
	if (!x)
		return NULL;
	while (*end)
		end = &(*end)->next;
	*end = x; /* the oldest is first */
	x->next_pid = *bucket_of(o, pid);
	*bucket_of(o, pid) = x;
	x->id = id;
	x->facts.one_user = one_user;
	x->facts.uid = uid;
	o->count++;
	command_read(pid, x->command);
	return x;
}

/* `at`: the link to it. */
static void outsider_remove(struct outsiders *o, struct outsider **at)
{
	struct outsider *x = *at, **link = bucket_of(o, x->id.pid);

	while (*link != x)
		link = &(*link)->next_pid;
	*link = x->next_pid;
	*at = x->next;
	o->count--;
	free(x);
}

/* ---- the lists of the driver ------------------------------------------------------------- */

static void sample_take(struct outsiders *o, uint32_t gpu)
{
	const struct gpu_sample *sample = &o->settling->pool->gpu[gpu].sample;

	/* Each look begins elsewhere, as only some processes that are not known are looked at. */
	for (size_t i = 0; i < sample->process_count; i++) {
		const struct gpu_process *p =
			&sample->processes[(i + o->turn) % sample->process_count];
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
		if (x->gpus && process_alive(x->id) && !is_inside(o, x->id.pid))
			at = &x->next;
		else
			outsider_remove(o, at);
	}
}

/* GPUs that were not asked, or did not answer, have the processes that they had. */
static void lists_read(struct outsiders *o)
{
	const struct pool *pool = o->settling->pool;
	uint64_t asked = 0;

	inside_read(o);
	o->fresh = 0;
	o->turn += OUTSIDERS_FRESH;
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

/* Other users are exempt by now. */
static void facts_anew(struct outsiders *o)
{
	for (struct outsider *x = o->first; x; x = x->next)
		x->facts_ns = 0;
}

/* The reasons for which a policy that kills does not. */
static void problem_look(struct outsiders *o)
{
	bool group = false;
	const char *unknown = exempt_look(&o->exempt, &group);

	if (o->exempt_unknown && !unknown)
		facts_anew(o);
	o->exempt_unknown = unknown;

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
	facts_anew(o);
}

void outsiders_free(struct outsiders *o)
{
	while (o->first)
		outsider_remove(o, &o->first);
	free(o->inside);
	o->inside = NULL;
	o->inside_count = o->inside_room = 0;
	exempt_free(&o->exempt);
}
