#include "daemon/settle/sampled.h"

#include "daemon/node.h"
#include "daemon/session/process.h"
#include "daemon/session/session.h"
#include "daemon/settle/descriptors.h"
#include "daemon/settle/orphans.h"
#include "daemon/settle/outside.h"
#include "daemon/settle/over.h"
#include "daemon/settle/settle.h"
#include "daemon/settle/strays.h"

static void figures_note_all(const struct node *node)
{
	for (const struct session *s = node->sessions.attached; s; s = s->next_attached)
		for (struct process *p = s->processes; p; p = p->next)
			figures_note(s, p);
}

/* Each step reads what those before it found: figures, descriptors and what these keep, strays, and
 * then what is left over. Dead processes go last, as they explain figures until then. */
void settle_sampled(struct node *node)
{
	figures_note_all(node);
	descriptors_read(node);
	orphans_sampled(node);
	strays_sampled(node);
	outside_compute(node);
	over_compute(node);
	processes_settle_execed(&node->sessions);
	settle_all(node);
	processes_reap(&node->sessions);
	orphans_store(node);
}
