/* A scrape, from the request to its text.
 *
 * Root, members of the group `carve` and of the group `metrics.readers` see all slices. Any other
 * user sees slices of own sessions, as in lists, and the sums of all GPUs. A scrape with
 * `?sessions=none` has no slice and no queue: carve-metrics asks so for readers that nobody knows.
 *
 * A scrape is work whose size users decide, as each session adds to it. So it is done in parts of
 * FAIR_STEP_NS in its user's turn. First the slices are collected, some buckets of the table of
 * sessions at a time. A session that begins or ends between two parts is in the scrape or not, and
 * no other session is counted twice or missed. Then the families are written one after another.
 *
 * The driver's figures are as old as the last sample. While nobody is in a slice no samples are
 * taken, so a scrape has one taken. It does not wait for a driver that hangs. */
#include "daemon/api/api_metrics.h"

#include <http_parser.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/macros.h"
#include "daemon/api/answer.h"
#include "daemon/api/fresh.h"
#include "daemon/api/http.h"
#include "daemon/api/metrics_view.h"
#include "daemon/host/bounded_root.h"
#include "daemon/host/owner.h"
#include "daemon/metrics/gpu_time.h"
#include "daemon/metrics/slices.h"
#include "daemon/metrics/text.h"
#include "daemon/node.h"

/* Buckets of the table of sessions that are looked at between two looks at the clock. */
#define BUCKETS_AT_ONCE 64u
/* Figures that are older are read anew for a scrape. */
#define FIGURES_OLD_NS 2000000000ull

enum scrape_whose { WHOSE_NONE, WHOSE_OWN, WHOSE_ALL };

struct scrape {
	struct scrape *next; /* scrapes */
	struct call *call;
	enum scrape_whose whose;
	struct fair_work turn;
	bool deferred;
	uid_t user;  /* the turn is this user's */
	uid_t owner; /* to whom it counts in the budget of scrapes */
	unsigned bucket, family;
	struct metrics_slices slices;
	struct metrics_text text;
	uint64_t spent_ns;
};

static struct scrape *scrapes; /* those that are under way */

static void scrape_free(struct scrape *s)
{
	struct scrape **at = &scrapes;

	while (*at && *at != s)
		at = &(*at)->next;
	if (*at)
		*at = s->next;
	fair_withdraw(&s->turn);
	budget_leave(&s->call->node->health.under_way, s->owner);
	metrics_slices_free(&s->slices);
	metrics_text_free(&s->text);
	free(s);
}

static void on_gone(struct call *call)
{
	struct scrape *s = scrapes;

	while (s && s->call != call)
		s = s->next;
	if (s)
		scrape_free(s);
}

/* ---- parts ------------------------------------------------------------------------------- */

static bool slices_collect(struct scrape *s)
{
	const struct sessions *sessions = &s->call->node->sessions;
	unsigned end = s->bucket + BUCKETS_AT_ONCE;

	for (; s->bucket < end && s->bucket < SESSIONS_BUCKETS; s->bucket++)
		for (const struct session *one = sessions->by_id[s->bucket]; one;
		     one = one->next_id)
			if ((s->whose == WHOSE_ALL || one->record.uid == s->call->peer.uid) &&
			    !metrics_slices_add(&s->slices, one))
				return false;
	return true;
}

static void slice_counts_write(struct scrape *s)
{
	static const struct metrics_family shown = {"carve_slices", "Slices in this scrape.",
						    METRICS_PLAIN, false};
	static const struct metrics_family left_out = {
		"carve_slices_omitted",
		"Slices that are left out of this scrape, as there are too many.", METRICS_PLAIN,
		false};

	metrics_single(&s->text, &shown, s->slices.count);
	metrics_single(&s->text, &left_out, s->slices.left_out);
}

static bool is_collected(const struct scrape *s)
{
	return s->whose == WHOSE_NONE || s->bucket == SESSIONS_BUCKETS;
}

/* Does one part. Returns whether there are more; *failed: there is no memory. */
static bool part_do(struct scrape *s, bool *failed)
{
	const struct node *node = s->call->node;

	if (!is_collected(s)) {
		*failed = !slices_collect(s);
		return true;
	}
	if (s->whose != WHOSE_NONE && s->family < SLICE_FAMILIES) {
		metrics_slices_write(&s->slices, s->family++, &s->text);
		*failed = s->text.failed;
		return true;
	}
	if (s->whose != WHOSE_NONE) {
		slice_counts_write(s);
		metrics_view_queues(node, &s->text);
	}
	metrics_view_gpus(node, &s->text);
	metrics_view_daemon(node, &s->text);
	*failed = s->text.failed;
	return false;
}

