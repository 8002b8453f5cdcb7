/* The objects of the queues share these: the parts of the daemon that are lent to the queues, and
 * the database. Each object has a header of its own. */
#pragma once

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

#include "core/turns.h"
#include "daemon/queue/job_rights.h"
#include "daemon/queue/job_store.h"

struct agent;
struct enqueues;
struct fair;
struct job_ender;
struct job_events;
struct job_records;
struct job_report;
struct job_table;
struct launcher;
struct pool;
struct quotas;
struct report;
struct runtime;
struct sessions;
struct waiting;

/* The parts of the daemon that this room uses, lent by its root. */
struct queues_host {
	struct sessions *sessions;
	struct fair *turns; /* the loop's budget, from which all work on jobs is taken */
	struct pool *pool;
	struct waiting *waiting;
	struct quotas *quotas;
	struct report *report;
	struct launcher *launcher;
	const char *state_dir;
	const struct runtime *runtime;
	const bool *ready;            /* jobs are decided on */
	const uint32_t *history_jobs; /* ended jobs that are kept, now */
	const uint32_t *history_text_mib;
	const uint32_t *living_jobs; /* those that have not ended, at a time */
};

/* Where jobs' files and their shims are. */
struct job_places {
	char dir[PATH_MAX / 2];       /* has the files of jobs of this process's own user */
	char users_dir[PATH_MAX / 2]; /* has the files of jobs that a launcher starts */
	char shim[PATH_MAX];          /* the program */
	char attach[128];             /* the socket */
	/* The warden was asked for a directory of jobs' files, and what came of the last one: 0
	 * or -errno. */
	uint64_t asked;
	int made;
};

struct queues {
	struct queues_host host;
	const struct job_report *report;
	struct job_store *store;
	struct job_table *jobs;
	struct job_ender *ender;
	struct job_records *records;
	struct enqueues *enqueues;
	struct job_events *events;
	struct agent *agents;
	struct turns parts; /* changes of long arrays (job_change.h) */
	struct queue_overs overs;
	struct job_history ended; /* everybody's */
	struct job_places places;
	char boot[STORE_BOOT_SIZE];
	uint32_t first_user; /* where the next decision begins, where not all users can have a part
				in it */
	uint64_t sample;     /* jobs that wait for newer figures wait for this sample */
	bool dirty;          /* a job may start now */
	bool starts_more;    /* agents have more to decide at once */
};
