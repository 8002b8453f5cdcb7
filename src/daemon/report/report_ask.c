#include "daemon/report/report_ask.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/macros.h"
#include "daemon/report/report.h"

/* In the line -> read -> named on the loop -> its text is made -> answered. */
struct report_ask {
	struct report_ask *next;
	struct report *report; /* NULL: the daemon stops */
	report_ask_cb cb;      /* NULL: nobody waits for it any more */
	void *arg;
	uid_t owner;      /* to whom it counts (budget.h) */
	uint64_t walk;    /* the walk over living sessions that has to be written */
	const char *path; /* the database's */
	struct report_query query;
	struct report_answer answer;
	int rc;
	char *text;
	uv_work_t work;
};

static void ask_free(struct report_ask *ask)
{
	report_answer_free(&ask->answer);
	free(ask->text);
	free(ask);
}

static void ask_end(struct report *report, struct report_ask *ask)
{
	budget_leave(&report->asks.budget, ask->owner);
	if (ask->cb)
		ask->cb(ask->arg, steal_ptr(&ask->text), ask->rc);
	ask_free(ask);
}

static void run_begin(struct report *report);

static void run_end(struct report_ask *ask)
{
	struct report *report = ask->report;

	if (!report) {
		ask_free(ask);
		return;
	}
	report->asks.running = NULL;
	ask_end(report, ask);
	run_begin(report);
}

static void text_make(uv_work_t *work)
{
	struct report_ask *ask = work->data;

	ask->text = report_text(&ask->answer);
	ask->rc = ask->text ? 0 : -ENOMEM;
}

static void on_text(uv_work_t *work, int status)
{
	run_end(work->data);
}

/* Names that are not known yet are shown as numbers, as in all lists. */
static void names_fill(struct report_answer *answer)
{
	enum report_by by = answer->query.by;
	bool groups = by == REPORT_BY_GROUP;

	for (uint32_t i = 0; i < answer->count && by != REPORT_BY_GPU; i++) {
		struct report_line *line = &answer->lines[i];

		snprintf(line->user, sizeof(line->user), "%s",
			 names_of(groups ? NAMES_OF_GROUPS : NAMES_OF_USERS,
				  groups ? line->sum.gid : line->sum.uid));
	}
}

static void on_read(uv_work_t *work, int status)
{
	struct report_ask *ask = work->data;

	if (ask->report && ask->rc == 0) {
		names_fill(&ask->answer);
		ask->rc = uv_queue_work(ask->report->asks.loop, &ask->work, text_make, on_text);
		if (ask->rc == 0)
			return;
	}
	run_end(ask);
}

static void read_run(uv_work_t *work)
{
	struct report_ask *ask = work->data;

	ask->rc = report_read(ask->path, &ask->query, &ask->answer);
}

/* Reads the first for which all is written. */
static void run_begin(struct report *report)
{
	struct report_ask **at = &report->asks.first, *ask;

	while (*at && (*at)->walk > report->round.written)
		at = &(*at)->next;
	ask = *at;
	if (!ask || report->asks.running)
		return;
	*at = ask->next;
	report->asks.running = ask;
	ask->rc = uv_queue_work(report->asks.loop, &ask->work, read_run, on_read);
	if (ask->rc < 0)
		run_end(ask);
}

int report_ask(struct report *report, uid_t uid, const struct report_query *query, report_ask_cb cb,
	       void *arg)
{
	struct report_ask *ask = calloc(1, sizeof(*ask)), **end = &report->asks.first;

	if (!ask)
		return -ENOMEM;
	if (!budget_enter(&report->asks.budget, uid, &ask->owner)) {
		free(ask);
		return -EMFILE;
	}
	ask->report = report;
	ask->cb = cb;
	ask->arg = arg;
	ask->path = store_path(report->store);
	ask->query = *query;
	ask->work.data = ask;
	ask->walk = report_freshen(report);
	while (*end)
		end = &(*end)->next;
	*end = ask;
	return 0;
}

void report_ask_forget(struct report *report, const void *arg)
{
	struct report_ask **at = &report->asks.first, *ask;

	if (report->asks.running && report->asks.running->arg == arg)
		report->asks.running->cb = NULL;
	while (*at && (*at)->arg != arg)
		at = &(*at)->next;
	ask = *at;
	if (!ask)
		return;
	*at = ask->next;
	ask->cb = NULL;
	ask_end(report, ask);
}

void report_asks_go_on(struct report *report)
{
	run_begin(report);
}

/* The one that is being read ends by itself, without the daemon. */
void report_asks_stop(struct report *report)
{
	if (report->asks.running)
		report->asks.running->report = NULL;
	report->asks.running = NULL;
	while (report->asks.first) {
		struct report_ask *ask = report->asks.first;

		report->asks.first = ask->next;
		ask_free(ask);
	}
	budget_free(&report->asks.budget);
}
