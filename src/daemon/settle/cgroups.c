/* Limits of sessions in the driver. A process that begins or attaches is an order, which goes
 * through three steps. PLACE finds the cgroup that the process is in. LOOK finds out whether that
 * cgroup can carry the session's limit. SET gives the cgroup the limit. Each step runs on the
 * thread pool, and the loop decides between two steps with what it knows of rows and sessions. An
 * order keeps its turn until its last step is done, so nothing comes between what was seen and what
 * follows from it.
 *
 * Orders wait in turns by owner. A row is a cgroup that has a limit, or may have one. The database
 * has the row before the driver has the limit. An order of kind KEEP looks after one row: it sets
 * a limit again that lapsed, and clears one whose cgroup nobody is in.
 *
 * An order fails closed. Its callback is called once: with NULL only if the driver has the limit,
 * or if the front alone binds such a process (core/leaf.h). */
#include "daemon/settle/cgroups.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <uv.h>

#include "backend/cgroup_limits.h"
#include "base/clock.h"
#include "base/fnv.h"
#include "base/kill_point.h"
#include "daemon/gpu/pool.h"
#include "daemon/host/log.h"
#include "daemon/host/privileges.h"
#include "daemon/session/session.h"
#include "daemon/session/sessions.h"
#include "daemon/settle/cgroup_order.h"
#include "daemon/store/store.h"

/* So many orders of one owner wait at most, and so many cgroups of one session have a limit. */
#define OWNER_ORDERS_MAX 1024u
#define SESSION_ROWS_MAX 64u
/* So many rows are looked after in one tick. */
#define TICK_ROWS_MAX 256u
/* The owner, as far as turns go, of the probe and of rows whose session is gone. */
#define NOBODY UINT32_MAX

/* A cgroup that carries a limit of carve's, or may. */
struct row {
	struct row *next;
	struct store_limit record;
	enum limit_state state;
	uint32_t owner;  /* in whose turns it is looked after */
	uint64_t number; /* the kernel's for the cgroup that the driver has the limit for; 0: not
			    known */
	bool kept;       /* a KEEP about it waits or is under way */
	bool stale;      /* the session's sizes have changed since */
};

struct cgroups {
	struct sessions *sessions;
	struct limits *driver;     /* NULL: it has no such limits */
	struct row *rows, *looked; /* `looked`: the last that a tick looked after; NULL: none */
	struct turns waiting;
	struct order *running;
	const char *problem; /* why none are set, though the driver has them; NULL: they are */
	bool probed, stopping;
	bool fixed; /* no cgroup can be made on this machine */
};

static struct cgroups *of(const struct sessions *sessions)
{
	return sessions->cgroups;
}

static bool usable(const struct cgroups *c)
{
	return c && c->driver && c->probed && !c->problem;
}

/* It is, or that is being found out: an order waits for that. */
static bool may_be_usable(const struct cgroups *c)
{
	return c && c->driver && !c->problem;
}

/* ---- rows ------------------------------------------------------------------------------ */

static struct row *row_find(const struct cgroups *c, const char *path)
{
	struct row *row = c->rows;

	while (row && strcmp(row->record.path, path) != 0)
		row = row->next;
	return row;
}

static bool row_is_of(const struct row *row, const char *session)
{
	return !strcmp(row->record.session, session);
}

static struct row *row_add(struct cgroups *c, const struct store_limit *record, uint32_t owner)
{
	struct row *row = calloc(1, sizeof(*row));

	if (!row)
		return NULL;
	row->record = *record;
	row->state = LIMIT_NONE;
	row->owner = owner;
	row->next = c->rows;
	c->rows = row;
	return row;
}

static void row_free(struct cgroups *c, struct row *row)
{
	struct row **at = &c->rows;

	if (c->looked == row)
		c->looked = NULL;
	while (*at != row)
		at = &(*at)->next;
	*at = row->next;
	free(row);
}

static void row_move(struct row *row, enum limit_event event)
{
	enum limit_state from = row->state;

	if (!limit_next(from, event, &row->state))
		log_event(LOG_ERROR, "limit.impossible id=%s state=%d event=%d",
			  row->record.session, (int)from, (int)event);
}

