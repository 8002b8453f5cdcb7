#include "daemon/settle/orphans.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/macros.h"
#include "daemon/gpu/pool.h"
#include "daemon/host/log.h"
#include "daemon/session/session.h"
#include "daemon/settle/descriptors.h"
#include "daemon/settle/settling.h"
#include "daemon/store/store.h"
#include "proto/mark.h"

/* How long after an exporter gave memory up others' figures may rise by it. */
#define GIVEN_NS 3000000000ull

struct exporter {
	struct exporter *next;
	struct store_exporter now, stored;
	uint32_t mark;  /* mark_session() */
	int gpu;        /* its position in the pool; -1: it is gone */
	bool is_stored; /* the database has it, as `stored` says */
};

static struct exporter *find(const struct settling *settling, const char *id, uint32_t position)
{
	struct exporter *e = settling->orphans.exporters;

	while (e && (e->now.position != position || strcmp(e->now.session, id) != 0))
		e = e->next;
	return e;
}

static struct exporter *add(struct settling *settling, const struct store_exporter *record)
{
	struct exporter *e = calloc(1, sizeof(*e));

	if (!e)
		return NULL;
	e->now = *record;
	e->mark = mark_session(record->session);
	e->gpu = pool_find(settling->pool, record->uuid_text);
	e->next = settling->orphans.exporters;
	settling->orphans.exporters = e;
	return e;
}

/* The exporter of a session, made if need be. NULL: no memory. */
static struct exporter *exporter_of(const struct session *s, uint32_t position)
{
	struct exporter *e = find(s->sessions->settling, s->record.id, position);
	struct store_exporter record = {.position = position};

	if (e)
		return e;
	memcpy(record.session, s->record.id, sizeof(record.session));
	memcpy(record.uuid_text, s->record.gpu[position].uuid_text, sizeof(record.uuid_text));
	record.slice = s->record.gpu[position].bytes;
	return add(s->sessions->settling, &record);
}

/* Memory given up long ago others had soon afterwards, or not at all. */
static void given_expire(struct orphans *o, uint64_t now)
{
	if (now - o->given_ns <= GIVEN_NS || o->read)
		return;
	for (struct exporter *e = o->exporters; e; e = e->next)
		e->now.given = 0;
}

static void give(struct orphans *o, struct exporter *e, uint64_t bytes)
{
	uint64_t now = now_monotonic_ns();

	given_expire(o, now);
	e->now.given = MIN(e->now.given + bytes, e->now.slice);
	o->given_ns = now;
}

void orphans_give(struct session *s, uint32_t position, uint64_t bytes)
{
	struct exporter *e = bytes ? exporter_of(s, position) : NULL;

	if (!e)
		return;
	bytes = MIN(bytes, e->now.slice);
	e->now.remains = MIN(e->now.remains + bytes, e->now.slice);
	give(&s->sessions->settling->orphans, e, bytes);
}

uint64_t orphans_of_others(const struct session *s)
{
	const struct orphans *o = &s->sessions->settling->orphans;
	uint64_t sum = 0;

	if (!o->exporters || now_monotonic_ns() - o->given_ns > GIVEN_NS)
		return 0;
	for (const struct exporter *e = o->exporters; e; e = e->next)
		if (strcmp(e->now.session, s->record.id) != 0)
			sum += e->now.given;
	return sum;
}

uint64_t orphans_remain(const struct settling *settling, const char *id, uint32_t position)
{
	const struct exporter *e = find(settling, id, position);

	return e ? e->now.remains : 0;
}

bool orphans_have_mark(const struct settling *settling, uint32_t mark)
{
	const struct exporter *e = settling->orphans.exporters;

	while (e && e->mark != mark)
		e = e->next;
	return e;
}

/* ---- memory that descriptors keep -------------------------------------------------------- */

static bool is_sampled(const struct settling *settling, int gpu)
{
	return gpu >= 0 && settling->pool->mask >> gpu & 1 &&
	       !settling->pool->gpu[gpu].sample.error;
}

/* Its session lives, and may have another slice by now; NULL: it has ended. */
static void follow(struct exporter *e, const struct session *s)
{
	e->now.exports = s && s->exported;
	if (s && e->now.position < s->record.gpu_count)
		e->now.slice = s->record.gpu[e->now.position].bytes;
}

