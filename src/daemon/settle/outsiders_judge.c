/* The fate of one program outside carve: its marks, and the steps of the policy. */
#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/units.h"
#include "daemon/events/events.h"
#include "daemon/host/log.h"
#include "daemon/host/owner.h"
#include "daemon/host/privileges.h"
#include "daemon/session/process.h"
#include "daemon/session/session.h"
#include "daemon/settle/outsiders.h"
#include "daemon/settle/outsiders_ask.h"
#include "daemon/settle/settling.h"
#include "daemon/settle/strays.h"

/* A look that came to nothing is tried again after this time. */
#define LOOK_AGAIN_NS 10000000000ull
/* Its user and groups are read this often. */
#define FACTS_AGAIN_NS 5000000000ull

/* Its user may have changed, as by a set-user-ID program. The warden asks the kernel again before
 * it signals. */
static void facts_read(struct outsiders *o, struct outsider *x)
{
	uid_t uid = UINT32_MAX;

	x->facts.one_user = process_user(x->id.pid, &uid);
	x->facts.uid = uid;
	x->facts.exempt = x->facts.one_user && exempt_has(&o->exempt, uid, x->id.pid);
}

/* ---- its marks --------------------------------------------------------------------------- */

static void look(struct outsiders *o, struct outsider *x)
{
	struct privileges *privileges = o->settling->sessions->privileges;
	uint64_t now = now_monotonic_ns();

	if (x->facts.proved || x->looking || now < x->look_ns || !privileges_guarded(privileges))
		return;
	x->look_ns = now + LOOK_AGAIN_NS;
	x->looking = outsider_look(privileges, o, x->facts.one_user ? x->facts.uid : 0, x->id);
}

/* The session whose ledger that file is. */
static const struct session *session_of_ledger(const struct outsiders *o,
					       const struct warden_marks *marks)
{
	struct stat st;

	for (const struct session *s = o->settling->sessions->attached; s; s = s->next_attached)
		if (s->books.ledger_fd >= 0 && fstat(s->books.ledger_fd, &st) == 0 &&
		    st.st_ino == marks->ledger_inode && st.st_dev == marks->ledger_device)
			return s;
	return NULL;
}

void outsider_looked(struct outsiders *o, struct process_id process, int rc,
		     const struct warden_marks *marks)
{
	struct outsider *x = outsiders_find(o, process.pid);

	if (!x || !process_same(x->id, process))
		return;
	x->looking = false;
	if (rc < 0)
		return;
	const struct session *s =
		marks->marks & WARDEN_MARK_LEDGER ? session_of_ledger(o, marks) : NULL;
	x->marks = *marks;
	x->facts.proved = true;
	x->facts.foreign = marks->marks & WARDEN_MARK_FOREIGN;
	snprintf(x->ledger_session, sizeof(x->ledger_session), "%s", s ? s->record.id : "");
}

/* The living session that its marks name. A user's own word counts for that user's sessions. */
static struct session *session_claimed(const struct outsiders *o, const struct outsider *x)
{
	const struct sessions *sessions = o->settling->sessions;
	struct session *s = x->ledger_session[0] ? session_find(sessions, x->ledger_session) : NULL;

	if (s || !x->marks.session[0])
		return s;
	s = session_find(sessions, x->marks.session);
	return s && (x->marks.marks & WARDEN_MARK_ROOT ||
		     (x->facts.one_user && s->owner == owner_of(x->facts.uid)))
		       ? s
		       : NULL;
}

/* ---- the steps of the policy ------------------------------------------------------------------
 */

static void say(const struct outsiders *o, const struct outsider *x, enum event_kind kind,
		const char *more)
{
	char subject[32], text[160], bytes[UNITS_TEXT_SIZE];

	snprintf(subject, sizeof(subject), "process %d", (int)x->id.pid);
	snprintf(text, sizeof(text), "%s holds %s of GPU memory outside carve%s", x->command,
		 units_format_bytes(outsider_bytes(o, x), bytes), more);
	events_add(o->settling->sessions->events,
		   &(struct event){.kind = kind,
				   .owner = x->facts.one_user ? &x->facts.uid : NULL,
				   .subject = subject,
				   .before = "",
				   .after = "",
				   .text = text});
}

void outsider_signalled(struct outsiders *o, struct process_id process, int number, int rc)
{
	struct outsider *x = outsiders_find(o, process.pid);

	if (!x || !process_same(x->id, process) || rc == -ESRCH)
		return;
	if (rc == 0) {
		say(o, x, EVENT_OUTSIDE_KILLED,
		    number == SIGKILL ? "; carve sent SIGKILL" : "; carve sent SIGTERM");
		return;
	}
	/* It is looked at anew, and its time begins anew. */
	outside_restart(&x->life);
	x->facts.proved = false;
	x->look_ns = 0;
	x->facts.refused = rc == -EPERM;
	log_event(LOG_WARNING, "outside.not_ended pid=%d error=\"%s\"", (int)process.pid,
		  strerrordesc_np(-rc));
}

static void end(struct outsiders *o, struct outsider *x, int number)
{
	if (outsider_signal(o->settling->sessions->privileges, o, x->id, &x->marks, number))
		return;
	outside_restart(&x->life);
}

static void step_do(struct outsiders *o, struct outsider *x, enum outside_step step)
{
	char more[64];

	switch (step) {
	case OUTSIDE_STEP_NONE:
		break;
	case OUTSIDE_STEP_REPORT:
		if (x->spared != OUTSIDE_SPARED_ROOT && x->spared != OUTSIDE_SPARED_SYSTEM &&
		    x->spared != OUTSIDE_SPARED_EXEMPT)
			say(o, x, EVENT_OUTSIDE_REPORTED, "");
		break;
	case OUTSIDE_STEP_WARN:
		snprintf(more, sizeof(more), "; it ends in %.0f s, as outside_policy says",
			 ceil((double)outside_left_ns(&x->life, o->setting.after_ns) / 1e9));
		say(o, x, EVENT_OUTSIDE_WARNED, more);
		break;
	case OUTSIDE_STEP_TERMINATE:
		end(o, x, SIGTERM);
		break;
	case OUTSIDE_STEP_KILL:
		end(o, x, SIGKILL);
		break;
	}
}

static bool is_in_slice(struct outsiders *o, struct outsider *x)
{
	struct session *s = session_claimed(o, x);

	if (s)
		strays_claim(o->settling, x->id, s);
	return s || x->marks.marks & (WARDEN_MARK_JOB | WARDEN_MARK_CARVE);
}

void outsider_judge(struct outsiders *o, struct outsider *x, uint64_t now)
{
	if (now >= x->facts_ns) {
		x->facts_ns = now + FACTS_AGAIN_NS;
		facts_read(o, x);
	}
	x->facts.graphics = !x->computes;
	look(o, x);
	if (is_in_slice(o, x)) {
		outside_restart(&x->life);
		x->since = 0;
		return;
	}
	if (!x->since)
		x->since = now_realtime_ns();
	x->spared = outside_spared(&x->facts);
	step_do(o, x,
		outside_advance(&x->life, now,
				o->setting.kills && !o->problem[0] &&
					x->spared == OUTSIDE_SPARED_NOT,
				o->setting.after_ns));
}
