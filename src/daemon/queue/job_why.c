/* Why a job waits, and what for. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/macros.h"
#include "base/units.h"
#include "core/queue.h"
#include "daemon/gpu/gpu_drain.h"
#include "daemon/gpu/pool.h"
#include "daemon/queue/agents.h"
#include "daemon/queue/decision.h"
#include "daemon/queue/job_files.h"
#include "daemon/queue/job_table.h"
#include "daemon/queue/job_why.h"
#include "daemon/queue/launcher.h"
#include "daemon/queue/queue_context.h"
#include "daemon/queue/queue_pods.h"
#include "daemon/waiting/quota_check.h"

const char *queue_job_id_text(const struct queues *q, int64_t id, char buf[static JOB_ID_TEXT])
{
	const struct job *job = job_find(q, id);

	return job_id_text(job ? &job->record : &(struct job_record){.id = id}, buf);
}

/* Names a GPU of the agent's that is drained, and how many more are. */
static void drains_add(const struct queues *q, const struct agent *agent,
		       char buf[static JOB_WHY_SIZE])
{
	const struct pool *pool = q->host.pool;
	uint8_t allowed[PLACE_GPUS_MAX];
	char drained[GPU_DRAIN_TEXT_SIZE], part[GPU_DRAIN_TEXT_SIZE + 96];
	uint32_t count = 0, first = 0;

	agent_allowed(q, agent, allowed);
	for (uint32_t i = 0; !agent->pods && i < pool->count; i++)
		if (allowed[i] && gpu_drain_of(pool, i)) {
			first = count ? first : i;
			count++;
		}
	if (!count)
		return;
	size_t used =
		(size_t)snprintf(part, sizeof(part), "; GPU %u is %s", pool->gpu[first].info.index,
				 gpu_drain_text(gpu_drain_of(pool, first), drained));
	if (count > 1)
		snprintf(part + used, sizeof(part) - used, "; so are %u more of the agent's GPUs",
			 count - 1);
	/* A reason is told whole: it may be of any language. */
	used = strlen(buf);
	if (used + strlen(part) < JOB_WHY_SIZE)
		snprintf(buf + used, JOB_WHY_SIZE - used, "%s", part);
}

static const char *why_room(const struct job *job, const struct agent *agent,
			    char buf[static JOB_WHY_SIZE])
{
	int64_t id = job->record.id;
	uint64_t now = now_monotonic_ns();

	if (agent->pods)
		snprintf(buf, JOB_WHY_SIZE, "as many pods of the agent run as may (%u)",
			 agent->pods->most);
	else if (agent->head != id)
		snprintf(buf, JOB_WHY_SIZE, "there is no room for it on the agent's GPUs");
	else if (agent->blocker && agent->reserved_ns != QUEUE_NEVER)
		snprintf(buf, JOB_WHY_SIZE,
			 "it waits for other jobs to end; a placement is reserved, in %" PRIu64
			 " s at the latest",
			 agent->reserved_ns > now ? (agent->reserved_ns - now) / 1000000000 + 1
						  : 0);
	else if (agent->blocker)
		snprintf(buf, JOB_WHY_SIZE,
			 "it waits for other jobs to end; a placement is reserved");
	else
		snprintf(buf, JOB_WHY_SIZE,
			 "it waits for memory that others than queues hold; a placement is "
			 "reserved");
	drains_add(job->queues, agent, buf);
	return buf;
}

static void why_hours(bool of_group, char buf[static JOB_WHY_SIZE])
{
	char month[UNITS_TEXT_SIZE];

	snprintf(buf, JOB_WHY_SIZE,
		 "the GPU-hours of %s in this month are used up: the month starts anew on %s",
		 of_group ? "a group of its user" : "its user", quotas_month_text(month));
}

/* Jobs that are named, at most. */
#define NAMED_MAX 12u

const char *job_waits_text(const struct job *job, const struct queue_ends *ends,
			   char buf[static JOB_WHY_SIZE])
{
	bool many = ends->count > 1;
	char id[JOB_ID_TEXT];
	uint32_t position;
	const struct agent *agent =
		agent_serving(job->queues, job->record.queue, job->record.uid, &position);
	size_t used = (size_t)snprintf(buf, JOB_WHY_SIZE, "it starts %swhen %s",
				       ends->exact ? "" : "at the latest ",
				       !many       ? "job"
				       : ends->all ? "jobs"
						   : "one of jobs");

	for (size_t i = 0; i < MIN(ends->count, NAMED_MAX); i++)
		used += (size_t)snprintf(buf + used, JOB_WHY_SIZE - used, "%s%s", i ? ", " : " ",
					 queue_job_id_text(job->queues, (int64_t)ends->id[i], id));
	if (ends->count > NAMED_MAX)
		used += (size_t)snprintf(buf + used, JOB_WHY_SIZE - used, " and %zu more",
					 ends->count - NAMED_MAX);
	snprintf(buf + used, JOB_WHY_SIZE - used, "%s",
		 many && ends->all ? " have ended" : " ends");
	if (agent)
		drains_add(job->queues, agent, buf);
	return buf;
}

/* One of the jobs that find no room has a placement reserved, and goes before the others. */
static struct job_prospect prospect_of_room(const struct job *job, const struct agent *agent)
{
	uint64_t now = now_monotonic_ns();
	bool known = agent->blocker && agent->reserved_ns != QUEUE_NEVER;

	if (agent->head != job->record.id)
		return (struct job_prospect){.blocker = agent->head};
	return (struct job_prospect){
		.starts =
			!known ? 0
			       : now_realtime_ns() + (agent->reserved_ns > now
							      ? (int64_t)(agent->reserved_ns - now)
							      : 0),
	};
}