/* Nobody has the memory that descriptors keep. For all exporters together it is what the driver
 * holds for nobody (*unlisted). So a process that imports some, and has the descriptor open still,
 * is seen. Memory that is kept no more, somebody may have. */
static void keep(struct settling *settling, struct exporter *e, uint64_t *unlisted)
{
	uint64_t marked = descriptors_marked(settling, e->now.session, e->now.position);
	uint64_t kept = MIN(MIN(marked, e->now.remains), *unlisted);

	*unlisted -= kept;
	if (kept < e->now.kept)
		give(&settling->orphans, e, e->now.kept - kept);
	else
		e->now.given -= MIN(e->now.given, kept - e->now.kept);
	e->now.kept = kept;
	if (!descriptors_open(settling, e->now.session, e->now.position))
		e->now.remains = 0;
}

static bool is_empty(const struct exporter *e)
{
	return !e->now.exports && !e->now.given && !e->now.remains && !e->now.kept;
}

static void drop_empty(struct settling *settling)
{
	for (struct exporter **at = &settling->orphans.exporters, *e; (e = *at);) {
		if (!is_empty(e) ||
		    (e->is_stored &&
		     store_exporter_remove(settling->sessions->store, &e->now) < 0)) {
			at = &e->next;
			continue;
		}
		*at = e->next;
		free(e);
	}
}

void orphans_sampled(struct settling *settling)
{
	struct orphans *o = &settling->orphans;
	uint64_t now = now_monotonic_ns(), unlisted[GPUS_MAX];

	if (o->read)
		o->given_ns = now;
	o->read = false;
	given_expire(o, now);
	for (uint32_t i = 0; o->exporters && i < settling->pool->count; i++)
		unlisted[i] = descriptors_unlisted(settling, (int)i);
	for (struct exporter *e = o->exporters; e; e = e->next) {
		follow(e, session_find(settling->sessions, e->now.session));
		if (is_sampled(settling, e->gpu))
			keep(settling, e, &unlisted[e->gpu]);
	}
	drop_empty(settling);
}

/* ---- over the daemon's end --------------------------------------------------------------- */

static bool is_as_stored(const struct exporter *e)
{
	return e->is_stored && e->now.slice == e->stored.slice &&
	       e->now.remains == e->stored.remains && e->now.kept == e->stored.kept &&
	       e->now.given == e->stored.given && e->now.exports == e->stored.exports;
}

/* Those that have exported something, before anything of it is given up: the daemon may not see
 * that. */
static void begin_all(const struct settling *settling)
{
	for (const struct session *s = settling->sessions->attached; s; s = s->next_attached)
		for (uint32_t i = 0; s->exported && i < s->record.gpu_count; i++) {
			struct exporter *e = exporter_of(s, i);

			if (e)
				follow(e, s);
		}
}

/* A record that could not be written is tried again with the next sample. */
void orphans_store(struct settling *settling)
{
	struct orphans *o = &settling->orphans;
	int rc = 0;

	begin_all(settling);
	for (struct exporter *e = o->exporters; e && rc == 0; e = e->next) {
		if (is_as_stored(e))
			continue;
		rc = store_exporter_put(settling->sessions->store, &e->now);
		if (rc < 0)
			break;
		e->stored = e->now;
		e->is_stored = true;
	}
	if (rc < 0 && !o->store_failing)
		log_event(LOG_WARNING, "store.failed error=\"%s\"", strerrordesc_np(-rc));
	o->store_failing = rc < 0;
}

static int load_one(void *arg, const struct store_exporter *record)
{
	struct exporter *e = add(arg, record);

	if (!e)
		return -ENOMEM;
	e->stored = *record;
	e->is_stored = true;
	return 0;
}

int orphans_load(struct settling *settling)
{
	settling->orphans.read = true;
	return store_exporters_each(settling->sessions->store, load_one, settling);
}

void orphans_resume(struct settling *settling)
{
	for (struct exporter *e = settling->orphans.exporters; e; e = e->next) {
		struct session *s =
			e->now.exports ? session_find(settling->sessions, e->now.session) : NULL;

		/* If its ledger is there, the ledger says it. */
		if (s && session_ledger(s) == SESSION_LEDGER_NONE)
			orphans_give(s, e->now.position, e->now.slice);
	}
}

void orphans_free(struct settling *settling)
{
	while (settling->orphans.exporters) {
		struct exporter *e = settling->orphans.exporters;

		settling->orphans.exporters = e->next;
		free(e);
	}
}
