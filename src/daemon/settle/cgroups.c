#include "daemon/settle/cgroups.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <uv.h>

#include "backend/cgroup_limits.h"
#include "backend/cgroup_look.h"
#include "base/cgroup.h"
#include "base/kill_point.h"
#include "core/leaf.h"
#include "daemon/gpu/pool.h"
#include "daemon/host/log.h"
#include "daemon/host/privileges.h"
#include "daemon/session/session.h"
#include "daemon/session/sessions.h"
#include "daemon/store/store.h"

/* In a cgroup with more processes nobody looks whose each of them is. */
#define LEAF_PROCESSES_MAX 256u
#define HOLDERS_MAX 64u

/* A cgroup that carries a limit of carve's, or may. */
struct row {
	struct row *next;
	struct store_limit record;
	enum limit_state state;
	bool ordered; /* an order about it is under way, or waits */
};

enum order_kind {
	ORDER_PROBE, /* whether there are such limits here */
	ORDER_LOOK,  /* where the process is, and what the cgroup is */
	ORDER_SET,   /* the limits follow; or a daemon before this one began to set them */
	ORDER_CLEAR,
};

struct order {
	struct order *next;
	uv_work_t work;
	struct cgroups *cgroups;
	enum order_kind kind;
	char session[STORE_ID_SIZE];
	struct process_id process; /* LOOK, SET: pid 0: none is to be moved */
	struct process_id holders[HOLDERS_MAX];
	uint32_t holder_count;
	bool movable, inside; /* it is in `path` already */
	char path[LIMITS_PATH_SIZE];
	bool made;
	struct {
		uint32_t index;
		uint64_t bytes;
	} gpu[GPUS_MAX];
	uint32_t gpu_count;
	const char *why; /* LOOK: there is no such cgroup */
	int rc;
	cgroups_cb cb;
	void *context;
	uint64_t number;
};

struct cgroups {
	struct sessions *sessions;
	struct limits *driver; /* NULL: it has no such limits */
	struct row *rows;
	struct order *first, *running;
	const char *problem; /* why none are set, though the driver has them; NULL: they are */
	bool probed, stopping;
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

/* ---- rows -------------------------------------------------------------------------------- */

static struct row *row_find(const struct cgroups *c, const char *path)
{
	struct row *row = c->rows;

	while (row && strcmp(row->record.path, path) != 0)
		row = row->next;
	return row;
}

static struct row *row_add(struct cgroups *c, const struct store_limit *record)
{
	struct row *row = calloc(1, sizeof(*row));

