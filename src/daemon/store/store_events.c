/* The event log. */
#include <sqlite3.h>

#include "daemon/store/store_db.h"

static const struct record_field log_fields[] = {
	RECORD_FIELD(struct store_event_log, id, "id"),
	RECORD_FIELD(struct store_event_log, boot, "boot"),
	RECORD_FIELD(struct store_event_log, last, "last"),
	{0},
};

static const struct record_field event_fields[] = {
	RECORD_FIELD(struct store_event, number, "number"),
	RECORD_FIELD(struct store_event, at, "at"),
	RECORD_FIELD(struct store_event, kind, "kind"),
	RECORD_FIELD(struct store_event, uid, "uid"),
	RECORD_FIELD(struct store_event, login, "login"),
	RECORD_FIELD(struct store_event, pid, "pid"),
	RECORD_FIELD(struct store_event, process, "process"),
	RECORD_FIELD(struct store_event, owner, "owner"),
	RECORD_FIELD(struct store_event, charged, "charged"),
	RECORD_FIELD(struct store_event, subject, "subject"),
	RECORD_FIELD(struct store_event, before, "before"),
	RECORD_FIELD(struct store_event, after, "after"),
	RECORD_FIELD(struct store_event, text, "text"),
	RECORD_FIELD(struct store_event, parents, "parents"),
	{0},
};

int store_event_log(struct store *store, struct store_event_log *ret)
{
	return row_get(store_statement(store, EVENT_LOG), log_fields, ret);
}

int store_event_boot(struct store *store, const char *boot)
{
	return store_run(store, EVENT_BOOT, ROW_TEXT(boot));
}

int store_event_add(struct store *store, const struct store_event *event, bool synced)
{
	if (!synced)
		return store_put(store, EVENT_ADD, event_fields, event);
	return store_step_synced(
		store, row_bind_record(store_statement(store, EVENT_ADD), event_fields, event));
}

int store_events_each(struct store *store, uint64_t from, uint32_t limit, store_event_cb cb,
		      void *arg)
{
	sqlite3_stmt *stmt = store_statement(store, EVENTS_FROM);

	return row_each(row_bind(stmt, ROW_NUMBER(from), ROW_NUMBER(limit)), event_fields,
			struct store_event, cb, arg);
}

int store_event_since(struct store *store, int64_t at, uint64_t *ret)
{
	int64_t number = 0;
	int rc = row_get_numbers(row_bind(store_statement(store, EVENT_SINCE), ROW_NUMBER(at)),
				 &number, 1);

	*ret = (uint64_t)number;
	return rc;
}

/* ---- forgetting ---------------------------------------------------------------------------- */

int store_events_count(struct store *store, int64_t *ret_users, int64_t *ret_node)
{
	int64_t counts[2] = {0};
	int rc = row_get_numbers(store_statement(store, EVENTS_COUNT), counts, 2);

	*ret_users = counts[0];
	*ret_node = counts[1];
	return rc;
}

static unsigned removed(const struct store *store, int rc)
{
	return rc < 0 ? 0 : (unsigned)sqlite3_changes(store->database.db);
}

int store_events_trim_user(struct store *store, int64_t charged, uint32_t keep,
			   unsigned *ret_removed)
{
	int rc = store_run(store, EVENTS_TRIM_USER, ROW_NUMBER(charged), ROW_NUMBER(keep));

	*ret_removed = removed(store, rc);
	return rc;
}

int store_event_trim(struct store *store, bool of_users)
{
	return store_step(store_statement(store, of_users ? EVENT_TRIM_USERS : EVENT_TRIM_NODE));
}

int store_events_expire(struct store *store, int64_t before, unsigned *ret_removed)
{
	int rc = store_run(store, EVENTS_EXPIRE, ROW_NUMBER(before));

	*ret_removed = removed(store, rc);
	return rc;
}

/* ---- the notice ---------------------------------------------------------------------------- */

static const struct record_field notice_fields[] = {
	RECORD_FIELD(struct store_notice, number, "number"),
	RECORD_FIELD(struct store_notice, at, "at"),
	RECORD_FIELD(struct store_notice, uid, "uid"),
	RECORD_FIELD(struct store_notice, text, "text"),
	{0},
};

int store_notice_get(struct store *store, struct store_notice *ret)
{
	return row_get(store_statement(store, NOTICE_GET), notice_fields, ret);
}

int store_notice_put(struct store *store, const struct store_notice *notice)
{
	store_sync_each_commit(store, true);
	int rc = store_begin(store);
	if (rc == 0)
		rc = store_put(store, NOTICE_PUT, notice_fields, notice);
	if (rc == 0)
		rc = store_step(store_statement(store, NOTICE_FORGET));
	rc = store_finish(store, rc);
	store_sync_each_commit(store, false);
	return rc;
}

int store_notice_is_seen(struct store *store, uid_t uid, bool *ret)
{
	int64_t count = 0;
	int rc = row_get_numbers(row_bind(store_statement(store, NOTICE_SEEN), ROW_NUMBER(uid)),
				 &count, 1);

	*ret = count > 0;
	return rc;
}

int store_notice_see(struct store *store, uid_t uid)
{
	return store_run(store, NOTICE_SEE, ROW_NUMBER(uid));
}
