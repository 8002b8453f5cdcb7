/* Cgroups that carry a limit of the driver's that carve set, or may. */
#include <sqlite3.h>

#include "daemon/store/store_db.h"

int store_limit_put(struct store *store, const struct store_limit *limit)
{
	int rc = store_boot_record(store);

	if (rc < 0)
		return rc;
	sqlite3_stmt *stmt = store_statement(store, LIMIT_PUT);
	store_bind_text(stmt, 1, limit->path);
	store_bind_text(stmt, 2, limit->session);
	sqlite3_bind_int(stmt, 3, limit->made);
	return store_step(stmt);
}

int store_limit_remove(struct store *store, const char *path)
{
	sqlite3_stmt *stmt = store_statement(store, LIMIT_REMOVE);

	store_bind_text(stmt, 1, path);
	return store_step(stmt);
}

int store_limits_each(struct store *store, store_limit_cb cb, void *arg)
{
	sqlite3_stmt *stmt = store_statement(store, LIMITS);
	int step, rc = 0;

	while ((step = sqlite3_step(stmt)) == SQLITE_ROW && rc == 0) {
		struct store_limit limit = {.made = sqlite3_column_int(stmt, 2)};

		store_column_text(stmt, 0, limit.path, sizeof(limit.path));
		store_column_text(stmt, 1, limit.session, sizeof(limit.session));
		rc = cb(arg, &limit);
	}
	sqlite3_reset(stmt);
	return rc < 0 ? rc : store_errno(step);
}