	if (!row)
		return NULL;
	row->record = *record;
	row->state = LIMIT_NONE;
	row->next = c->rows;
	c->rows = row;
	return row;
}

static void row_free(struct cgroups *c, struct row *row)
{
	struct row **at = &c->rows;

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

/* ---- on the thread pool ------------------------------------------------------------------ */

/* Whether somebody is in the cgroup who is not the session's. */
static bool is_alone(const struct order *o, const char *path)
{
	pid_t list[LEAF_PROCESSES_MAX];
	size_t count;
	struct process_id id;

	if (cgroup_processes(path, list, LEAF_PROCESSES_MAX, &count) < 0)
		return false;
	for (size_t i = 0; i < count; i++) {
		/* One that is gone is nobody; one of another PID namespace is not known. */
		if (!list[i])
			return false;
		if (process_identify(list[i], &id) < 0)
			continue;
		bool own = process_descends_from(id, o->process);
		for (uint32_t h = 0; h < o->holder_count && !own; h++)
			own = process_descends_from(id, o->holders[h]);
		if (!own)
			return false;
	}
	return true;
}

/* Whether it carries a limit other than the session's. */
static bool is_limited(const struct order *o, const char *path)
{
	uint64_t bytes;

	for (uint32_t i = 0; i < o->gpu_count; i++)
		if (limits_get(o->cgroups->driver, o->gpu[i].index, path, &bytes) == 0 &&
		    bytes != LIMIT_NO_BYTES && bytes != o->gpu[i].bytes)
			return true;
	return false;
}

static int leaf_name(const char *session, char ret[static STORE_ID_SIZE + 16])
{
	return snprintf(ret, STORE_ID_SIZE + 16, "carve-%s", session);
}

static void order_look(struct order *o)
{
	char root[LIMITS_PATH_SIZE], name[STORE_ID_SIZE + 16], path[LIMITS_PATH_SIZE];

	o->rc = cgroup_mount(root, sizeof(root));
	if (o->rc == 0)
		o->rc = cgroup_of_process(o->process, path);
	if (o->rc < 0)
		return;
	int length = leaf_name(o->session, name);
	const char *last = strrchr(path, '/');
	struct leaf_facts facts = {
		.root = !strcmp(path, root),
		.made = !strcmp(last + 1, name),
		.movable = o->movable,
	};
	facts.alone = !facts.root && !facts.made && is_alone(o, path);
	facts.others = facts.alone && is_limited(o, path);
	enum leaf_choice choice = leaf_choose(&facts, &o->why);
	o->made = choice == LEAF_MADE || facts.made;
	o->inside = choice == LEAF_TAKEN;
	size_t used = strlen(path);
	if (choice == LEAF_MADE && used + (size_t)length + 1 < sizeof(path))
		snprintf(path + used, sizeof(path) - used, "/%s", name);
	memcpy(o->path, path, strlen(path) + 1);
}

static int gpus_put(const struct order *o, bool clear)
{
	int rc = 0;

	for (uint32_t i = 0; i < o->gpu_count && rc == 0; i++) {
		rc = limits_put(o->cgroups->driver, o->gpu[i].index, o->path,
				clear ? LIMIT_NO_BYTES : o->gpu[i].bytes);
		/* With the cgroup its limits went; a GPU in MIG mode has none. */
		if (clear && (rc == -ENOENT || rc == -ENOTSUP))
			rc = 0;
	}
	return rc;
}

static void order_set(struct order *o)
{
	o->rc = o->made && o->process.pid ? limits_enter(o->cgroups->driver, o->process, o->path)
					  : 0;
	kill_point("limit.entered");
	if (o->rc == 0)
		o->rc = gpus_put(o, false);
	kill_point("limit.set");
}

static void order_clear(struct order *o)
{
	o->rc = gpus_put(o, true);
	kill_point("limit.cleared");
	if (o->rc == 0 && o->made)
		o->rc = limits_leave(o->cgroups->driver, o->path);
	kill_point("limit.left");
}

static void order_run(uv_work_t *work)
{
	struct order *o = work->data;

	switch (o->kind) {
	case ORDER_PROBE:
		o->rc = limits_probe(o->cgroups->driver);
		break;
	case ORDER_LOOK:
		order_look(o);
		break;
	case ORDER_SET:
		order_set(o);
		break;
	case ORDER_CLEAR:
		order_clear(o);
		break;
	}
}

/* ---- orders ------------------------------------------------------------------------------ */

static void order_done(uv_work_t *work, int status);

static void order_finish(struct order *o)
{
	if (o->cb)
		o->cb(o->context, o->number);
	free(o);
}

static void orders_go_on(struct cgroups *c)
{
	while (!c->running && c->first && !c->stopping) {
		struct order *o = c->first;

		c->first = o->next;
		if (o->kind != ORDER_PROBE && !usable(c)) {
			order_finish(o);
			continue;
		}
		c->running = o;
		o->work.data = o;
		if (uv_queue_work(c->sessions->loop, &o->work, order_run, order_done) < 0)
			order_done(&o->work, -EIO);
	}
}

static struct order *order_new(struct cgroups *c, enum order_kind kind, const char *session)
{
	struct order *o = calloc(1, sizeof(*o)), **at = &c->first;

	if (!o)
		return NULL;
	o->cgroups = c;
	o->kind = kind;
	snprintf(o->session, sizeof(o->session), "%s", session);
	while (*at)
		at = &(*at)->next;
	*at = o;
	return o;
}

static void gpus_of_session(struct order *o, const struct session *s)
{
	for (uint32_t i = 0; i < s->record.gpu_count; i++) {
		if (s->pool_gpu[i] < 0 || s->record.gpu[i].instance[0])
			continue;
		o->gpu[o->gpu_count].index = s->sessions->pool->gpu[s->pool_gpu[i]].info.index;
		o->gpu[o->gpu_count++].bytes = s->record.gpu[i].bytes;
	}
}

static void row_order(struct cgroups *c, struct row *row, enum order_kind kind)
{
	const struct session *s = session_find(c->sessions, row->record.session);
	struct order *o = row->ordered ? NULL : order_new(c, kind, row->record.session);

	if (!o)
		return;
	row->ordered = true;
	o->made = row->record.made;
	snprintf(o->path, sizeof(o->path), "%s", row->record.path);
	if (kind == ORDER_SET && s)
		gpus_of_session(o, s);
	for (uint32_t i = 0; kind == ORDER_CLEAR && i < c->sessions->pool->count; i++)
		o->gpu[o->gpu_count++].index = c->sessions->pool->gpu[i].info.index;
	if (kind == ORDER_CLEAR)
		row_move(row, LIMIT_EVENT_LEAVE);
	orders_go_on(c);
}

static const char *why_text(int rc)
{
	switch (rc) {
	case -EROFS:
		return "carved sees cgroups read-only (ProtectControlGroups=yes in its unit) and "
		       "can make none for a command";
	case -EACCES:
	case -EPERM:
		return "no cgroup of its own may be made where it was started";
	case -EBUSY:
		return "the cgroup that it was started in can have none below it";
	case -ENOENT:
		return "its process is in no cgroup of version 2 that carved sees";
	default:
		return "the driver did not take the limit";
	}
}

static void unbound(struct session *s, const char *why)
{
	if (!s)
		return;
	if (!s->unbound_why)
		log_event(LOG_INFO, "limit.front_only id=%s reason=\"%s\"", s->record.id, why);
	s->unbound_why = why;
}

/* The debt is on disk before anything is done. */
static struct row *row_record(struct cgroups *c, const struct order *o)
{
	struct store_limit record = {.made = o->made};
	struct row *row = row_find(c, o->path);

	snprintf(record.session, sizeof(record.session), "%s", o->session);
	snprintf(record.path, sizeof(record.path), "%s", o->path);
	if (!row && store_limit_put(c->sessions->store, &record) == 0)
		row = row_add(c, &record);
	if (row)
		row_move(row, LIMIT_EVENT_RECORD);
	kill_point("limit.recorded");
	return row;
}

/* True: the order goes on. */
static bool look_done(struct order *o, struct session *s)
{
	struct cgroups *c = o->cgroups;
	struct row *row = row_find(c, o->path);

	if (o->rc == -ESRCH || !s)
		return false;
	if (o->rc < 0 || o->why) {
		unbound(s, o->why ? o->why : why_text(o->rc));
		return false;
	}
	if (row && strcmp(row->record.session, o->session) != 0) {
		unbound(s, "its process is in a cgroup of another session");
		return false;
	}
	if (row && row->state == LIMIT_HELD && o->inside)
		return false;
	row = row_record(c, o);
	if (!row) {
		unbound(s, "its limit cannot be recorded");
		return false;
	}
	row->ordered = true;
	o->kind = ORDER_SET;
	return true;
}

static void set_done(struct order *o, struct session *s)
{
	struct cgroups *c = o->cgroups;
	struct row *row = row_find(c, o->path);

	if (!row)
		return;
	row->ordered = false;
	if (o->rc == 0) {
		if (row->state != LIMIT_HELD)
			log_event(LOG_INFO, "limit.held id=%s cgroup=\"%s\"", o->session, o->path);
		row_move(row, LIMIT_EVENT_SET);
		return;
	}
	log_event(LOG_WARNING, "limit.refused id=%s cgroup=\"%s\" error=\"%s\"", o->session,
		  o->path, strerrordesc_np(-o->rc));
	unbound(s, why_text(o->rc));
	row_order(c, row, ORDER_CLEAR);
}

static void clear_done(struct order *o)
{
	struct cgroups *c = o->cgroups;
	struct row *row = row_find(c, o->path);

	if (!row)
		return;
	row->ordered = false;
	/* Somebody is still in it: the tick tries again. */
	if (o->rc < 0)
		return;
	if (store_limit_remove(c->sessions->store, o->path) < 0)
		return;
	log_event(LOG_INFO, "limit.cleared id=%s cgroup=\"%s\"", o->session, o->path);
	row_move(row, LIMIT_EVENT_CLEAR);
	row_free(c, row);
}

static void probe_done(const struct order *o)
{
	struct cgroups *c = o->cgroups;

	c->probed = true;
	if (o->rc == 0) {
		log_event(LOG_INFO, "limit.available");
		return;
	}
	if (o->rc == -ENOTSUP) {
		limits_close(c->driver);
		c->driver = NULL;
		return;
	}
	c->problem = o->rc == -EACCES || o->rc == -EPERM
			     ? "the driver lets root alone set limits of cgroups"
		     : o->rc == -ENOENT ? "there is no cgroup v2 here to set limits on"
					: "the driver does not answer what limits there are";
	log_event(LOG_WARNING, "limit.unavailable error=\"%s\"", strerrordesc_np(-o->rc));
}

static void order_done(uv_work_t *work, int status)
{
	struct order *o = work->data;
	struct cgroups *c = o->cgroups;
	struct session *s = c->stopping ? NULL : session_find(c->sessions, o->session);

	c->running = NULL;
	if (status < 0)
		o->rc = status;
	if (c->stopping) {
		free(o);
		return;
	}
	if (o->kind == ORDER_LOOK && look_done(o, s)) {
		/* Nothing comes between what was seen and what follows from it. */
		o->next = c->first;
		c->first = o;
		orders_go_on(c);
		return;
	}
	if (o->kind == ORDER_PROBE)
		probe_done(o);
	else if (o->kind == ORDER_SET)
		set_done(o, s);
	else if (o->kind == ORDER_CLEAR)
		clear_done(o);
	order_finish(o);
	orders_go_on(c);
}

/* ---- its life ---------------------------------------------------------------------------- */

static int row_load(void *arg, const struct store_limit *record)
{
	struct cgroups *c = arg;
	struct row *row = row_add(c, record);

	if (!row)
		return -ENOMEM;
	row_move(row, LIMIT_EVENT_RECORD);
	return 0;
}

int cgroups_start(struct sessions *sessions, struct cgroups **ret)
{
	struct cgroups *c = calloc(1, sizeof(*c));
	const struct pool *pool = sessions->pool;
	int link_fd = sessions->privileges->limits_fd;

	if (!c)
		return -ENOMEM;
	c->sessions = sessions;
	*ret = c;
	if (pool->gpus && limits_open_link(pool->gpus, link_fd, &c->driver) < 0)
		c->driver = NULL;
	int rc = store_limits_each(sessions->store, row_load, c);
	if (c->driver && order_new(c, ORDER_PROBE, ""))
		orders_go_on(c);
	return rc;
}

void cgroups_stop(struct cgroups *c)
{
	if (!c)
		return;
	c->stopping = true;
	while (c->first) {
		struct order *o = c->first;

		c->first = o->next;
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

bool cgroups_are_quiet(const struct cgroups *c)
{
	return !c || (!c->running && !c->first);
}

static void row_tick(struct cgroups *c, struct row *row)
{
	const struct session *s = session_find(c->sessions, row->record.session);
	bool over = !s || row->state == LIMIT_GOING || cgroup_is_empty(row->record.path);

	if (over)
		row_order(c, row, ORDER_CLEAR);
	else if (row->state == LIMIT_RECORDED)
		row_order(c, row, ORDER_SET);
}

void cgroups_tick(struct cgroups *c)
{
	if (!usable(c))
		return;
	for (struct row *row = c->rows, *next; row; row = next) {
		next = row->next;
		if (!row->ordered)
			row_tick(c, row);
	}
}

/* ---- sessions ---------------------------------------------------------------------------- */

static bool has_slices(const struct session *s)
{
	for (uint32_t i = 0; i < s->record.gpu_count; i++)
		if (s->pool_gpu[i] >= 0 && !s->record.gpu[i].instance[0])
			return true;
	return false;
}

bool cgroups_bind(struct session *s, struct process_id process, bool movable, cgroups_cb cb,
		  void *context, uint64_t number)
{
	struct cgroups *c = of(s->sessions);
	struct order *o =
		may_be_usable(c) && has_slices(s) ? order_new(c, ORDER_LOOK, s->record.id) : NULL;

	if (!o)
		return false;
	o->process = process;
	o->movable = movable;
	o->cb = cb;
	o->context = context;
	o->number = number;
	gpus_of_session(o, s);
	for (const struct holder *h = s->holders; h && o->holder_count < HOLDERS_MAX; h = h->next)
		if (h->command)
			o->holders[o->holder_count++] = h->process;
	orders_go_on(c);
	return true;
}

void cgroups_resized(const struct session *s)
{
	struct cgroups *c = of(s->sessions);

	for (struct row *row = usable(c) ? c->rows : NULL; row; row = row->next)
		if (!strcmp(row->record.session, s->record.id) && row->state != LIMIT_GOING)
			row_order(c, row, ORDER_SET);
}

void cgroups_ended(const struct session *s)
{
	struct cgroups *c = of(s->sessions);

	for (struct row *row = usable(c) ? c->rows : NULL; row; row = row->next)
		if (!strcmp(row->record.session, s->record.id) && row->state != LIMIT_NONE)
			row_order(c, row, ORDER_CLEAR);
}

/* ---- figures that are shown -------------------------------------------------------------- */

bool cgroups_offer(const struct sessions *sessions, uint32_t gpu)
{
	return usable(of(sessions)) && !sessions->pool->gpu[gpu].info.mig;
}

const char *cgroups_problem(const struct sessions *sessions)
{
	const struct cgroups *c = of(sessions);

	return c && c->driver && c->problem ? c->problem : "";
}

uint32_t cgroups_held(const struct session *s)
{
	const struct cgroups *c = of(s->sessions);
	uint32_t count = 0;

	for (const struct row *row = c ? c->rows : NULL; row; row = row->next)
		count += row->state == LIMIT_HELD && !strcmp(row->record.session, s->record.id);
	return count;
}

const char *cgroups_why_not(const struct session *s)
{
	return s->unbound_why;
}