static uint32_t rows_of(const struct cgroups *c, const char *session)
{
	uint32_t count = 0;

	for (const struct row *row = c->rows; row; row = row->next)
		count += row_is_of(row, session);
	return count;
}

/* The row of the session whose limit binds a process there: of its cgroup, or of one above it. */
static const struct row *row_above(const struct cgroups *c, const struct order *o)
{
	for (const struct row *row = c->rows; row; row = row->next) {
		size_t length = strlen(row->record.path);

		if (row->state != LIMIT_HELD || !row_is_of(row, o->session) ||
		    strncmp(row->record.path, o->path, length) != 0)
			continue;
		for (uint32_t i = 0; i < o->level_count; i++)
			if (o->level[i].length == length && o->level[i].number == row->number)
				return row;
	}
	return NULL;
}

/* ---- orders ---------------------------------------------------------------------------- */

static void orders_go_on(struct cgroups *c);

static void order_answer(struct order *o, const char *refusal)
{
	cgroups_cb cb = o->cb;

	o->cb = NULL;
	if (cb)
		cb(o->context, o->ticket, refusal);
}

__attribute__((format(printf, 2, 3))) static void order_refuse(struct order *o, const char *format,
							       ...)
{
	char why[CGROUPS_REFUSAL_SIZE - 40], refusal[CGROUPS_REFUSAL_SIZE];
	va_list args;

	va_start(args, format);
	/* NOLINTNEXTLINE(clang-analyzer-valist.Uninitialized): clang 14 does not follow va_start */
	vsnprintf(why, sizeof(why), format, args);
	va_end(args);
	snprintf(refusal, sizeof(refusal), "the driver's limit is not set: %s", why);
	order_answer(o, refusal);
}

static struct order *order_new(struct cgroups *c, enum order_step step, const char *session,
			       uint32_t owner)
{
	struct order *o = calloc(1, sizeof(*o));

	if (!o)
		return NULL;
	o->cgroups = c;
	o->driver = c->driver;
	o->step = step;
	o->asked_ns = now_monotonic_ns();
	snprintf(o->session, sizeof(o->session), "%s", session);
	turns_add(&c->waiting, &o->turn, owner);
	return o;
}

/* The sizes as they are now. */
static void order_sizes(struct order *o, const struct session *s)
{
	const struct pool *pool = o->cgroups->sessions->pool;

	o->gpu_count = o->all_count = 0;
	for (uint32_t i = 0; i < pool->count; i++)
		o->all_gpus[o->all_count++] = pool->gpu[i].info.index;
	for (uint32_t i = 0; s && i < s->record.gpu_count; i++) {
		if (s->pool_gpu[i] < 0 || s->record.gpu[i].instance[0])
			continue;
		o->gpu[o->gpu_count].index = pool->gpu[s->pool_gpu[i]].info.index;
		o->gpu[o->gpu_count++].bytes = s->record.gpu[i].bytes;
	}
}

/* Sizes that the driver has for the row's cgroup need not be set again. */
static void order_row(struct order *o, struct row *row)
{
	o->held = row->state == LIMIT_HELD && !row->stale ? row->number : 0;
	o->number = row->number;
	row->stale = false;
}

static void order_done(uv_work_t *work, int status);

static void order_step(struct order *o, enum order_step step)
{
	struct cgroups *c = o->cgroups;

	o->step = step;
	o->work.data = o;
	c->running = o;
	if (uv_queue_work(c->sessions->loop, &o->work, order_run, order_done) < 0)
		order_done(&o->work, -EIO);
}

static void order_begin(struct order *o)
{
	struct cgroups *c = o->cgroups;
	struct session *s = session_find(c->sessions, o->session);
	struct row *row = o->step == ORDER_KEEP ? row_find(c, o->path) : NULL;

	o->fixed = c->fixed;
	if (o->step == ORDER_KEEP)
		order_sizes(o, s);
	if (row)
		order_row(o, row);
	order_step(o, o->step);
}

