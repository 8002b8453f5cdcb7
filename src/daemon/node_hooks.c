/* Tells the rooms above session/, mig/ and idle/ as sessions and instances come and go. */
#include "daemon/node_hooks.h"

#include "daemon/attach/attach.h"
#include "daemon/idle/idle.h"
#include "daemon/mig/mig.h"
#include "daemon/node.h"
#include "daemon/queue/job_change.h"
#include "daemon/report/report.h"
#include "daemon/session/session_hooks.h"
#include "daemon/settle/cgroups.h"
#include "daemon/settle/settle.h"
#include "daemon/settle/strays.h"
#include "daemon/slicing/slicing.h"
#include "daemon/upgrade/takeover.h"
#include "daemon/waiting/waiting.h"

static void on_shrunk(void *context)
{
	struct node *node = context;

	slicing_retry(&node->slicing);
}

static void on_room(void *context)
{
	struct node *node = context;

	waiting_kick(&node->waiting);
}

static void on_ended(void *context)
{
	struct node *node = context;

	slicing_retry(&node->slicing);
	waiting_kick(&node->waiting);
}

/* The time until now was held at the present size. */
static void on_resizing(struct session *session)
{
	report_count(&node_of(session)->report, session);
}

static void on_recorded(struct session *session)
{
	report_count(&node_of(session)->report, session);
	takeover_forget(session);
}

static void on_freeing(struct session *session)
{
	report_forget(&node_of(session)->report, session);
	strays_forget(session);
}

const struct session_hooks node_session_hooks = {
	.ledger_made = settle_tell,
	.attached = slicing_join,
	.ledger_used = takeover_keep,
	.shrunk = on_shrunk,
	.room_made = on_room,
	.resizing = on_resizing,
	.resized = cgroups_resized,
	.instance_context = mig_context_bytes,
	.instances_left = mig_session_ended,
	.received = slicing_received,
	.recorded = on_recorded,
	.ended = on_ended,
	.freeing = on_freeing,
	.freed = slicing_leave,
	.namespace_made = takeover_keep_namespace,
	.namespace_left = takeover_forget_namespace,
	.gave_up = orphans_give,
	.uncharging = settle_keep,
	.unconnected = attach_forget,
	.descriptor = attach_descriptor,
};

static void on_made(void *context, const char *id, const struct mig_grant *grant,
		    const struct error *err)
{
	struct node *node = context;

	waiting_made(&node->waiting, id, grant, err);
}

static bool is_resized(void *context, const char *session)
{
	struct node *node = context;

	return waiting_resizes(&node->waiting, session);
}

const struct mig_hooks node_mig_hooks = {
	.made = on_made,
	.resizes = is_resized,
};

static bool on_idle_job(void *context, const struct session *s, const char *why)
{
	struct node *node = context;

	return job_end_of_session(node->queues, s->record.id, JOB_TIMEOUT, why);
}

const struct idle_hooks node_idle_hooks = {.end_job = on_idle_job};
