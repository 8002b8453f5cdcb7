/* Jobs, agents and users' past use on disk: queue.db beside the daemon's database (state.h), SQLite
 * in WAL mode. A commit survives the daemon's death; whoever promises more, as an enqueued job's ID
 * does, waits for the disk (job_store_await()). After a power cut the shims' records say what had
 * begun.
 *
 * All functions return 0 or -errno, as store.h's do. Loop thread only. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "daemon/queue/job.h"
#include "daemon/store/disk.h"

struct error;
struct job_store;

/* Whether the database of jobs in this directory is of a version that job_store_open() takes. Where
 * there is none, or it has another fault, the queues of the daemon before were as they will be.
 * 0, or negative with *err. */
int job_store_check(const char *dir, struct error *err);
/* `loop` NULL: nobody waits for the disk. `freed` is called when job_store_holds() no longer is. */
int job_store_open(struct job_store **ret, const char *path, bool keeps_room, uv_loop_t *loop,
		   void (*freed)(void *arg), void *arg, struct error *err);
/* Calls when what was committed so far is on the disk (disk.h). */
void job_store_await(struct job_store *store, struct disk_waiter *waiter);
/* Whether a step would make the loop wait for the disk now: who can come back does. */
bool job_store_holds(const struct job_store *store);
/* Whether a step is open: what it wrote may still be given up. */
bool job_store_is_in_step(const struct job_store *store);
/* At the end of each round of the loop. */
void job_store_run(struct job_store *store);
/* No step follows that anybody waits for: calls all who do. Takes NULL. */
void job_store_end(struct job_store *store);
void job_store_close(struct job_store *store);
/* The name of the file that it would write anew for; NULL: none. */
const char *job_store_missing(const struct job_store *store);
/* As database_copy(). */
int job_store_copy(const struct job_store *store);

/* Steps may be within a step, which is on disk when the outermost is.
 * All that follows is one step, until job_store_commit() (or, where that was given up,
 * job_store_rollback()). */
int job_store_begin(struct job_store *store);
int job_store_commit(struct job_store *store);
/* All commits so far are on the disk when this returns: the loop waits. 0 or -errno. */
int job_store_sync(struct job_store *store);
void job_store_rollback(struct job_store *store);

/* A job's text (the body of POST /v1/jobs), and its warrant (NULL: it has none); the new ID in
 * *ret. Where it is not `entered`, it and its jobs are gone when the store is opened next, unless
 * job_store_spec_entered() was committed before. */
int job_store_spec_add(struct job_store *store, const char *text, const struct warrant *warrant,
		       bool entered, int64_t *ret);
int job_store_spec_entered(struct job_store *store, int64_t id);
/* Removes it, with the jobs of these IDs. */
int job_store_spec_remove(struct job_store *store, int64_t id, int64_t first, int64_t last);
/* Both (malloc'ed) are the caller's; ret_warrant may be NULL. -ENOENT. */
int job_store_spec_get(struct job_store *store, int64_t id, char **ret,
		       struct warrant **ret_warrant);
/* The last number that a job or an array has (job.h); 0: the database never had a job. */
int job_store_number_last(struct job_store *store, int64_t *ret);
int job_store_number_set(struct job_store *store, int64_t last);
/* The next number, for a job or an array that is written in the same step. */
int job_store_number_take(struct job_store *store, int64_t *ret);
int job_store_add(struct job_store *store, const struct job_record *record);
/* All that can change of a job. */
int job_store_put(struct job_store *store, const struct job_record *record);

typedef int (*job_record_cb)(void *arg, const struct job_record *record);
/* Jobs that have not ended, in the order in which they came. */
int job_store_each_living(struct job_store *store, job_record_cb cb, void *arg);
/* A place among the jobs that ended, in the order of their ends. */
struct job_place {
	int64_t ended, id;
};

/* The `limit` jobs that ended last, the latest first; of one user, or (uid_t)-1: all. Those before
 * a place; NULL: from the last one on. */
int job_store_each_ended(struct job_store *store, uid_t uid, const struct job_place *before,
			 uint32_t limit, job_record_cb cb, void *arg);
/* A job, or `limit` of an array's that have an index above `after`, ended or not. -ENOENT. */
int job_store_each_part(struct job_store *store, int64_t id, int32_t after, uint32_t limit,
			job_record_cb cb, void *arg);
/* The counts of a job, an array, or (index >= 0) one of an array's: how many there are, are done,
 * and have ended. */
struct job_counts {
	uint32_t all, done, ended;
};
int job_store_count(struct job_store *store, int64_t id, int32_t index, struct job_counts *ret);
/* The ID of one of an array's. -ENOENT. */
int job_store_element(struct job_store *store, int64_t array, int32_t index, int64_t *ret);
/* A job, or all of an array, ended or not. -ENOENT. */
int job_store_each_of(struct job_store *store, int64_t id, int32_t index, job_record_cb cb,
		      void *arg);

/* The `limit` jobs of a user that ended first. */
int job_store_each_oldest(struct job_store *store, uid_t uid, uint32_t limit, job_record_cb cb,
			  void *arg);
/* Removes one that has ended, and its text where no other job has that. */
int job_store_forget(struct job_store *store, const struct job_record *record);
/* Those that have ended, by user, and the bytes of their requests' texts. */
struct job_history {
	uint64_t jobs, text_bytes;
};
typedef int (*job_count_cb)(void *arg, uid_t uid, const struct job_history *history);
int job_store_each_count(struct job_store *store, job_count_cb cb, void *arg);

/* The answer to a request: asking twice is asking once. It goes with its first job, and after a
 * day. -ENOENT: it was not answered. */
struct job_asked {
	int64_t job;
	uint32_t count;
};
int job_store_asked_put(struct job_store *store, const char *key, uid_t uid,
			const struct job_asked *asked);
int job_store_asked_get(struct job_store *store, const char *key, uid_t uid, struct job_asked *ret);

/* Agents, as texts; the daemon knows what they mean. */
int job_store_agent_put(struct job_store *store, const char *id, const char *text);
int job_store_agent_remove(struct job_store *store, const char *id);
typedef int (*agent_text_cb)(void *arg, const char *id, const char *text);
int job_store_each_agent(struct job_store *store, agent_text_cb cb, void *arg);

/* Rights that are over, and of which the warden is still to be told. */
struct over {
	uint64_t number;
	uint32_t count;
};
int job_store_over_put(struct job_store *store, const struct over *over);
/* The first ones, `most` at most, which lie one after the other; count 0: there are none. */
int job_store_over_first(struct job_store *store, uint32_t most, struct over *ret);
/* The warden was told of these. */
int job_store_over_remove(struct job_store *store, const struct over *over);
/* The last number that an end had (job_record.change), also of a job that was forgotten. */
int job_store_change_last(struct job_store *store, int64_t *ret);
int job_store_change_set(struct job_store *store, int64_t last);
/* The random name that this database has had since it was made. */
#define JOB_STORE_ID_SIZE 17
int job_store_id(struct job_store *store, char ret[static JOB_STORE_ID_SIZE]);
/* The `limit` jobs whose ends have the next numbers after this one. */
int job_store_each_changed(struct job_store *store, int64_t after, uint32_t limit, job_record_cb cb,
			   void *arg);

int job_store_use_put(struct job_store *store, uid_t uid, double use, int64_t at);
typedef int (*job_use_cb)(void *arg, uid_t uid, double use, int64_t at);
int job_store_each_use(struct job_store *store, job_use_cb cb, void *arg);
