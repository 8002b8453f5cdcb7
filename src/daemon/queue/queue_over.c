/* Rights that are over (proto/warden_jobs.h, WARDEN_JOB_OVER): of jobs that have ended, and of
 * texts that were changed. The launcher is told of one range at a time, in the loop's turns, so a
 * cancelled array costs a message for each 256 jobs. Ranges wait while the launcher is away. */
#include <errno.h>
#include <stdlib.h>

#include "base/array.h"
#include "base/macros.h"
#include "daemon/queue/queue_private.h"
#include "proto/warden_jobs.h"

static void on_told(void *arg, int rc, const void *reply, int *fd)
{
	struct queues *q = arg;

	q->overs.asked = 0;
	/* The warden is away: the next one is told the range again. */
	if (rc != -EPIPE)
		q->overs.first++;
	queue_overs_tell(q);
}

void queue_overs_tell(struct queues *q)
{
	struct queue_overs *overs = &q->overs;

	if (overs->first == overs->count)
		overs->first = overs->count = 0;
	if (overs->asked || !overs->count)
		return;
	const struct over *over = &overs->over[overs->first];
	(void)launcher_over(q->host.launcher, over->number, over->count, on_told, q, &overs->asked);
}

/* One more range, or more of the last one that the launcher was not told of. Without memory the
 * launcher is not told: the daemon itself starts no job that is over. */
static void range_add(struct queue_overs *overs, uint64_t number, uint32_t count)
{
	struct over *last = overs->count ? &overs->over[overs->count - 1] : NULL;
	bool is_told = overs->asked && overs->count == overs->first + 1;

	if (last && !is_told && last->number + last->count == number &&
	    last->count + count <= WARDEN_OVER_MAX) {
		last->count += count;
		return;
	}
	struct over *grown = array_grown(overs->over, overs->count, &overs->room, sizeof(*grown));
	if (!grown)
		return;
	overs->over = grown;
	overs->over[overs->count++] = (struct over){number, count};
}

void queue_rights_over(struct queues *q, const struct warrant *warrant, uint64_t position,
		       uint64_t count)
{
	if (!warrant || !launcher_is_there(q->host.launcher))
		return;
	for (uint64_t done = 0; done < count; done += WARDEN_OVER_MAX)
		range_add(&q->overs, warrant->number + position + done,
			  (uint32_t)MIN(count - done, WARDEN_OVER_MAX));
	queue_overs_tell(q);
}

void queue_overs_free(struct queues *q)
{
	launcher_forget(q->host.launcher, q->overs.asked);
	free(q->overs.over);
	q->overs = (struct queue_overs){0};
}
