#include "daemon/settle/sampled.h"

#include "daemon/session/process.h"
#include "daemon/session/session.h"
#include "daemon/settle/descriptors.h"
#include "daemon/settle/orphans.h"
#include "daemon/settle/outside.h"
#include "daemon/settle/over.h"
#include "daemon/settle/settle.h"
#include "daemon/settle/settling.h"
#include "daemon/settle/strays.h"

static void figures_note_all(const struct settling *settling)
{
	for (const struct session *s = settling->sessions->attached; s; s = s->next_attached)
		for (struct process *p = s->processes; p; p = p->next)
			figures_note(s, p);
}

/* Each step reads what those before it found: figures, descriptors and what these keep, strays, and
 * then what is left over. Dead processes go last, as they explain figures until then. */
void settle_sampled(struct settling *settling)
{
	figures_note_all(settling);
	descriptors_read(settling);
	orphans_sampled(settling);
	strays_sampled(settling);
	outside_compute(settling);
	over_compute(settling);
	processes_settle_execed(settling->sessions);
	settle_all(settling);
	processes_reap(settling->sessions);
	orphans_store(settling);
}