static void orders_go_on(struct cgroups *c)
{
	while (!c->running && c->waiting.first && !c->stopping) {
		struct order *o = (struct order *)c->waiting.first;

		turns_remove(&c->waiting, &o->turn);
		turns_pass(&c->waiting, o->turn.user);
		if (o->step == ORDER_PROBE || usable(c)) {
			order_begin(o);
			continue;
		}
		/* There are no such limits here, as `carve check` says. */
		order_answer(o, NULL);
		free(o);
	}
}

static void row_keep(struct cgroups *c, struct row *row)
{
	struct order *o =
		row->kept ? NULL : order_new(c, ORDER_KEEP, row->record.session, row->owner);

	if (!o)
		return;
	row->kept = true;
	o->made = row->record.made;
	snprintf(o->path, sizeof(o->path), "%s", row->record.path);
	orders_go_on(c);
}

/* ---- the end of a step ----------------------------------------------------------------- */

static const char *why_text(int rc)
{
	switch (rc) {
	case -ESRCH:
		return "its process has ended";
	case -EROFS:
		return "carved sees cgroups read-only, and can make none for a command";
	case -EACCES:
	case -EPERM:
		return "no cgroup of its own may be made where it was started";
	case -EAGAIN:
		return "the cgroup that it was started in may have no more below it "
		       "(cgroup.max.descendants, cgroup.max.depth)";
	case -EBUSY:
	case -EOPNOTSUPP:
		return "the cgroup that it was started in can have none with processes below it";
	case -ENOENT:
		return "its process is in no cgroup of version 2 that carved sees";
	case -ENAMETOOLONG:
		return "the path of its cgroup is too long";
	default:
		return "the driver did not take it";
	}
}

/* Goes on without, as the documents say. */
static void unbound(struct session *s, const char *why)
{
	if (!s->unbound_why)
		log_event(LOG_INFO, "limit.front_only id=%s reason=\"%s\"", s->record.id, why);
	s->unbound_why = why;
}

/* The debt is on disk before anything is done. A session that is gone leaves its row to the next
 * one. NULL: it cannot be recorded. */
static struct row *row_record(struct cgroups *c, const struct order *o)
{
	struct store_limit record = {.made = o->made};
	struct row *row = row_find(c, o->path);

	snprintf(record.session, sizeof(record.session), "%s", o->session);
	snprintf(record.path, sizeof(record.path), "%s", o->path);
	if ((!row || !row_is_of(row, o->session)) &&
	    store_limit_put(c->sessions->store, &record) < 0)
		return NULL;
	if (!row)
		row = row_add(c, &record, o->turn.user);
	if (!row)
		return NULL;
	if (!row_is_of(row, o->session))
		row_move(row, LIMIT_EVENT_LAPSE);
	row->record = record;
	row->owner = o->turn.user;
	row_move(row, LIMIT_EVENT_RECORD);
	kill_point("limit.recorded");
	return row;
}

/* True: SET follows. */
static bool set_prepare(struct order *o, const struct session *s)
{
	struct cgroups *c = o->cgroups;
	bool known = row_find(c, o->path);

	if (!known && rows_of(c, o->session) >= SESSION_ROWS_MAX) {
		order_refuse(o, "session %s has %u cgroups with a limit already", o->session,
			     SESSION_ROWS_MAX);
		return false;
	}
	struct row *row = row_record(c, o);
	if (!row) {
		order_refuse(o, "it cannot be recorded");
		return false;
	}
	order_sizes(o, s);
	order_row(o, row);
	return true;
}

static bool is_of_others(const struct order *o)
{
	const struct row *row = row_find(o->cgroups, o->path);

	return row && !row_is_of(row, o->session) &&
	       session_find(o->cgroups->sessions, row->record.session);
}

/* A user may leave cgroups below the job's own, so that one carries the limit of a job's command.
 */
static void job_choose(struct order *o)
{
	char after = o->path[o->job_length];

	o->path[o->job_length] = '\0';
	o->job = !is_of_others(o);
	if (!o->job)
		o->path[o->job_length] = after;
}

/* Each returns whether `o` goes on with another step, which it has begun. */

