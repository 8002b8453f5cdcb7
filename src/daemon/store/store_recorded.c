/* Commands that users had recorded with their sessions (`carve run --record-command`). They go with
 * their session, and a session keeps the newest of them. */
#include <errno.h>
#include <sqlite3.h>

#include "base/macros.h"
#include "daemon/store/store_db.h"

static const struct record_field recorded_fields[] = {
	RECORD_FIELD(struct store_recorded, number, "number"),
	RECORD_FIELD(struct store_recorded, session, "session"),
	RECORD_FIELD(struct store_recorded, uid, "uid"),
	RECORD_FIELD(struct store_recorded, began, "began"),
	RECORD_FIELD(struct store_recorded, ended, "ended"),
	RECORD_FIELD(struct store_recorded, exit_code, "exit_code"),
	RECORD_FIELD(struct store_recorded, text, "text"),
	{0},
};

int store_recorded_add(struct store *store, struct store_recorded *recorded)
{
	int rc = store_begin(store);

	if (rc < 0)
		return rc;
	rc = store_run(store, RECORDED_ADD, ROW_TEXT(recorded->session), ROW_NUMBER(recorded->uid),
		       ROW_NUMBER(recorded->began), ROW_TEXT(recorded->text));
	recorded->number = sqlite3_last_insert_rowid(store->database.db);
	if (rc == 0)
		rc = store_run(store, RECORDED_TRIM, ROW_TEXT(recorded->session),
			       ROW_NUMBER(STORE_RECORDED_MOST));
	return store_finish(store, rc);
}

int store_recorded_end(struct store *store, const struct store_recorded *recorded)
{
	return store_run(store, RECORDED_END, ROW_NUMBER(recorded->number),
			 ROW_NUMBER(recorded->ended), ROW_NUMBER(recorded->exit_code));
}

int store_recorded_find(struct store *store, int64_t number, struct store_recorded *ret)
{
	return row_get(row_bind(store_statement(store, RECORDED_FIND), ROW_NUMBER(number)),
		       recorded_fields, ret);
}

int store_recorded_each(struct store *store, const char *session, store_recorded_cb cb, void *arg)
{
	return row_each(row_bind(store_statement(store, RECORDED_OF), ROW_TEXT(session)),
			recorded_fields, struct store_recorded, cb, arg);
}
