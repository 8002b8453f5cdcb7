/* The table of jobs that have not ended: by ID, array, user and queue, and in lists by what they
 * wait for. A job that ends leaves the table with job_free(). Loop thread only. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "core/queue_waits.h"
#include "daemon/host/budget.h"
#include "daemon/queue/job.h"
#include "daemon/queue/job_entry.h"
#include "daemon/queue/job_store.h"
#include "daemon/queue/queue_use.h"

struct queues;

#define JOBS_ID_BUCKETS 65536u
/* For names, arrays and users. */
#define JOBS_TABLE_BUCKETS 4096u
#define QUEUE_TOO_MANY "you have too many jobs that have not ended; let some end first"

/* How arrays ended that others come after: it does not change any more. The history of jobs has no
 * more long ones (HISTORY_JOBS_DEFAULT). */
#define JOBS_KNOWN 64u
struct job_known {
	int64_t array;
	struct job_counts counts;
};

struct job_table {
	uint64_t
		seed; /* hashes keys that users choose, so that nobody fills one place of a table */
	struct job *by_id[JOBS_ID_BUCKETS];
	struct job_array *arrays[JOBS_TABLE_BUCKETS]; /* by ID */
	struct queue_name *names[JOBS_TABLE_BUCKETS];
	struct queue_use *uses, *use_of[JOBS_TABLE_BUCKETS]; /* the latter by user ID */
	struct queue_bucket *bucket_of[JOBS_TABLE_BUCKETS];  /* by what is alike */
	size_t buckets;                                      /* all users' buckets */
	struct job_list pending; /* held, or not looked at yet; in no order */
	struct job_list running;
	struct queue_waits waits;
	struct queue_target groups; /* requests whose jobs wait for others or for a time */
	bool unplaced;  /* for some of the pending ones there was no memory where they belong */
	uint64_t looks; /* the number of the next look of job_comes_round() */
	struct job_known known[JOBS_KNOWN];
	uint32_t known_next;
	uint64_t came;        /* jobs so far */
	struct budget budget; /* budgets of jobs that have not ended, in units */
};

/* The most jobs of all users is `living`. 0 or -ENOMEM. */
int job_table_new(uint32_t living, struct job_table **ret);
/* Reads the jobs of the database: all are pending. 0 or -errno. */
int job_table_load(struct queues *q);
/* Frees the jobs, too. Takes NULL. */
void job_table_free(struct job_table *table);

/* The one text of a queue's name; NULL: no memory. It goes with the last job that has it. */
const char *queue_name_intern(struct queues *q, const char *name);
struct queue_name *queue_name_find(const struct queues *q, const char *name);
/* A job of the queue that waits. NULL: none, or none near the front of those of other queues. */
const struct job *queue_first_waiting(const struct queues *q, const struct queue_name *name);
/* The units of a request in its user's budget, beside one for each job. */
unsigned queue_request_units(const char *text);

struct job *job_new(struct queues *q, const struct job_record *record, struct job_spec *spec);
/* Takes it out of all tables. */
void job_free(struct job *job);
struct job *job_find(const struct queues *q, int64_t id);
/* One of the jobs that are meant by an ID and have not ended; NULL: none is. For an array that is
 * found without looking at all of it. */
struct job *job_meant(const struct queues *q, int64_t id, int32_t index);
struct job_array *job_array_find(const struct queues *q, int64_t id);
/* The job whose slice this session is, while it runs; NULL: it is no job's. */
const struct job *job_of_session(const struct queues *q, const char *session);
/* The user's job of that ID; else the user's first one. */
const struct job *jobs_from(const struct queue_use *user, int64_t id);

void job_move(struct job *job, struct job_list *list);
/* The list of ready jobs like this one. NULL: no memory. */
struct job_list *job_ready_list(struct job *job);
/* The job has another queue, of queue_name_intern(). */
void job_queue_set(struct job *job, const char *queue);
/* Sets its state and nothing else: job_state_set() remembers it, too. */
void job_state_put(struct job *job, enum job_state state);
/* Sets the state, which must be allowed, and remembers the change. */
void job_state_set(struct job *job, enum job_state state);
/* Text fields of the record. */
void job_text_set(const char **field, const char *text);
/* An attempt's session, start and use. */
void job_figures_clear(struct job_record *record);
/* Writes the record. 0 or -errno. */
int job_record_save(struct job *job);
/* The job's place among those that its text was vouched for. */
uint64_t job_position(const struct job *job);
/* Nobody waits for its shim any more. */
void job_start_forget(struct job *job);
