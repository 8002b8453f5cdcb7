/* Cgroups that carry a limit of the driver's that carve set, or may. */
#include <sqlite3.h>

#include "daemon/store/store_db.h"

static const struct record_field limit_fields[] = {
	RECORD_FIELD(struct store_limit, path, "path"),
	RECORD_FIELD(struct store_limit, session, "session"),
	RECORD_FIELD(struct store_limit, made, "made"),
	{0},
};

int store_limit_put(struct store *store, const struct store_limit *limit)
{
	int rc = store_boot_record(store);

	return rc < 0 ? rc : store_put(store, LIMIT_PUT, limit_fields, limit);
}

int store_limit_remove(struct store *store, const char *path)
{
	return store_run(store, LIMIT_REMOVE, ROW_TEXT(path));
}

int store_limits_each(struct store *store, store_limit_cb cb, void *arg)
{
	return row_each(store_statement(store, LIMITS), limit_fields, struct store_limit, cb, arg);
}
