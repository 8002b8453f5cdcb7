/* The history of ended sessions, and its bounds. One user can take half of the history from the
 * others, and no more. */
#include <errno.h>
#include <sqlite3.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/macros.h"
#include "daemon/host/log.h"
#include "daemon/store/store_db.h"

/* Ended sessions that are forgotten with one end, at most: some 0.5 ms. */
#define HISTORY_TRIM_MOST 64

void store_keep_history(struct store *store, uint32_t sessions, uint32_t per_minute)
{
	store->history = sessions;
	store->history_rate.most = per_minute;
}

/* How many ended sessions an owner has, or all have (HISTORY_ALL). Negative: -errno. */
#define HISTORY_ALL (-2)
static int64_t history_count(struct store *store, int64_t owner)
{
	int64_t count = 0;
	int rc = row_get_numbers(row_bind(store_statement(store, HISTORY_COUNT), ROW_NUMBER(owner)),
				 &count, 1);

	return rc < 0 && rc != -ENOENT ? rc : count;
}

/* Forgets the `count` oldest by four statements, of all owners or of this one. */
static int forget(struct store *store, enum statement first, int64_t count, uid_t owner)
{
	int rc = 0;

	for (enum statement which = first; which < first + 4 && rc == 0; which++)
		rc = store_run(store, which, ROW_NUMBER(count), ROW_NUMBER(owner));
	return rc;
}

/* Forgets the oldest sessions beyond store->history. If this owner has more than half of the
 * history, and others have some, the owner's sessions go: nobody fills the history. After the bound
 * was lowered, each end forgets some more. */
static int history_trim(struct store *store, uid_t owner)
{
	int64_t all = history_count(store, HISTORY_ALL), own = history_count(store, owner);
	int64_t half = store->history / 2;

	if (all < 0 || own < 0)
		return (int)MIN(all, own);
	int64_t excess = MIN(all - (int64_t)store->history, HISTORY_TRIM_MOST);
	if (excess <= 0)
		return 0;
	if (all > own && own > half)
		return forget(store, HISTORY_OWNER_GPUS_DELETE, MIN(excess, own - half), owner);
	return forget(store, HISTORY_GPUS_DELETE, excess, owner);
}

/* One that ends many sessions a minute keeps the newest of them, and nobody else's history gets
 * shorter by them. */
static int rate_trim(struct store *store, uid_t owner)
{
	/* As with all budgets. */
	if (owner == 0 || owner == geteuid())
		return 0;
	enum rate_verdict verdict = rate_note(&store->history_rate, owner, now_monotonic_ns());

	if (verdict == RATE_WITHIN)
		return 0;
	if (verdict == RATE_FIRST_BEYOND)
		log_event(
			LOG_WARNING,
			"history.dropped uid=%u reason=\"more than %u of its sessions ended within "
			"a minute: its oldest are forgotten\"",
			(unsigned)owner, store->history_rate.most);
	return forget(store, HISTORY_OWNER_GPUS_DELETE, 1, owner);
}

int store_history_ended(struct store *store, uid_t owner)
{
	int rc = rate_trim(store, owner);

	return rc < 0 ? rc : history_trim(store, owner);
}