static bool place_done(struct order *o, struct session *s)
{
	struct cgroups *c = o->cgroups;
	char name[STORE_ID_SIZE + 16];

	if (o->rc < 0) {
		order_refuse(o, "%s", why_text(o->rc));
		return false;
	}
	if (row_above(c, o)) {
		order_answer(o, NULL);
		return false;
	}
	if (o->job_length)
		job_choose(o);
	o->others = is_of_others(o);
	order_sizes(o, s);
	size_t used = strlen(o->path);
	/* A command beside others of the session has its cgroup by now. */
	size_t length = (size_t)order_leaf_name(o->session, name);
	if (o->asker == LEAF_COMMAND && !o->job && used + length + 1 < sizeof(o->path)) {
		snprintf(o->path + used, sizeof(o->path) - used, "/%s", name);
		const struct row *row = row_find(c, o->path);
		o->made = row && row->state == LIMIT_HELD && row_is_of(row, o->session);
		if (o->made && set_prepare(o, s)) {
			order_step(o, ORDER_SET);
			return true;
		}
		o->path[used] = '\0';
	}
	order_step(o, ORDER_LOOK);
	return true;
}

static bool look_done(struct order *o, struct session *s)
{
	if (o->rc < 0) {
		order_refuse(o, "%s", why_text(o->rc));
	} else if (o->choice == LEAF_REFUSED) {
		order_refuse(o, "%s", o->why);
	} else if (o->choice == LEAF_FRONT) {
		unbound(s, o->why);
		order_answer(o, NULL);
	} else if (set_prepare(o, s)) {
		order_step(o, ORDER_SET);
		return true;
	}
	return false;
}

/* A limit that others are bound by stays: it is held, or KEEP sets it again. */
static bool set_done(struct order *o, struct session *s)
{
	struct cgroups *c = o->cgroups;
	struct row *row = row_find(c, o->path);

	(void)s;
	if (o->rc == 0) {
		if (row->state != LIMIT_HELD)
			log_event(LOG_INFO, "limit.held id=%s cgroup=\"%s\"", o->session, o->path);
		row->number = o->number;
		row_move(row, LIMIT_EVENT_SET);
		order_answer(o, NULL);
	} else {
		if (o->rc != -ESRCH)
			log_event(LOG_WARNING, "limit.refused id=%s cgroup=\"%s\" error=\"%s\"",
				  o->session, o->path, strerrordesc_np(-o->rc));
		row_move(row, LIMIT_EVENT_LAPSE);
		order_refuse(o, "%s", why_text(o->rc));
	}
	if (row->state != LIMIT_HELD || row->stale)
		row_keep(c, row);
	return false;
}

static bool keep_done(struct order *o, struct session *s)
{
	struct cgroups *c = o->cgroups;
	struct row *row = row_find(c, o->path);

	row->kept = false;
	/* Without a session there are no sizes that could be set. */
	if (o->rc < 0) {
		row_move(row, LIMIT_EVENT_LAPSE);
	} else if (!o->cleared) {
		row->number = o->number;
		if (s)
			row_move(row, LIMIT_EVENT_SET);
		if (row->stale)
			row_keep(c, row);
	} else if (store_limit_remove(c->sessions->store, o->path) == 0) {
		log_event(LOG_INFO, "limit.cleared id=%s cgroup=\"%s\"", row->record.session,
			  o->path);
		row_move(row, LIMIT_EVENT_CLEAR);
		row_free(c, row);
	}
	return false;
}

static bool probe_done(struct order *o, struct session *s)
{
	struct cgroups *c = o->cgroups;

	(void)s;
	c->probed = true;
	c->fixed = o->fixed;
	if (o->rc == 0) {
		log_event(LOG_INFO, "limit.available");
		return false;
	}
	if (o->rc == -ENOTSUP) {
		limits_close(c->driver);
		c->driver = NULL;
		return false;
	}
	c->problem = o->rc == -EACCES || o->rc == -EPERM
			     ? "the driver lets root alone set limits of cgroups"
		     : o->rc == -ENOENT ? "there is no cgroup v2 here to set limits on"
					: "the driver does not answer what limits there are";
	log_event(LOG_WARNING, "limit.unavailable error=\"%s\"", strerrordesc_np(-o->rc));
	return false;
}

