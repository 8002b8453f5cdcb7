/* Rights that are over (proto/warden_jobs.h, WARDEN_JOB_OVER): of jobs that have ended, and of
 * texts that were changed. The database has them in the step that ends the job, so no daemon
 * forgets them. The warden is told of one range at a time, in the loop's turns, so a cancelled
 * array costs a message for each 256 jobs. Ranges wait while the warden is away, and a range whose
 * answer was lost is told again. */
#include <errno.h>

#include "base/macros.h"
#include "daemon/queue/job_rights.h"
#include "daemon/queue/launcher.h"
#include "daemon/queue/queue_context.h"
#include "proto/warden_jobs.h"

static void on_told(void *arg, int rc, const void *reply, int *fd)
{
	struct queues *q = arg;

	q->overs.asked = 0;
	/* The warden is away, or the loop would wait for the disk: the range is told again. */
	if (rc == -EPIPE || job_store_holds(q->store))
		return;
	if (job_store_over_remove(q->store, &q->overs.told) == 0)
		queue_overs_tell(q);
}

void queue_overs_tell(struct queues *q)
{
	struct queue_overs *overs = &q->overs;

	if (overs->asked || overs->all_told || job_store_is_in_step(q->store) ||
	    !launcher_is_there(q->host.launcher) ||
	    job_store_over_first(q->store, WARDEN_OVER_MAX, &overs->told) < 0)
		return;
	overs->all_told = !overs->told.count;
	if (!overs->all_told)
		(void)launcher_over(q->host.launcher, overs->told.number, overs->told.count,
				    on_told, q, &overs->asked);
}

int queue_rights_over(struct queues *q, const struct warrant *warrant, uint64_t position,
		      uint64_t count)
{
	int rc = 0;

	if (!warrant || !launcher_is_there(q->host.launcher))
		return 0;
	for (uint64_t done = 0; rc == 0 && done < count; done += WARDEN_OVER_MAX) {
		const struct over over = {warrant->number + position + done,
					  (uint32_t)MIN(count - done, WARDEN_OVER_MAX)};

		rc = job_store_over_put(q->store, &over);
	}
	q->overs.all_told = false;
	queue_overs_tell(q);
	return rc;
}

void queue_overs_end(struct queues *q)
{
	launcher_forget(q->host.launcher, q->overs.asked);
	q->overs.asked = 0;
}
