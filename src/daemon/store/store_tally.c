/* Tallies of days: of users, groups and GPUs, and of names. Rows are added to, in one transaction
 * with the moment up to which living sessions are counted. So a daemon that is killed has counted
 * no moment twice, and the next one goes on from there. */
#include <errno.h>
#include <inttypes.h>
#include <sqlite3.h>
#include <stdio.h>
#include <string.h>

#include "base/macros.h"
#include "daemon/store/store_db.h"

static const struct record_field figure_fields[] = {
	RECORD_FIELD(struct store_tally, tally.held_ns, "held"),
	RECORD_FIELD(struct store_tally, tally.gpu_ns, "gpu_ns"),
	RECORD_FIELD(struct store_tally, tally.used_ns, "used"),
	RECORD_FIELD(struct store_tally, tally.measured_ns, "measured"),
	RECORD_FIELD(struct store_tally, tally.asked_mib_ms, "asked"),
	RECORD_FIELD(struct store_tally, tally.peak_mib_ms, "peak"),
	RECORD_FIELD(struct store_tally, tally.peak_bytes, "peak_bytes"),
	RECORD_FIELD(struct store_tally, tally.sessions, "sessions"),
	RECORD_FIELD(struct store_tally, tally.slices, "slices"),
	RECORD_FIELD(struct store_tally, tally.jobs, "jobs"),
	RECORD_FIELD(struct store_tally, tally.refusals, "refusals"),
	RECORD_FIELD(struct store_tally, tally.waits, "waits"),
	RECORD_FIELD(struct store_tally, tally.wait_ns, "wait"),
	{0},
};
#define FIGURES ((int)ARRAY_SIZE(figure_fields) - 1)

static const struct record_field sum_fields[] = {
	RECORD_FIELD(struct store_tally, uid, "uid"),
	RECORD_FIELD(struct store_tally, gid, "gid"),
	RECORD_FIELD(struct store_tally, tally.gpu_ns, "gpu_ns"),
	{0},
};

static const struct record_field state_fields[] = {
	RECORD_FIELD(struct store_tally_state, until, "until"),
	RECORD_FIELD(struct store_tally_state, until_realtime, "until_realtime"),
	RECORD_FIELD(struct store_tally_state, began, "began"),
	{0},
};

/* The moment of another life of the host says nothing. */
int store_tally_state(struct store *store, struct store_tally_state *ret)
{
	return row_get(row_bind(store_statement(store, TALLY_STATE_GET), ROW_TEXT(store->boot.id)),
		       state_fields, ret);
}

/* Whether the row may be there beside those of the day that are: it is one of them, or there are
 * fewer than so many. 1, 0 or -errno. */
static int has_place(sqlite3_stmt *stmt, int64_t most)
{
	int64_t row[2];
	int rc = row_get_numbers(stmt, row, 2);

	return rc < 0 ? rc : row[0] || row[1] < most;
}

static int group_put(struct store *store, const struct store_tally *row)
{
	int rc = has_place(row_bind(store_statement(store, TALLY_GROUPS), ROW_NUMBER(row->day),
				    ROW_NUMBER(row->uid), ROW_NUMBER(row->gid)),
			   STORE_TALLY_GROUPS);
	if (rc < 0)
		return rc;
	sqlite3_stmt *stmt = row_bind_record(store_statement(store, TALLY_PUT), figure_fields, row);
	return store_step(row_bind_at(stmt, FIGURES + 1, ROW_NUMBER(row->day), ROW_NUMBER(row->uid),
				      ROW_NUMBER(rc ? row->gid : STORE_OTHER_GROUP),
				      ROW_TEXT(row->gpu)));
}

static int name_put(struct store *store, const struct store_tally *row)
{
	int rc = has_place(row_bind(store_statement(store, TALLY_NAMES), ROW_NUMBER(row->day),
				    ROW_NUMBER(row->uid), ROW_TEXT(row->name)),
			   STORE_TALLY_NAMES);
	if (rc < 0)
		return rc;
	sqlite3_stmt *stmt =
		row_bind_record(store_statement(store, TALLY_NAME_PUT), figure_fields, row);
	return store_step(row_bind_at(stmt, FIGURES + 1, ROW_NUMBER(row->day), ROW_NUMBER(row->uid),
				      ROW_TEXT(rc ? row->name : STORE_OTHER_NAME)));
}

int store_tally_put(struct store *store, const struct store_tally *rows, uint32_t count,
		    const struct store_tally_state *state)
{
	int rc = store_boot_record(store);

	if (rc == 0)
		rc = store_begin(store);
	if (rc < 0)
		return rc;
	for (uint32_t i = 0; i < count && rc == 0; i++)
		rc = rows[i].named ? name_put(store, &rows[i]) : group_put(store, &rows[i]);
	if (rc == 0)
		rc = store_run(store, TALLY_STATE_PUT, ROW_NUMBER(state->until),
			       ROW_NUMBER(state->until_realtime), ROW_NUMBER(state->began),
			       ROW_TEXT(store->boot.id));
	return store_finish(store, rc);
}

int store_tally_sums(struct store *store, int64_t day, store_tally_cb cb, void *arg)
{
	return row_each(row_bind(store_statement(store, TALLY_SUMS), ROW_NUMBER(day)), sum_fields,
			struct store_tally, cb, arg);
}

/* Days that have to have rows, so that `today` is believed. */
#define DAYS_NEAR 40

int store_tally_trim(struct store *store, int64_t day, int64_t today, uint32_t limit)
{
	static const enum statement all[] = {TALLY_TRIM, TALLY_NAME_TRIM};
	int64_t found;
	int forgotten = 0;
	int rc = row_get_numbers(row_bind(store_statement(store, TALLY_RECENT), ROW_NUMBER(day),
					  ROW_NUMBER(today - DAYS_NEAR), ROW_NUMBER(today)),
				 &found, 1);

	if (rc < 0)
		return rc == -ENOENT ? 0 : rc;
	for (size_t i = 0; i < ARRAY_SIZE(all); i++) {
		rc = store_run(store, all[i], ROW_NUMBER(day), ROW_NUMBER(limit));
		if (rc < 0)
			return rc;
		forgotten += sqlite3_changes(store->database.db);
	}
	return forgotten;
}
