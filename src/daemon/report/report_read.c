#include "daemon/report/report_read.h"

#include <errno.h>
#include <jansson.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/array.h"
#include "base/macros.h"
#include "daemon/store/database.h"
#include "daemon/store/row.h"

#define DAY_SECONDS (TALLY_DAY_NS / 1000000000ull)
/* The last day of the year 9999. */
#define DAY_LAST 2932896

const char *const report_by_words[] = {"user", "group", "gpu", "name", NULL};

/* ---- days -------------------------------------------------------------------------------- */

int report_day_parse(const char *text, int64_t *ret)
{
	struct tm tm = {0}, made;
	const char *end = strlen(text) == 10 ? strptime(text, "%Y-%m-%d", &tm) : NULL;

	if (!end || *end)
		return -EINVAL;
	made = tm;
	time_t seconds = timegm(&made);
	/* There is no 2026-02-30. */
	if (made.tm_year != tm.tm_year || made.tm_mon != tm.tm_mon || made.tm_mday != tm.tm_mday ||
	    seconds < 0)
		return -EINVAL;
	*ret = (int64_t)seconds / (int64_t)DAY_SECONDS;
	return 0;
}

const char *report_day_text(int64_t day, char buf[static REPORT_DAY_SIZE])
{
	const time_t seconds = (time_t)(MIN(MAX(day, 0), DAY_LAST) * (int64_t)DAY_SECONDS);
	struct tm tm;

	if (!gmtime_r(&seconds, &tm) || !strftime(buf, REPORT_DAY_SIZE, "%Y-%m-%d", &tm))
		buf[0] = '\0';
	return buf;
}

/* ---- reading ----------------------------------------------------------------------------- */

#define SUMS                                                                        \
	"sum(held), sum(gpu_ns), sum(used), sum(measured), sum(asked), sum(peak), " \
	"max(peak_bytes), sum(sessions), sum(slices), sum(jobs), sum(refusals), "   \
	"sum(waits), sum(wait) "
#define WHERE "WHERE day BETWEEN ?1 AND ?2 AND (?3 < 0 OR uid=?3) "
#define ORDER " ORDER BY 6 DESC, 1, 2, 3, 4"

static const char *const texts[] = {
	[REPORT_BY_USER] =
		"SELECT uid, 0, '', '', " SUMS ", -1, '' FROM tally " WHERE "GROUP BY uid" ORDER,
	[REPORT_BY_GROUP] =
		"SELECT 0, gid, '', '', " SUMS ", -1, '' FROM tally " WHERE "GROUP BY gid" ORDER,
	[REPORT_BY_GPU] = "SELECT 0, 0, tally.gpu, '', " SUMS
			  ", ifnull((SELECT number FROM gpu WHERE uuid=tally.gpu), -1),"
			  " (SELECT name FROM gpu WHERE uuid=tally.gpu) FROM tally " WHERE
			  "GROUP BY tally.gpu" ORDER,
	[REPORT_BY_NAME] = "SELECT uid, 0, '', name, " SUMS ", -1, '' FROM tally_name " WHERE
			   "GROUP BY uid, name" ORDER,
};

static const struct record_field line_fields[] = {
	RECORD_FIELD(struct report_line, sum.uid, "uid"),
	RECORD_FIELD(struct report_line, sum.gid, "gid"),
	RECORD_FIELD(struct report_line, sum.gpu, "gpu"),
	RECORD_FIELD(struct report_line, sum.name, "name"),
	RECORD_FIELD(struct report_line, sum.tally.held_ns, "held"),
	RECORD_FIELD(struct report_line, sum.tally.gpu_ns, "gpu_ns"),
	RECORD_FIELD(struct report_line, sum.tally.used_ns, "used"),
	RECORD_FIELD(struct report_line, sum.tally.measured_ns, "measured"),
	RECORD_FIELD(struct report_line, sum.tally.asked_mib_ms, "asked"),
	RECORD_FIELD(struct report_line, sum.tally.peak_mib_ms, "peak"),
	RECORD_FIELD(struct report_line, sum.tally.peak_bytes, "peak_bytes"),
	RECORD_FIELD(struct report_line, sum.tally.sessions, "sessions"),
	RECORD_FIELD(struct report_line, sum.tally.slices, "slices"),
	RECORD_FIELD(struct report_line, sum.tally.jobs, "jobs"),
	RECORD_FIELD(struct report_line, sum.tally.refusals, "refusals"),
	RECORD_FIELD(struct report_line, sum.tally.waits, "waits"),
	RECORD_FIELD(struct report_line, sum.tally.wait_ns, "wait"),
	RECORD_FIELD(struct report_line, index, "number"),
	RECORD_FIELD(struct report_line, model, "model"),
	{0},
};

static int lines_read(sqlite3_stmt *stmt, struct report_answer *ret)
{
	size_t room = 0;
	int rc;

	row_bind(stmt, ROW_NUMBER(ret->query.first), ROW_NUMBER(ret->query.last),
		 ROW_NUMBER(ret->query.uid));
	for (;;) {
		struct report_line line = {0}, *grown;

		rc = row_next(stmt, line_fields, &line);
		if (rc <= 0)
			return rc;
		tally_add(&ret->total, &line.sum.tally);
		if (ret->count == REPORT_LINES_MAX) {
			tally_add(&ret->rest, &line.sum.tally);
			ret->left_out++;
			continue;
		}
		grown = array_grown(ret->lines, ret->count, &room, sizeof(*grown));
		if (!grown)
			return -ENOMEM;
		ret->lines = grown;
		ret->lines[ret->count++] = line;
	}
}