static void scrape_end(struct scrape *s, bool failed)
{
	struct call *call = s->call;
	struct metrics_health *health = &call->node->health;
	char *text = failed ? NULL : steal_ptr(&s->text.data);

	health->scrapes++;
	health->scrape_ns += s->spent_ns;
	scrape_free(s);
	call_reply_as(call, HTTP_STATUS_OK, &(struct call_form){METRICS_CONTENT_TYPE, ""}, text);
}

/* Goes on with it for FAIR_STEP_NS. */
static void scrape_go_on(struct scrape *s)
{
	struct fair *turns = &s->call->node->turns;
	uint64_t began = now_monotonic_ns(), passed = 0;
	bool failed = false, more = true;

	while (more && !failed) {
		more = part_do(s, &failed);
		passed = now_monotonic_ns() - began;
		if (more && !failed && passed > FAIR_STEP_NS &&
		    fair_line_up(turns, s->user, &s->turn)) {
			s->spent_ns += passed;
			if (!s->deferred)
				call_defer(s->call, on_gone);
			s->deferred = true;
			return;
		}
	}
	s->spent_ns += passed;
	scrape_end(s, failed);
}

static void on_turn(struct fair_work *turn)
{
	scrape_go_on(CONTAINER_OF(turn, struct scrape, turn));
}

/* ---- the request ------------------------------------------------------------------------- */

static bool is_reader(const struct node *node, const struct peer *peer)
{
	gid_t readers = node->health.readers;

	/* Root of a container can be given any group there. */
	return readers != (gid_t)-1 && !uid_is_bounded_root(peer->uid) && peer->uid != 0 &&
	       (peer->gid == readers || groups_have(&peer->groups, readers));
}

static enum scrape_whose whose(struct call *call)
{
	const char *sessions = call_argument(call, "sessions");

	if (sessions && !strcmp(sessions, "none"))
		return WHOSE_NONE;
	return call->peer.admin || is_reader(call->node, &call->peer) ? WHOSE_ALL : WHOSE_OWN;
}

static void scrape_begin(struct call *call, void *unused)
{
	struct budget *under_way = &call->node->health.under_way;
	struct scrape *s = calloc(1, sizeof(*s));

	gpu_time_want(call->node->gpu_time);
	if (s && !budget_enter(under_way, call->peer.uid, &s->owner)) {
		free(s);
		call->node->health.refused++;
		answer_failed(call, HTTP_STATUS_TOO_MANY_REQUESTS, EXIT_CODE_FAILED,
			      "you have too many scrapes of /metrics under way");
		return;
	}
	if (!s) {
		call_reply(call, HTTP_STATUS_INTERNAL_SERVER_ERROR, NULL);
		return;
	}
	s->call = call;
	s->user = owner_of(call->peer.uid);
	s->whose = whose(call);
	s->turn.run = on_turn;
	metrics_slices_begin(&s->slices);
	s->next = scrapes;
	scrapes = s;
	scrape_go_on(s);
}

void api_get_metrics(struct call *call, const char *id)
{
	const struct pool *pool = &call->node->pool;
	const char *sessions = call_argument(call, "sessions");
	uint64_t now = now_monotonic_ns();

	if (sessions && strcmp(sessions, "none") != 0) {
		answer_failed(call, HTTP_STATUS_BAD_REQUEST, EXIT_CODE_USAGE,
			      "sessions: '%.32s' is no choice; there is 'none'", sessions);
		return;
	}
	bool hangs = pool->running && now - pool->started_ns > FIGURES_OLD_NS;
	if (pool->state != POOL_READY || !call->node->ready ||
	    now - pool->done_ns < FIGURES_OLD_NS || hangs)
		scrape_begin(call, NULL);
	else
		fresh_defer(call, scrape_begin, NULL);
}

int api_metrics_start(struct node *node, struct error *err)
{
	budget_begin_any(&node->health.under_way, METRICS_SCRAPES_MAX);
	return 0;
}

void api_metrics_stop(struct node *node)
{
	budget_free(&node->health.under_way);
}
