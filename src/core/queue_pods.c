#include "core/queue_pods.h"

void queue_pods_decide(const struct queue_limit *queues, uint32_t running, uint32_t most,
		       const struct queue_job *jobs, size_t count, struct queue_decision *ret,
		       enum queue_wait *why)
{
	*ret = (struct queue_decision){
		.start = QUEUE_NONE, .head = QUEUE_NONE, .reserved_ns = QUEUE_NEVER};
	for (size_t i = 0; i < count; i++) {
		const struct queue_limit *limit = &queues[jobs[i].queue];
		enum queue_wait wait = limit->most && limit->running >= limit->most
					       ? QUEUE_WAITS_MOST
				       : running >= most ? QUEUE_WAITS_ROOM
							 : QUEUE_STARTS;

		if (why)
			why[i] = wait;
		if (wait == QUEUE_WAITS_ROOM && ret->head == QUEUE_NONE)
			ret->head = (int)i;
		if (wait == QUEUE_STARTS) {
			ret->start = (int)i;
			return;
		}
	}
}

int queue_pods_preempt(const struct queue_running *running, size_t count,
		       const struct queue_job *head)
{
	int chosen = QUEUE_NONE;

	for (size_t i = 0; i < count; i++) {
		const struct queue_running *job = &running[i];

		if (!job->preemptible || job->spared || job->priority >= head->priority)
			continue;
		if (chosen == QUEUE_NONE || job->priority < running[chosen].priority ||
		    (job->priority == running[chosen].priority &&
		     job->started_ns > running[chosen].started_ns))
			chosen = (int)i;
	}
	return chosen;
}