struct job_prospect job_prospect(const struct job *job)
{
	const struct queue_bucket *bucket = job->list ? job->list->bucket : NULL;
	struct job_prospect ret = {0};
	uint32_t position;
	const struct agent *agent =
		agent_serving(job->queues, job->record.queue, job->record.uid, &position);

	if (job->record.state != JOB_QUEUED)
		return ret;
	for (unsigned i = 0; !bucket && job->wait == JOB_WAITS_AFTER && i < job->spec->after_count;
	     i++) {
		const struct job_after *after = &job->spec->after[i];
		const struct job *comes = job_meant(job->queues, after->job, after->index);

		if (!ret.blocker && comes)
			ret.blocker = comes->record.id;
	}
	if (bucket && agent && !agent->pods &&
	    (bucket->wait == JOB_WAITS_ROOM || bucket->wait == JOB_WAITS_RESERVED))
		ret = prospect_of_room(job, agent);
	return ret;
}

/* Why its pod does not run yet, or what its end waits for. */
static void why_pod(const struct job *job, char buf[static JOB_WHY_SIZE])
{
	json_t *state = job_pod_state(job->queues, &job->record);
	const char *why = json_string_value(json_object_get(state, "why"));
	const char *ending = job->record.ending;

	snprintf(buf, JOB_WHY_SIZE, "%s%s%s%s", ending, *ending && why && *why ? "; " : "",
		 why && *why ? "its pod waits: " : "", why ? why : "");
	json_decref(state);
}

/* Its last start, or that of a job like it. */
static void why_failure(const struct job *job, char buf[static JOB_WHY_SIZE])
{
	const struct queues *q = job->queues;
	const char *why = strerrordesc_np(-job->failure);

	if (!job->failures)
		snprintf(buf, JOB_WHY_SIZE,
			 "a job like it could not be started; this one is tried soon");
	else if (job_is_pod(&job->record) && !job->failure)
		snprintf(buf, JOB_WHY_SIZE, "its pod goes on; it is taken up again soon");
	else if (job->failure == -EKEYREVOKED)
		snprintf(buf, JOB_WHY_SIZE,
			 "the key that shows who started its agent was lost with the directory of "
			 "jobs; start the agent anew: carve agent --stop, then carve agent");
	else if (launcher_is_there(q->host.launcher) && launcher_is_away(q->host.launcher))
		snprintf(buf, JOB_WHY_SIZE,
			 "it could not be started, as carve-warden.service does not answer; it "
			 "is tried again");
	else if (job->no_files)
		snprintf(buf, JOB_WHY_SIZE,
			 "its files cannot be made in %.120s/%u: %s; it is tried again",
			 job_directory(q), job->record.uid, why);
	else
		snprintf(buf, JOB_WHY_SIZE, "it could not be started%s%s, and is tried again",
			 job->failure ? ": " : "", job->failure ? why : "");
}

static void why_begin(const struct job *job, char buf[static JOB_WHY_SIZE])
{
	char text[UNITS_TEXT_SIZE];

	snprintf(buf, JOB_WHY_SIZE, "its time to begin has not come: %s",
		 units_format_time(job->spec->begin, UNITS_SECONDS, text));
}

const char *job_why(const struct job *job, char buf[static JOB_WHY_SIZE])
{
	static const char *const texts[] = {
		[JOB_WAITS_TURN] = "it is its turn next",
		[JOB_WAITS_RESERVED] = "the room that is left is reserved for an earlier job",
		[JOB_WAITS_MOST] = "as many jobs of its queue run as may",
		[JOB_WAITS_DRAIN] = "its queue is drained",
		[JOB_WAITS_AFTER] = "a job that it comes after has not ended",
		[JOB_WAITS_ARRAY] = "as many jobs of its array run as may",
		[JOB_WAITS_SIZE] = "it has no size, or a larger one than its queue",
		[JOB_WAITS_QUOTA] = "its user's quota is used up (carve limits)",
		[JOB_WAITS_QUOTA_NEVER] =
			"its user's quota is smaller: it can never start (carve quota)",
		[JOB_WAITS_INSTANCE] = "its MIG instance is being made",
	};
	const struct queue_bucket *bucket = job->list ? job->list->bucket : NULL;
	uint32_t position;
	const struct agent *agent =
		agent_serving(job->queues, job->record.queue, job->record.uid, &position);

	buf[0] = '\0';
	if (job->record.state == JOB_HELD)
		snprintf(buf, JOB_WHY_SIZE, "`carve job release` lets it start");
	else if (job->record.state == JOB_RUNNING && job_is_pod(&job->record))
		why_pod(job, buf);
	else if (job->record.state == JOB_RUNNING)
		snprintf(buf, JOB_WHY_SIZE, "%s", job->record.ending);
	else if (*job->record.ending && agent)
		snprintf(buf, JOB_WHY_SIZE, "%s; its pod is to be deleted", job->record.ending);
	else if (!bucket && job->wait == JOB_WAITS_BEGIN)
		why_begin(job, buf);
	else if (!bucket)
		snprintf(buf, JOB_WHY_SIZE, "%s", texts[job->wait]);
	else if (!agent)
		(void)job_unserved(job, buf);
	else if (bucket->wait == JOB_WAITS_FAILURE || job->again_ns > now_monotonic_ns())
		why_failure(job, buf);
	else if (bucket->wait == JOB_WAITS_ROOM)
		why_room(job, agent, buf);
	else if (bucket->wait == JOB_WAITS_HOURS || bucket->wait == JOB_WAITS_GROUP_HOURS)
		why_hours(bucket->wait == JOB_WAITS_GROUP_HOURS, buf);
	else
		snprintf(buf, JOB_WHY_SIZE, "%s", texts[bucket->wait]);
	return buf;
}