static bool step_done(struct order *o)
{
	static bool (*const done[])(struct order * o, struct session * s) = {
		[ORDER_PROBE] = probe_done, [ORDER_PLACE] = place_done, [ORDER_LOOK] = look_done,
		[ORDER_SET] = set_done,     [ORDER_KEEP] = keep_done,
	};
	struct session *s = session_find(o->cgroups->sessions, o->session);
	bool asks = o->step == ORDER_PLACE || o->step == ORDER_LOOK;

	if (asks && (!s || s->state != SESSION_ACTIVE)) {
		order_refuse(o, "session %s has ended", o->session);
		return false;
	}
	return done[o->step](o, s);
}

static void order_done(uv_work_t *work, int status)
{
	struct order *o = work->data;
	struct cgroups *c = o->cgroups;

	c->running = NULL;
	if (status < 0)
		o->rc = status;
	if (c->stopping) {
		free(o);
		return;
	}
	/* The daemon ends with its warden. Clients that wait here see that, and ask the next one.
	 */
	if (o->rc == -EPIPE) {
		free(o);
		return;
	}
	if (step_done(o))
		return;
	/* Nobody goes on whom no step has answered. */
	order_refuse(o, "%s", why_text(o->rc));
	free(o);
	orders_go_on(c);
}

/* ---- its life -------------------------------------------------------------------------- */

/* One of root's sessions may be a container's that is in nobody's hands: each has its own turns. */
static uint32_t turns_of(const struct session *s)
{
	uint64_t hash = fnv_add(FNV_BASIS, s->record.id, strlen(s->record.id));

	return s->record.uid ? s->record.uid : (uint32_t)hash | 1u << 31;
}

static int row_load(void *arg, const struct store_limit *record)
{
	struct cgroups *c = arg;
	const struct session *s = session_find(c->sessions, record->session);
	struct row *row = row_add(c, record, s ? turns_of(s) : NOBODY);

	if (!row)
		return -ENOMEM;
	row_move(row, LIMIT_EVENT_RECORD);
	return 0;
}

int cgroups_start(struct sessions *sessions, struct cgroups **ret)
{
	struct cgroups *c = calloc(1, sizeof(*c));
	const struct pool *pool = sessions->pool;
	const struct limits_asking asking = {privileges_call, sessions->privileges};
	bool asks = privileges_guarded(sessions->privileges);

	if (!c)
		return -ENOMEM;
	c->sessions = sessions;
	*ret = c;
	if (pool->gpus && limits_open(pool->gpus, asks ? &asking : NULL, &c->driver) < 0)
		c->driver = NULL;
	int rc = store_limits_each(sessions->store, row_load, c);
	if (rc == 0 && c->driver && !order_new(c, ORDER_PROBE, "", NOBODY))
		rc = -ENOMEM;
	if (rc == 0)
		orders_go_on(c);
	return rc;
}

void cgroups_stop(struct cgroups *c)
{
	if (!c)
		return;
	c->stopping = true;
	while (c->waiting.first) {
		struct order *o = (struct order *)c->waiting.first;

		turns_remove(&c->waiting, &o->turn);
		free(o);
	}
}

void cgroups_free(struct cgroups *c)
{
	if (!c)
		return;
	while (c->rows)
		row_free(c, c->rows);
	limits_close(c->driver);
	free(c);
}

static bool is_late(const struct order *o, uint64_t now)
{
	return o->cb && now - o->asked_ns > CGROUPS_PATIENCE_NS;
}

static void order_refuse_late(struct order *o)
{
	order_refuse(o, "the driver has not taken it within %u s",
		     (unsigned)(CGROUPS_PATIENCE_NS / 1000000000u));
}

/* The one under way goes on: its step cannot be ended, and what it does is in a row. */
static void orders_tick(struct cgroups *c)
{
	uint64_t now = now_monotonic_ns();
	struct turn *next;

	if (c->running && is_late(c->running, now))
		order_refuse_late(c->running);
	for (struct turn *turn = c->waiting.first; turn; turn = next) {
		struct order *o = (struct order *)turn;

		next = turn->next;
		if (!is_late(o, now))
			continue;
		turns_remove(&c->waiting, turn);
		order_refuse_late(o);
		free(o);
	}
}

