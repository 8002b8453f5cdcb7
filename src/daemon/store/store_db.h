/* The inside of store.h: the database, its statements, and what store*.c share. SQLite's errors
 * become -errno by store_errno(). One thread. */
#pragma once

#include <sqlite3.h>
#include <stdbool.h>
#include <stdint.h>

#include "daemon/store/database.h"
#include "daemon/store/ends.h"
#include "daemon/store/rate.h"
#include "daemon/store/row.h"
#include "daemon/store/store.h"

enum statement {
	BEGIN,
	COMMIT,
	ROLLBACK,
	SESSION_ADD,
	GPU_ADD,
	GPU_RESIZE,
	GPU_MOVE,
	SESSION_RESIZE,
	SESSION_END,
	SESSION_RENAME,
	GPUS_RENAME,
	OVER_RENAME,
	GPU_PEAK,
	HOLDERS_END,
	HISTORY_COUNT,
	HISTORY_OWNER_GPUS_DELETE,
	HISTORY_OWNER_OVER_DELETE,
	HISTORY_OWNER_RECORDED_DELETE,
	HISTORY_OWNER_DELETE,
	HISTORY_GPUS_DELETE,
	HISTORY_OVER_DELETE,
	HISTORY_RECORDED_DELETE,
	HISTORY_DELETE,
	HOLDER_ADD,
	COMMAND_PUT,
	COMMAND_REMOVE,
	COMMANDS_OF,
	COMMANDS_END,
	SESSIONS_LIVING,
	SESSIONS_ENDED,
	SESSIONS_ENDED_AFTER,
	SESSION_FIND,
	SESSION_NAMED,
	SESSION_LAST_CURRENT,
	GPUS_OF,
	HOLDERS_OF,
	QUOTA_PUT,
	QUOTA_REMOVE,
	QUOTAS,
	CONTEXT_GET,
	CONTEXT_PUT,
	FIGURES_PUT,
	ATTACHED_PUT,
	ATTACHED_REMOVE,
	ATTACHED_OF,
	ATTACHED_END,
	SLICING_PUT,
	SLICINGS,
	DRAIN_PUT,
	DRAIN_REMOVE,
	DRAINS,
	GPU_PUT,
	GPU_REMOVE,
	GPUS,
	LIVING_COUNT,
	BOOT_GET,
	BOOT_PUT,
	BOOT_END_PEAKS,
	BOOT_END_SESSIONS,
	BOOT_END_HOLDERS,
	BOOT_END_COMMANDS,
	BOOT_END_ATTACHED,
	BOOT_END_INHERITED,
	BOOT_END_EXPORTERS,
	BOOT_END_INSTANCES,
	BOOT_END_LIMITS,
	BOOT_END_WAITING,
	WAITING_PUT,
	WAITING_PASSED,
	WAITING_REMOVE,
	WAITINGS,
	LIMIT_PUT,
	LIMIT_REMOVE,
	LIMITS,
	MIG_ROLE_PUT,
	MIG_ROLE_REMOVE,
	MIG_ROLES,
	MIG_PUT,
	MIG_REMOVE,
	MIG_ALL,
	INHERITED_PUT,
	INHERITED_REMOVE,
	INHERITED_OF,
	OVER_PUT,
	EXPORTER_PUT,
	EXPORTER_REMOVE,
	EXPORTERS,
	RECORDED_ADD,
	RECORDED_TRIM,
	RECORDED_END,
	RECORDED_FIND,
	RECORDED_OF,
	RECORDED_RENAME,
	TALLY_STATE_GET,
	TALLY_STATE_PUT,
	TALLY_GROUPS,
	TALLY_NAMES,
	TALLY_PUT,
	TALLY_NAME_PUT,
	TALLY_SUMS,
	TALLY_RECENT,
	TALLY_TRIM,
	TALLY_NAME_TRIM,
	EVENT_LOG,
	EVENT_BOOT,
	EVENT_ADD,
	EVENTS_FROM,
	EVENT_SINCE,
	EVENTS_COUNT,
	EVENTS_TRIM_USER,
	EVENT_TRIM_USERS,
	EVENT_TRIM_NODE,
	EVENTS_EXPIRE,
	NOTICE_GET,
	NOTICE_PUT,
	NOTICE_FORGET,
	NOTICE_SEEN,
	NOTICE_SEE,
	STATEMENTS
};

/* The end of a session that the database does not have yet. */
struct unrecorded {
	struct unrecorded *next;
	struct store_session session;
};

struct store {
	struct database database;
	struct unrecorded *unrecorded;
	struct ends ends; /* where those are meanwhile */
	sqlite3_stmt *statement[STATEMENTS];
	uint32_t history;
	struct rate history_rate; /* sessions that ended, by owner */
	struct store_boot boot;
	bool on_disk;              /* it is to survive a power cut */
	bool boot_due;             /* the database does not have it yet */
	bool living_are_of_before; /* and its living sessions are of another life of the host */
};

/* Ready to be bound anew. */
sqlite3_stmt *store_statement(struct store *store, enum statement which);
/* Binds values, ROW_TEXT() and ROW_NUMBER(), and runs a statement without rows. 0 or -errno. */
#define store_run(store, which, ...) row_run(store_statement(store, which), __VA_ARGS__)
/* Runs a statement without rows whose parameters are a record's. 0 or -errno. */
int store_put(struct store *store, enum statement which, const struct record_field *fields,
	      const void *record);
/* The same; on the disk itself when it returns. An administrator's setting is on the disk before
 * the answer says so. */
int store_step_synced(struct store *store, sqlite3_stmt *stmt);
void store_sync_each_commit(struct store *store, bool wanted);
int store_begin(struct store *store);
/* Ends a transaction whose steps came to `rc`. */
int store_finish(struct store *store, int rc);

/* Before anything else of this life of the host is recorded, the sessions of the one before are
 * ended. */
int store_boot_record(struct store *store);

/* Remembers the end of a session until the database has it; for ends_each(), with the store as
 * argument. */
int store_unrecorded_add(void *arg, const struct store_session *session);
void store_unrecorded_drop(struct unrecorded **at);

/* In the transaction that ends a session of this owner: forgets what is beyond the bounds of the
 * history. 0 or -errno. */
int store_history_ended(struct store *store, uid_t owner);
