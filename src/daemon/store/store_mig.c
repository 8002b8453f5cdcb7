/* GPUs with the MIG role, and the ledger of instances. */
#include <sqlite3.h>

#include "daemon/store/store_db.h"

#define UUID_SIZE 48

int store_mig_role(struct store *store, const char *uuid_text, bool has)
{
	sqlite3_stmt *stmt = store_statement(store, has ? MIG_ROLE_PUT : MIG_ROLE_REMOVE);

	return store_step_synced(store, row_bind(stmt, ROW_TEXT(uuid_text)));
}

int store_mig_roles_each(struct store *store, store_role_cb cb, void *arg)
{
	static const struct record_field fields[] = {
		{.name = "uuid", .type = RECORD_TEXT, .size = UUID_SIZE},
		{0},
	};
	sqlite3_stmt *stmt = store_statement(store, MIG_ROLES);
	char uuid_text[UUID_SIZE];
	int rc;

	while ((rc = row_next(stmt, fields, uuid_text)) > 0 && (rc = cb(arg, uuid_text)) == 0)
		;
	return row_end(stmt, rc);
}

/* The first three name an instance. */
static const struct record_field instance_fields[] = {
	RECORD_FIELD(struct store_instance, gpu, "gpu"),
	RECORD_FIELD(struct store_instance, profile_id, "profile"),
	RECORD_FIELD(struct store_instance, start, "start"),
	RECORD_FIELD(struct store_instance, size, "size"),
	RECORD_FIELD(struct store_instance, state, "state"),
	RECORD_FIELD(struct store_instance, generation, "generation"),
	RECORD_FIELD(struct store_instance, instance, "instance"),
	RECORD_FIELD(struct store_instance, bytes, "bytes"),
	RECORD_FIELD(struct store_instance, session, "session"),
	RECORD_FIELD(struct store_instance, since, "since"),
	{0},
};

int store_instances_put(struct store *store, const struct store_instance *list, uint32_t count)
{
	int rc = store_boot_record(store);

	if (rc == 0)
		rc = store_begin(store);
	if (rc < 0)
		return rc;
	for (uint32_t i = 0; rc == 0 && i < count; i++)
		rc = store_put(store, MIG_PUT, instance_fields, &list[i]);
	return store_finish(store, rc);
}

int store_instance_remove(struct store *store, const struct store_instance *instance)
{
	return store_run(store, MIG_REMOVE, ROW_TEXT(instance->gpu),
			 ROW_NUMBER(instance->profile_id), ROW_NUMBER(instance->start));
}

int store_instances_each(struct store *store, store_instance_cb cb, void *arg)
{
	return row_each(store_statement(store, MIG_ALL), instance_fields, struct store_instance, cb,
			arg);
}