void cgroups_tick(struct cgroups *c)
{
	if (!c)
		return;
	orders_tick(c);
	for (uint32_t i = 0; usable(c) && c->rows && i < TICK_ROWS_MAX; i++) {
		struct row *row = c->looked && c->looked->next ? c->looked->next : c->rows;

		c->looked = row;
		row_keep(c, row);
		if (!row->next)
			break;
	}
}

/* ---- sessions -------------------------------------------------------------------------- */

static bool has_slices(const struct session *s)
{
	for (uint32_t i = 0; i < s->record.gpu_count; i++)
		if (s->pool_gpu[i] >= 0 && !s->record.gpu[i].instance[0])
			return true;
	return false;
}

/* Returns how many orders of the owner wait, without those for the process: they are refused. */
static uint32_t orders_replace(struct cgroups *c, uint32_t owner, const char *session,
			       struct process_id process)
{
	uint32_t count = 0;
	struct turn *next;

	for (struct turn *turn = c->waiting.first; turn; turn = next) {
		struct order *o = (struct order *)turn;
		bool same =
			o->cb && process_same(o->process, process) && !strcmp(o->session, session);

		next = turn->next;
		count += turn->user == owner && !same;
		if (!same)
			continue;
		turns_remove(&c->waiting, turn);
		order_refuse(o, "its process has asked again");
		free(o);
	}
	return count;
}

int cgroups_bind(struct session *s, struct process_id process, enum leaf_asker asker, cgroups_cb cb,
		 void *context, uint64_t ticket)
{
	struct cgroups *c = of(s->sessions);

	if (!may_be_usable(c) || !has_slices(s))
		return 0;
	uint32_t owner = turns_of(s);
	if (orders_replace(c, owner, s->record.id, process) >= OWNER_ORDERS_MAX)
		return -EAGAIN;
	struct order *o = order_new(c, ORDER_PLACE, s->record.id, owner);
	if (!o)
		return -ENOMEM;
	o->process = o->roots[0] = process;
	o->root_count = 1;
	o->asker = asker;
	o->cb = cb;
	o->context = context;
	o->ticket = ticket;
	for (const struct holder *h = s->holders; h && o->root_count < ORDER_ROOTS_MAX; h = h->next)
		if (h->command)
			o->roots[o->root_count++] = h->process;
	orders_go_on(c);
	return 1;
}

const char *cgroups_bind_refusal(int error)
{
	return error == -EAGAIN ? "the driver's limit is not set: too many programs of this user "
				  "wait for theirs"
				: "the driver's limit is not set: carved is out of memory";
}

void cgroups_resized(const struct session *s)
{
	struct cgroups *c = of(s->sessions);

	for (struct row *row = usable(c) ? c->rows : NULL; row; row = row->next) {
		if (!row_is_of(row, s->record.id))
			continue;
		row->stale = true;
		row_keep(c, row);
	}
}

/* ---- figures that are shown ------------------------------------------------------------ */

bool cgroups_offer(const struct sessions *sessions, uint32_t gpu)
{
	return usable(of(sessions)) && !sessions->pool->gpu[gpu].info.mig;
}

const char *cgroups_problem(const struct sessions *sessions)
{
	const struct cgroups *c = of(sessions);

	return c && c->driver && c->problem ? c->problem : "";
}

const char *cgroups_gap(const struct sessions *sessions)
{
	const struct cgroups *c = of(sessions);

	return usable(c) && c->fixed ? LEAF_FIXED_TEXT : "";
}

uint32_t cgroups_held(const struct session *s)
{
	const struct cgroups *c = of(s->sessions);
	uint32_t count = 0;

	for (const struct row *row = c ? c->rows : NULL; row; row = row->next)
		count += row->state == LIMIT_HELD && row_is_of(row, s->record.id);
	return count;
}

const char *cgroups_why_not(const struct session *s)
{
	return s->unbound_why;
}
