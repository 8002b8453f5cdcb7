/* Requests that wait for room. Each is a row with its place in the line. So the daemon may end at
 * any moment, and the next daemon goes on with this line (daemon/waiting/waiting.h). */
#include <sqlite3.h>

#include "daemon/store/store_db.h"

static const struct record_field waiting_fields[] = {
	RECORD_FIELD(struct store_waiting, id, "id"),
	RECORD_FIELD(struct store_waiting, uid, "uid"),
	RECORD_FIELD(struct store_waiting, since_ns, "since"),
	RECORD_FIELD(struct store_waiting, deadline_ns, "deadline"),
	RECORD_FIELD(struct store_waiting, created, "created"),
	RECORD_FIELD(struct store_waiting, passed, "passed"),
	{0},
};
/* The parameter and the column behind these fields. */
#define BODY_PARAMETER 7
#define BODY_COLUMN 6

int store_waiting_put(struct store *store, const struct store_waiting *waiting)
{
	int rc = store_boot_record(store);

	if (rc < 0)
		return rc;
	sqlite3_stmt *stmt =
		row_bind_record(store_statement(store, WAITING_PUT), waiting_fields, waiting);
	sqlite3_bind_blob(stmt, BODY_PARAMETER, waiting->body, (int)waiting->body_size,
			  SQLITE_STATIC);
	return store_step(stmt);
}

int store_waiting_passed(struct store *store, const char *id, unsigned passed)
{
	return store_run(store, WAITING_PASSED, ROW_TEXT(id), ROW_NUMBER(passed));
}

int store_waiting_remove(struct store *store, const char *id)
{
	return store_run(store, WAITING_REMOVE, ROW_TEXT(id));
}

int store_waiting_each(struct store *store, store_waiting_cb cb, void *arg)
{
	sqlite3_stmt *stmt = store_statement(store, WAITINGS);
	struct store_waiting waiting;
	int rc;

	while ((rc = row_next(stmt, waiting_fields, &waiting)) > 0) {
		const char *body = sqlite3_column_blob(stmt, BODY_COLUMN);

		waiting.body = body ? body : "";
		waiting.body_size = (size_t)sqlite3_column_bytes(stmt, BODY_COLUMN);
		rc = cb(arg, &waiting);
		if (rc != 0)
			break;
	}
	return row_end(stmt, rc);
}
