#include "daemon/api/api_report.h"

#include <errno.h>
#include <http_parser.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "daemon/api/answer.h"
#include "daemon/api/http.h"
#include "daemon/node.h"
#include "daemon/report/report_ask.h"
#include "daemon/report/report_read.h"

/* Days of a report for which none are named: today and those before. */
#define DAYS_DEFAULT 30

static void on_answer(void *arg, char *text, int rc)
{
	struct call *call = arg;

	if (rc == 0)
		call_reply_text(call, HTTP_STATUS_OK, text);
	else
		answer_failed(call, HTTP_STATUS_INTERNAL_SERVER_ERROR, EXIT_CODE_FAILED,
			      "the history cannot be read: %s", strerrordesc_np(-rc));
}

static void on_gone(struct call *call)
{
	report_ask_forget(&call->node->report, call);
}

static int by_parse(struct call *call, enum report_by *ret, struct error *err)
{
	const char *by = call_argument(call, "by");

	*ret = REPORT_BY_USER;
	for (int i = 0; by && report_by_words[i]; i++)
		if (!strcmp(by, report_by_words[i])) {
			*ret = (enum report_by)i;
			return 0;
		}
	return by ? error_set(err, EXIT_CODE_USAGE, "by: takes user, group, gpu or name") : 0;
}

static int day_parse(struct call *call, const char *name, int64_t *ret, struct error *err)
{
	const char *day = call_argument(call, name);

	if (day && report_day_parse(day, ret) < 0)
		return error_set(err, EXIT_CODE_USAGE, "%s: takes a day of UTC, as in 2026-11-29",
				 name);
	return 0;
}

static int order_refuse(const struct report_query *query, struct error *err)
{
	char first[REPORT_DAY_SIZE], last[REPORT_DAY_SIZE];

	error_set(err, EXIT_CODE_USAGE, "since: %s is after the last day of the period, %s",
		  report_day_text(query->first, first), report_day_text(query->last, last));
	error_hint(err, "name %s or an earlier day, for example: carve report --since %s", last,
		   report_day_text(query->last - (DAYS_DEFAULT - 1), first));
	return -EXIT_CODE_USAGE;
}

static int query_parse(struct call *call, struct report_query *ret, struct error *err)
{
	int rc = by_parse(call, &ret->by, err);

	ret->last = tally_day(now_realtime_ns());
	if (rc == 0)
		rc = day_parse(call, "until", &ret->last, err);
	ret->first = ret->last - (DAYS_DEFAULT - 1);
	if (rc == 0)
		rc = day_parse(call, "since", &ret->first, err);
	if (rc == 0 && ret->first > ret->last)
		rc = order_refuse(ret, err);
	return rc;
}

/* A caller who is no administrator gets the caller's own part of each group, GPU and name. */
void api_get_report(struct call *call, const char *id)
{
	struct report_query query;
	struct error err = {0};
	uid_t uid;

	if (!answer_uid_argument(call, &uid))
		return;
	if (query_parse(call, &query, &err) < 0) {
		call_reply_error(call, HTTP_STATUS_BAD_REQUEST, &err);
		return;
	}
	if (uid == (uid_t)-1 && !call->peer.admin)
		uid = call->peer.uid;
	query.uid = uid == (uid_t)-1 ? -1 : (int64_t)uid;
	int rc = report_ask(&call->node->report, call->peer.uid, &query, on_answer, call);
	if (rc == 0)
		call_defer(call, on_gone);
	else if (rc == -EMFILE)
		answer_failed(call, HTTP_STATUS_TOO_MANY_REQUESTS, EXIT_CODE_FAILED,
			      "you have too many reports that are being made");
	else
		call_reply(call, HTTP_STATUS_INTERNAL_SERVER_ERROR, NULL);
}
