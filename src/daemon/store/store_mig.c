/* GPUs with the MIG role, and the ledger of instances. */
#include <sqlite3.h>

#include "daemon/store/store_db.h"

int store_mig_role(struct store *store, const char *uuid_text, bool has)
{
	sqlite3_stmt *stmt = store_statement(store, has ? MIG_ROLE_PUT : MIG_ROLE_REMOVE);

	store_bind_text(stmt, 1, uuid_text);
	return store_step_synced(store, stmt);
}

int store_mig_roles_each(struct store *store, store_role_cb cb, void *arg)
{
	sqlite3_stmt *stmt = store_statement(store, MIG_ROLES);
	char uuid_text[48];
	int step, rc = 0;

	while ((step = sqlite3_step(stmt)) == SQLITE_ROW && rc == 0) {
		store_column_text(stmt, 0, uuid_text, sizeof(uuid_text));
		rc = cb(arg, uuid_text);
	}
	sqlite3_reset(stmt);
	return rc < 0 ? rc : store_errno(step);
}

/* The first three parameters name an instance. */
static sqlite3_stmt *instance_statement(struct store *store, enum statement which,
					const struct store_instance *instance)
{
	sqlite3_stmt *stmt = store_statement(store, which);

	store_bind_text(stmt, 1, instance->gpu);
	sqlite3_bind_int64(stmt, 2, instance->profile_id);
	sqlite3_bind_int(stmt, 3, instance->start);
	return stmt;
}

static int instance_put(struct store *store, const struct store_instance *instance)
{
	sqlite3_stmt *stmt = instance_statement(store, MIG_PUT, instance);

	sqlite3_bind_int(stmt, 4, instance->size);
	sqlite3_bind_int(stmt, 5, instance->state);
	sqlite3_bind_int64(stmt, 6, (int64_t)instance->generation);
	store_bind_text(stmt, 7, instance->instance);
	sqlite3_bind_int64(stmt, 8, (int64_t)instance->bytes);
	store_bind_text(stmt, 9, instance->session);
	sqlite3_bind_int64(stmt, 10, instance->since);
	return store_step(stmt);
}

int store_instances_put(struct store *store, const struct store_instance *list, uint32_t count)
{
	int rc = store_boot_record(store);

	if (rc == 0)
		rc = store_begin(store);
	if (rc < 0)
		return rc;
	for (uint32_t i = 0; rc == 0 && i < count; i++)
		rc = instance_put(store, &list[i]);
	return store_finish(store, rc);
}

int store_instance_remove(struct store *store, const struct store_instance *instance)
{
	return store_step(instance_statement(store, MIG_REMOVE, instance));
}

int store_instances_each(struct store *store, store_instance_cb cb, void *arg)
{
	sqlite3_stmt *stmt = store_statement(store, MIG_ALL);
	int step, rc = 0;

	while ((step = sqlite3_step(stmt)) == SQLITE_ROW && rc == 0) {
		struct store_instance i = {
			.profile_id = (uint32_t)sqlite3_column_int64(stmt, 1),
			.start = (uint8_t)sqlite3_column_int(stmt, 2),
			.size = (uint8_t)sqlite3_column_int(stmt, 3),
			.state = (uint8_t)sqlite3_column_int(stmt, 4),
			.generation = (uint64_t)sqlite3_column_int64(stmt, 5),
			.bytes = (uint64_t)sqlite3_column_int64(stmt, 7),
			.since = sqlite3_column_int64(stmt, 9),
		};

		store_column_text(stmt, 0, i.gpu, sizeof(i.gpu));
		store_column_text(stmt, 6, i.instance, sizeof(i.instance));
		store_column_text(stmt, 8, i.session, sizeof(i.session));
		rc = cb(arg, &i);
	}
	sqlite3_reset(stmt);
	return rc < 0 ? rc : store_errno(step);
}