static int statement_run(sqlite3 *db, const char *text,
			 int (*run)(sqlite3_stmt *stmt, struct report_answer *ret),
			 struct report_answer *ret)
{
	sqlite3_stmt *stmt = NULL;
	int rc = store_errno(sqlite3_prepare_v2(db, text, -1, &stmt, NULL));

	if (rc == 0)
		rc = run(stmt, ret);
	sqlite3_finalize(stmt);
	return rc;
}

static int began_read(sqlite3_stmt *stmt, struct report_answer *ret)
{
	int rc = row_get_numbers(stmt, &ret->began, 1);

	/* The first write of a new database is still to come. */
	if (rc == -ENOENT)
		ret->began = ret->query.last;
	return rc == -ENOENT ? 0 : rc;
}

int report_read(const char *path, const struct report_query *query, struct report_answer *ret)
{
	sqlite3 *db = NULL;
	int rc = store_errno(
		sqlite3_open_v2(path, &db, SQLITE_OPEN_READONLY | SQLITE_OPEN_NOMUTEX, NULL));

	*ret = (struct report_answer){.query = *query};
	if (rc == 0)
		(void)sqlite3_busy_timeout(db, DATABASE_BUSY_MS);
	if (rc == 0)
		rc = statement_run(db, "SELECT began FROM tally_state", began_read, ret);
	if (rc == 0)
		rc = statement_run(db, texts[query->by], lines_read, ret);
	sqlite3_close(db);
	return rc;
}

void report_answer_free(struct report_answer *answer)
{
	free(answer->lines);
	answer->lines = NULL;
	answer->count = 0;
}

/* ---- the answer -------------------------------------------------------------------------- */

static json_t *number(uint64_t value)
{
	return json_integer((json_int_t)value);
}

/* The average over the time of the slices, in bytes; `most` bounds it. */
static json_t *average(uint64_t mib_ms, uint64_t held_ns, uint64_t most)
{
	return held_ns ? number(MIN(tally_average_bytes(mib_ms, held_ns), most)) : json_null();
}

static json_t *tally_json(const struct tally *t, bool by_gpu)
{
	return json_pack("{s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "gpu_ns",
			 number(t->gpu_ns), "held_ns", number(t->held_ns), "used_ns",
			 t->measured_ns ? number(t->used_ns) : json_null(), "measured_ns",
			 number(t->measured_ns), "asked_bytes",
			 average(t->asked_mib_ms, t->held_ns, UINT64_MAX), "peak_bytes",
			 average(t->peak_mib_ms, t->held_ns, t->peak_bytes), "peak_most_bytes",
			 number(t->peak_bytes), "sessions",
			 number(by_gpu ? t->slices : t->sessions), "jobs", number(t->jobs),
			 "refusals", number(t->refusals), "waits", number(t->waits), "wait_ns",
			 number(t->wait_ns));
}

static json_t *gpu_json(const struct report_line *line)
{
	if (!line->sum.gpu[0])
		return json_null();
	return json_pack("{s:s, s:o, s:s}", "uuid", line->sum.gpu, "index",
			 line->index < 0 ? json_null() : json_integer(line->index), "name",
			 line->model);
}

/* `other`: what was beyond the bounds of a user's groups and names. */
static json_t *line_json(const struct report_line *line, enum report_by by)
{
	bool other = by == REPORT_BY_GROUP ? line->sum.gid == STORE_OTHER_GROUP
					   : !strcmp(line->sum.name, STORE_OTHER_NAME);
	json_t *json = tally_json(&line->sum.tally, by == REPORT_BY_GPU);

	if (by == REPORT_BY_GPU) {
		json_object_set_new(json, "gpu", gpu_json(line));
		return json;
	}
	if (by == REPORT_BY_GROUP) {
		json_object_set_new(json, "group", other ? json_null() : json_string(line->user));
		json_object_set_new(json, "gid", other ? json_null() : number(line->sum.gid));
		json_object_set_new(json, "other", json_boolean(other));
		return json;
	}
	json_object_set_new(json, "user", json_string(line->user));
	json_object_set_new(json, "uid", number(line->sum.uid));
	if (by == REPORT_BY_NAME) {
		json_object_set_new(json, "name",
				    other ? json_null() : json_string(line->sum.name));
		json_object_set_new(json, "other", json_boolean(other));
	}
	return json;
}

char *report_text(const struct report_answer *answer)
{
	char since[REPORT_DAY_SIZE], until[REPORT_DAY_SIZE], began[REPORT_DAY_SIZE];
	enum report_by by = answer->query.by;
	json_t *rows = json_array(), *json;
	char *text;

	for (uint32_t i = 0; i < answer->count; i++)
		json_array_append_new(rows, line_json(&answer->lines[i], by));
	json = json_pack("{s:s, s:s, s:s, s:s, s:o, s:o, s:I, s:o}", "by", report_by_words[by],
			 "since", report_day_text(answer->query.first, since), "until",
			 report_day_text(answer->query.last, until), "history_since",
			 report_day_text(answer->began, began), "rows", rows, "total",
			 tally_json(&answer->total, false), "left_out",
			 (json_int_t)answer->left_out, "rest",
			 tally_json(&answer->rest, by == REPORT_BY_GPU));
	text = json ? json_dumps(json, JSON_COMPACT | JSON_PRESERVE_ORDER) : NULL;
	json_decref(json);
	return text;
}
