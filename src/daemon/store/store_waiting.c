/* Requests that wait for room. Each is a row with its place in the line. So the daemon may end at
 * any moment, and the next daemon goes on with this line (daemon/waiting/waiting.h). */
#include <sqlite3.h>

#include "daemon/store/store_db.h"

int store_waiting_put(struct store *store, const struct store_waiting *waiting)
{
	int rc = store_boot_record(store);

	if (rc < 0)
		return rc;
	sqlite3_stmt *stmt = store_statement(store, WAITING_PUT);
	store_bind_text(stmt, 1, waiting->id);
	sqlite3_bind_int64(stmt, 2, waiting->uid);
	sqlite3_bind_int64(stmt, 3, (sqlite3_int64)waiting->since_ns);
	sqlite3_bind_int64(stmt, 4, (sqlite3_int64)waiting->deadline_ns);
	sqlite3_bind_int64(stmt, 5, waiting->created);
	sqlite3_bind_int64(stmt, 6, waiting->passed);
	sqlite3_bind_blob(stmt, 7, waiting->body, (int)waiting->body_size, SQLITE_TRANSIENT);
	return store_step(stmt);
}

int store_waiting_passed(struct store *store, const char *id, unsigned passed)
{
	sqlite3_stmt *stmt = store_statement(store, WAITING_PASSED);

	store_bind_text(stmt, 1, id);
	sqlite3_bind_int64(stmt, 2, passed);
	return store_step(stmt);
}

int store_waiting_remove(struct store *store, const char *id)
{
	sqlite3_stmt *stmt = store_statement(store, WAITING_REMOVE);

	store_bind_text(stmt, 1, id);
	return store_step(stmt);
}

int store_waiting_each(struct store *store, store_waiting_cb cb, void *arg)
{
	sqlite3_stmt *stmt = store_statement(store, WAITINGS);
	int step, rc = 0;

	while (rc == 0 && (step = sqlite3_step(stmt)) == SQLITE_ROW) {
		const char *body = sqlite3_column_blob(stmt, 6);
		struct store_waiting waiting = {
			.uid = (uid_t)sqlite3_column_int64(stmt, 1),
			.since_ns = (uint64_t)sqlite3_column_int64(stmt, 2),
			.deadline_ns = (uint64_t)sqlite3_column_int64(stmt, 3),
			.created = sqlite3_column_int64(stmt, 4),
			.passed = (unsigned)sqlite3_column_int64(stmt, 5),
			.body = body ? body : "",
			.body_size = (size_t)sqlite3_column_bytes(stmt, 6),
		};

		store_column_text(stmt, 0, waiting.id, sizeof(waiting.id));
		rc = cb(arg, &waiting);
	}
	sqlite3_reset(stmt);
	return rc < 0 ? rc : store_errno(step);
}
