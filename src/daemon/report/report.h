/* This room counts what users have of the GPUs, day by day, for `carve report` and for quotas of
 * GPU-hours (core/tally.h). The daemon's root tells of sessions that end. The rooms above tell of
 * sessions that begin, of requests and of jobs.
 *
 * Living sessions are counted each minute, and when they end. The figures wait in memory
 * (report_owner.h) until the next minute's write. A write is cut into transactions, and each of
 * them says up to which moment living sessions are counted. So a daemon that is killed loses a
 * minute at most, no moment is counted twice, and the time without a daemon is counted by the next
 * one. Time is measured by CLOCK_MONOTONIC: setting the clock moves time to another day, and makes
 * none.
 *
 * Users count as their owners (host/owner.h), so that nobody has rows of a thousand subordinate
 * users. Loop thread. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "daemon/host/fair.h"
#include "daemon/report/report_ask.h"
#include "daemon/store/store.h"

struct members;
struct peer;
struct report_owner;
struct report_row;
struct session;
struct sessions;

#define REPORT_BUCKETS 256u

/* One walk over living sessions, and the write of what it found. */
struct report_round {
	struct session *next; /* the one with which the walk goes on */
	bool walking, writing;
	uint64_t number, written;    /* the last walk that began; that was written */
	uint64_t wanted;             /* a report waits for this walk */
	struct fair_work work;       /* a part of the walk, or of the write */
	uint64_t due_ns;             /* the next walk; CLOCK_MONOTONIC */
	uint64_t written_ns;         /* likewise, the last write */
	uint64_t spent_ns, ended_ns; /* by the last round, and when it ended */
};

struct report {
	/* Lent. */
	struct sessions *sessions;
	struct store *store;
	struct fair *turns;
	struct report_owner *owners[REPORT_BUCKETS];
	/* Rows that are to be written, in the order in which they came. */
	struct report_row *first, *last;
	struct report_round round;
	struct report_asks asks;
	int64_t month;               /* the first day of the month whose GPU-hours are summed up */
	struct store_tally_state at; /* .until is 0 once all sessions were taken up from there */
};

/* Before sessions of the daemon before are taken up. 0 or -errno of the store. */
int report_start(struct report *report);
void report_tick(struct report *report);
/* Has living sessions counted up to now and written. Returns the number of the walk: it is written
 * once report->round.written is as high. */
uint64_t report_freshen(struct report *report);
/* Writes what is left. */
void report_stop(struct report *report);

/* Writes the moment up to which sessions are counted, where the one in the database is old. */
void report_renew(struct report *report);

/* The session was granted; `name` is its job's, or its own. */
void report_began(struct report *report, struct session *session, const char *name);
/* It is a job's of that name, which a daemon before this one started. */
void report_named(struct report *report, struct session *session, const char *name);
/* It is a job's, which waited that long for it. */
void report_job(struct report *report, struct session *session, const char *name,
		uint64_t waited_ns);
/* It is counted up to now: a minute has passed, or its end is recorded. */
void report_count(struct report *report, struct session *session);
/* It is freed. */
void report_forget(struct report *report, struct session *session);
/* A request waited for room, granted or not; `gpu` is the UUID of the first GPU that it got, or "".
 */
void report_waited(struct report *report, const struct peer *peer, const char *gpu,
		   const char *name, uint64_t ns);
/* A request was refused: there is no room, or a quota does not allow it. */
void report_refused(struct report *report, const struct peer *peer, const char *name);

/* The GPU time that a user held in this month (UTC), slices by their part of a GPU, in nanoseconds:
 * a GPU-hour is 3600 s of it. Up to the last minute. */
uint64_t report_month_held(const struct report *report, uid_t uid);
/* Likewise that of a living session since it was counted. */
uint64_t report_not_counted(const struct session *session);
/* Likewise that of a group: of all who asked with it as their primary group, and of its members.
 * Both lists of members may be NULL. */
uint64_t report_month_held_by_group(const struct report *report, gid_t gid,
				    const struct members *members, const struct members *others);
