/* The inside of queue.h: what queue_*.c share. */
#pragma once

#include <limits.h>

#include "core/turns.h"
#include "daemon/gpu/pool.h"
#include "daemon/host/crowd.h"
#include "daemon/host/fair.h"
#include "daemon/host/privileges.h"
#include "daemon/host/runtime.h"
#include "daemon/queue/job_store.h"
#include "daemon/queue/launcher.h"
#include "daemon/queue/queue.h"
#include "daemon/session/sessions.h"

#define QUEUE_ID_BUCKETS 65536u
/* For names, arrays and users. */
#define QUEUE_TABLE_BUCKETS 4096u
/* Changes that are remembered. */
#define QUEUE_EVENTS 4096u
/* After an attempt that failed to start, jobs like it are tried again after this long, and so is an
 * end that could not be written. The job itself waits for queue_again_ns(). */
#define QUEUE_AGAIN_NS 1000000000ull

/* A queue that jobs name, as long as some do: who enqueues may think of any name. */
struct queue_name {
	struct queue_name *next;
	uint32_t waiting, running; /* jobs that have not ended */
	char text[QUEUE_NAME_SIZE];
};

/* Ready jobs that are alike: where the first one finds no room, neither do the others. */
struct queue_bucket {
	struct queue_bucket *next, *previous; /* its user's buckets, the newest last */
	struct queue_bucket *next_of_table;
	struct job_list list; /* by ID */
	const char *queue;
	struct queue_use *user;
	int priority;
	const struct job_spec *like; /* one job's spec; `used` keeps it */
	struct job_array *array;     /* where that has a limit of jobs at a time; else NULL */
	enum job_wait wait;
	uint64_t again_ns; /* not before */
};

struct job_array {
	struct job_array *next;
	int64_t id;
	uint32_t living, running, most;
	unsigned halts;            /* so many changes of its jobs are under way: none starts */
	struct job *jobs, *last;   /* that have not ended, by ID */
	struct queue_target ended; /* the jobs that come after all of it */
};

struct queue_event {
	uint64_t number;
	int64_t id, array;
	int32_t index;
	uid_t uid;
	char queue[QUEUE_NAME_SIZE]; /* the queue may have no job any more */
	enum job_state state;
	int64_t at;
	uint32_t attempt;
};

/* The numbers of ends (queue.h). */
struct queue_end_numbers {
	int64_t last;    /* that was given to an end */
	int64_t durable; /* all ends up to this number are on the disk */
	int64_t syncing; /* all ends up to this number wait for the disk; 0: none do */
	struct disk_waiter waiter;
	char database[JOB_STORE_ID_SIZE]; /* its ID */
};

struct queue_listener {
	struct queue_listener *next;
	job_event_cb cb;
	void *arg;
};

/* A user who has jobs, or had some. */
struct queue_use {
	struct queue_use *next, *next_of_table;
	const struct queues *queues;
	uid_t uid;
	/* To whom use, parts in decisions and history count: itself, or the owner of its range
	 * (host/owner.h). */
	struct queue_use *owner;
	struct queue_bucket *buckets, *last_bucket; /* ready jobs */
	struct job *jobs, *last_job; /* that have not ended, in the order of coming */
	uint32_t job_count;
	struct job_list ends;     /* jobs whose end is to be read, the oldest first */
	struct turn ends_turn;    /* while there is one */
	struct job_history ended; /* the user's */
	/* An owner's. */
	double use; /* seconds of a whole GPU, decayed to `at` */
	int64_t at;
	uint32_t part;          /* kinds of its jobs that one decision still looks at */
	uint32_t starting;      /* jobs whose shim is not there yet */
	struct job_history all; /* while history is trimmed: of all who count to it */
};

/* Budgets of jobs that have not ended are in units of this many bytes, as one takes; a request
 * takes more, and its text room on the disk, too. */
#define QUEUE_UNIT 400u
#define QUEUE_TOO_MANY "you have too many jobs that have not ended; let some end first"

/* How arrays ended that others come after: it does not change any more. The history of jobs has no
 * more long ones (HISTORY_JOBS_DEFAULT). */
#define QUEUE_KNOWN 64u
struct queue_known {
	int64_t array;
	struct job_counts counts;
};

/* The kinds of work on jobs that are done in parts. Each kind that has something to do stands once
 * in the line of the user whose part is its next one (host/fair.h). */
enum queue_kind {
	QUEUE_PART_CHANGES,  /* jobs_change() of long arrays */
	QUEUE_PART_ENQUEUES, /* long arrays that come */
	QUEUE_PART_WAITS,    /* jobs that waited for others, or for a time */
	QUEUE_PART_ENDS,     /* jobs that ended */
	QUEUE_PART_STARTS,   /* agents that have more to decide */
	QUEUE_PARTS,
};

struct queue_turn {
	struct fair_work work;
	struct queues *queues;
	enum queue_kind kind;
};

struct enqueue {
	struct enqueue *next;
	struct turn turn; /* the turn of a long array */
	struct queues *queues;
	struct disk_waiter durable;
	uid_t owner; /* the user whose budget it is in, with so many units beside one for each job
		      */
	unsigned units;
	struct enqueue_request request;
	struct peer peer;
	char queue[QUEUE_NAME_SIZE], key[64];
	int64_t spec, number, first; /* the ID of the first job */
	uint32_t text_bytes;         /* the share of each of its jobs */
	/* The last two are a long array's own. */
	enum { ENQUEUE_WRITES, ENQUEUE_SYNCS, ENQUEUE_MAKES, ENQUEUE_SETTLES } stage;
	uint32_t done;
	int64_t now;
	struct job_spec *made;
};

/* Work on the jobs that an ID means: of a long array in parts. */
struct queue_parts {
	struct turn turn;
	struct queues *queues;
	struct disk_waiter durable;
	int64_t array, *ids;
	uint32_t count, done;
	int rc;
	jobs_cb cb;
	jobs_done_cb done_cb;
	void *arg;
};

/* A record whose job has ended: it goes once the end is on the disk. After a power cut the database
 * may have lost the job's start as well, and then the record alone says that it ran. */
struct record_left {
	int64_t id;
	uint32_t attempt;
	uid_t uid;
};

/* Rights that the launcher is to be told of. */
struct queue_overs {
	bool all_told;    /* the database has none */
	struct over told; /* the warden is being told of these */
	uint64_t asked;
};

/* Reports of what became of a job. The ender and the waits call them, and the loop acts. A job
 * may be freed by a report. */
struct job_report {
	/* The end is on disk. `ran`: the job counted among those that run. */
	void (*over)(struct job *job, bool ran);
	/* The attempt is over, and that is on disk: the job is to wait again. */
	void (*again)(struct job *job, bool ran);
	/* A job that waits again had an attempt that never ran. It is not to be started at once. */
	void (*unstarted)(struct job *job);
	/* The job waits for something that cannot come. */
	void (*never)(struct job *job, const char *reason);
};

struct queues {
	const struct job_report *report;
	struct queues_host host;
	struct record_left *left; /* the oldest first, from left_first on; malloc'ed */
	size_t left_first, left_synced, left_count, left_room;
	struct disk_waiter left_durable;
	size_t left_syncing; /* so many wait for the disk; 0: none */
	struct job_store *store;
	struct job *by_id[QUEUE_ID_BUCKETS];
	uint64_t looks; /* the number of the next look of job_comes_round() */
	uint64_t
		seed; /* hashes keys that users choose, so that nobody fills one place of a table */
	size_t buckets;                                      /* all users' buckets */
	struct queue_bucket *bucket_of[QUEUE_TABLE_BUCKETS]; /* by what is alike */
	struct job_list pending; /* held, or not looked at yet; in no order */
	struct queue_waits waits;
	struct queue_target groups; /* requests whose jobs wait for others or for a time */
	bool unplaced; /* for some of the pending ones there was no memory where they belong */
	struct job_list running;
	struct job_list ending; /* their end could not be written */
	struct queue_name *names[QUEUE_TABLE_BUCKETS];
	struct job_array *arrays[QUEUE_TABLE_BUCKETS]; /* by ID */
	struct agent *agents;
	struct queue_known known[QUEUE_KNOWN];
	uint32_t known_next;
	struct crowd crowd;       /* budgets of jobs that have not ended, in units */
	struct job_history ended; /* everybody's */
	struct queue_use *uses, *use_of[QUEUE_TABLE_BUCKETS]; /* the latter by user ID */
	uint32_t first_user; /* where the next decision begins, where not all users can have a part
				in it */
	uint64_t came;       /* jobs so far */
	struct enqueue *enqueues, **enqueues_end;
	struct enqueue *syncing, **syncing_end; /* committed, and not on the disk yet */
	struct turns longs;                     /* struct enqueue, of long arrays */
	struct turns parts;                     /* struct queue_parts */
	struct turns ends;                      /* struct queue_use, with ends to be read */
	struct queue_turn turn[QUEUE_PARTS];    /* in the lines of the loop's budget */
	bool starts_more;                       /* agents have more to decide at once */
	struct queue_event event[QUEUE_EVENTS];
	uint64_t events; /* the number of the last one */
	bool told;       /* listeners have not heard of it */
	struct queue_end_numbers end_numbers;
	/* The warden was asked for a directory of jobs' files, and what came of the last one: 0
	 * or -errno. */
	uint64_t files_asked;
	int files_made;
	struct queue_listener *listeners;
	bool dirty;
	uint64_t mig_changes; /* those that were decided on */
	uint64_t sample;      /* jobs that wait for newer figures wait for this sample */
	char boot[STORE_BOOT_SIZE];
	struct queue_overs overs;
	char dir[PATH_MAX / 2];       /* has the files of jobs of this process's own user */
	char users_dir[PATH_MAX / 2]; /* has the files of jobs that a launcher starts */
	char shim[PATH_MAX];
	char cgroup[PATH_MAX]; /* the cgroup of a job that is over, to be removed when it is empty;
				  or "" */
	char attach[128];
};

/* ---- queue_table.c */
/* The one text of a queue's name; NULL: no memory. It goes with the last job that has it. */
const char *queue_name_intern(struct queues *q, const char *name);
struct queue_name *queue_name_find(const struct queues *q, const char *name);
/* The job has another queue, of queue_name_intern(). */
void job_queue_set(struct job *job, const char *queue);
/* Sets its state and nothing else: job_state_set() remembers it, too. */
void job_state_put(struct job *job, enum job_state state);
struct job *job_new(struct queues *q, const struct job_record *record, struct job_spec *spec);
/* The user's job of that ID; else the user's first one. */
const struct job *jobs_from(const struct queue_use *user, int64_t id);
/* A job of the queue that waits. NULL: none, or none near the front of those of other queues. */
const struct job *queue_first_waiting(const struct queues *q, const struct queue_name *name);
/* Takes it out of all tables. */
void job_free(struct job *job);
void job_move(struct job *job, struct job_list *list);
/* Removes records of jobs whose end is on the disk, at most so many. */
void queue_records_tidy(struct queues *q, size_t most);
/* Has the ends of all jobs so far on the disk, soon. */
void queue_records_sync(struct queues *q);
/* Likewise, when it returns: the loop waits. */
void queue_records_settle(struct queues *q);
/* Text fields of the record. */
void job_text_set(const char **field, const char *text);
/* An attempt's session, start and use. */
void job_figures_clear(struct job_record *record);
/* Sets the state, which must be allowed, and remembers the change. */
void job_state_set(struct job *job, enum job_state state);
/* The list of ready jobs like this one. NULL: no memory. */
struct job_list *job_ready_list(struct job *job);
int queue_load(struct queues *q);
unsigned queue_request_units(const char *text);
struct job_array *job_array_find(const struct queues *q, int64_t id);
/* Writes the record. 0 or -errno. */
int job_record_save(struct job *job);
/* Nobody waits for its shim any more. */
void job_start_forget(struct job *job);
/* The job's place among those that its text was vouched for. */
uint64_t job_position(const struct job *job);

/* ---- queue_waits.c */
/* Puts a job that waits where it belongs: among the ready ones, those that wait for others or for a
 * time, or the pending ones. It may end here, where what it waits for cannot come. */
void job_settle(struct job *job);
/* The first of those that the job would come after that is this job or waits for it. NULL: none.
 * *ret_known false: as many jobs come before that one as are looked at. */
const struct job_after *job_comes_round(const struct job *job, const struct job_spec *spec,
					bool *ret_known);
/* Looks at jobs whose time has come, or whose job that they come after has ended. It does so for a
 * while, and in the next round of the loop for those that are left. */
bool queue_waits_owner(const struct queues *q, uid_t *ret);
void queue_waits_part(struct queues *q);
/* Likewise at jobs for which there was no memory. */
void queue_waits_retry(struct queues *q);

/* ---- queue_enqueue.c */
void enqueue_commit(struct queues *q);
/* Returns whether a long array has a part to do, and gives its owner. */
bool enqueue_part_owner(const struct queues *q, uid_t *ret);
/* The next part. */
void enqueue_part(struct queues *q);
void enqueues_free(struct queues *q);

/* ---- queue_parts.c */
/* Requests with more jobs are done in parts of FAIR_STEP_NS (host/fair.h), each in its user's turn.
 */
#define QUEUE_SHORT 50u
/* Returns whether jobs_change() of a long array has a part to do, and gives its owner. */
bool jobs_change_owner(const struct queues *q, uid_t *ret);
/* Does the next part. */
void jobs_change_part(struct queues *q);
void jobs_change_free(struct queues *q);

/* ---- queue_start.c */
/* Has it started at that place, or as a pod, which has none. Its slice is granted here. Its shim
 * comes later, when the warden has started it, and then the job runs. 0: it is starting, or its
 * failure is being told. Else one of these:
 *
 *   -EAGAIN       its user's quota does not let it now
 *   -EDQUOT       nor ever
 *   -EACCES       agent_refuses()
 *   -EINPROGRESS  its MIG instance is being made first; it is to be decided anew then
 *   -ESTALE       that was done already: another had the instance, or it could not be made
 *
 * or another -errno. */
int job_start(struct job *job, struct agent *agent, uint32_t position,
	      const struct place_request *request, const struct queue_decision *decision);
/* Whether its MIG instance is being made. */
bool job_is_making(struct job *job);

/* On disk a claim is in these words, and the ID behind them: why a job is ended, and later why it
 * waits again. */
#define QUEUE_PREEMPTED_BY "preempted by job "
/* Judges a start that failed, of a job that waits again. `agent` is needed for -EACCES alone. */
void job_start_judge(struct job *job, const struct agent *agent, int rc);
/* Puts a job off that could not be started: `rc` is why, or 0. */
void job_start_failed(struct job *job, int rc);

/* ---- job_files.c */
/* Whether somebody removed the user's directory. */
bool job_directory_missing(const struct queues *q, uid_t uid);
/* Whether files can be made in the user's directory, as far as can be seen: 0 or -errno. */
int job_files_look(const struct queues *q, uid_t uid);
/* The highest number of a job of which there is a file, or 0. */
int64_t job_files_last(const struct queues *q);
/* Reads a file of the job's last attempt. Its user can have replaced it by anything. So no link is
 * followed, nothing is waited for, and the file must be that user's. `text` gets its bytes and a
 * NUL. Its length, or -errno (-EPERM: the file is another user's, -EFBIG: it is no smaller than
 * `size`). */
ssize_t job_file_read(const struct queues *q, const struct job_record *record, const char *suffix,
		      char *text, size_t size);
/* Whether a process holds a lock (flock) of such a file. */
bool job_file_is_locked(const struct queues *q, const struct job_record *record,
			const char *suffix);
/* The directory of users' directories of files. */
const char *job_directory(const struct queues *q);
/* The number that is the text of a symbolic link of theirs; 0: there is none. */
int job_file_link(const struct queues *q, const struct job_record *record, const char *suffix);
/* Removes those of them that are there. */
void job_files_remove(const struct queues *q, const struct job_record *record, uint32_t files);

/* ---- job_left.c */
/* Sends a signal (0: none) to all processes of the job, of this process's own user, whose shim was
 * killed. Returns how many there are. */
unsigned job_left_signal(const struct queues *q, const struct job_record *record, int signal);

/* ---- queue_end.c */
/* The record of the job's last attempt: how it started, and how it ended; owned by the caller.
 * NULL: it does not say. 0, also where there is no record: nothing of it began. -errno: there is
 * one that cannot be read, and it may have run. */
int job_record_read(const struct queues *q, const struct job_record *record, json_t **ret_start,
		    json_t **ret_end);
/* Watches what runs of it; where nothing does, jobs_end_part() finds out how it ended. */
void job_watch(struct job *job);
/* True: it ran, and its end is not written yet. */
bool job_is_ending(const struct job *job);
/* Reads and writes ends of jobs, in their users' turns, until the loop has waited long enough; the
 * rest in its next round. A user's processes may all end at one moment. */
void jobs_end_part(struct queues *q);
/* Ends that could not be written are due again, unless the launcher is away. */
void jobs_end_again(struct queues *q);
/* Ends a job that does not run. */
void job_finish(struct job *job, enum job_state state, const char *reason);
/* A running job is to end: as what, and why. */
void job_end_begin(struct job *job, enum job_state as, const char *why);
/* Tells the shim, which may be another one than the last that was told. */
void job_end_again(struct job *job);
void job_end_tick(struct job *job, uint64_t now);
/* Kills what is left of the job's last attempt in its cgroup, where its shim did not. 0 or -errno.
 * -EINPROGRESS: the warden was asked to, and the job's end goes on with its answer. */
int job_processes_end(struct job *job, bool by_shim);
/* An attempt that never ran: nobody waits for the end of its processes. */
void job_processes_drop(const struct job *job);
void job_cgroup_remove(struct queues *q);

/* Makes the directories of jobs that run, where somebody removed them. Each second. */
void queue_directories_look(struct queues *q);

/* ---- queue_run.c */
extern const struct job_report queue_report;
/* The store can be written to again: sees to what came meanwhile. `arg`: the queues. */
void queue_store_freed(void *arg);
void queue_parts_withdraw(struct queues *q);

/* ---- queue_event.c */
/* Reads the last number of an end from the database. 0 or -errno. */
int queue_end_load(struct queues *q);
/* The number of the next end, which the caller writes to the database with the job. */
int64_t queue_end_number_take(struct queues *q);
/* Has the ends so far on the disk, soon. Each second. */
void queue_end_sync(struct queues *q);

/* ---- queue_agent.c */
int agents_load(struct queues *q);
/* The queue's place in the agent's list; -1: it is none of the agent's. */
int agent_queue_position(const struct agent *agent, const char *queue);
/* The job counts no more among those that run of its queue, at its agent, and of its array. */
void job_agent_leave(const struct job *job);
/* Stops those whose command has ended. */
void agents_end(struct queues *q);
void agents_free(struct queues *q);
/* The place that the job needs in this queue: 0, or -EINVAL: it has no size, or a larger one than
 * the queue.
 */
int agent_request(const struct queues *q, const struct agent *agent, uint32_t position,
		  const struct job_spec *spec, struct place_request *ret, uint32_t *ret_count_min);
/* An option of the job's container that the agent does not allow; NULL: there is none. */
const char *agent_refuses(const struct agent *agent, const struct job_spec *spec);
/* The agent's GPUs, one flag for each position in the pool. */
void agent_allowed(const struct queues *q, const struct agent *agent,
		   uint8_t ret[static PLACE_GPUS_MAX]);

/* ---- queue_over.c */
/* The rights of the jobs from `position` on, among those of a warrant (NULL: they have none), are
 * over: the database has that until the warden was told. 0 or -errno. */
int queue_rights_over(struct queues *q, const struct warrant *warrant, uint64_t position,
		      uint64_t count);
/* Tells the warden of more, where it can be told. Each second and after each step, too. */
void queue_overs_tell(struct queues *q);
void queue_overs_end(struct queues *q);

/* ---- queue_history.c */
int queue_history_load(struct queues *q);
void queue_history_add(struct queues *q, const struct job_record *record);
/* Forgets the oldest of jobs that have ended, of the user who has most, some at a time: the most
 * jobs, or the most text. */
void queue_history_trim(struct queues *q, const struct job_history *keep);

/* ---- queue_use.c */
struct queue_use *queue_use_get(struct queues *q, uid_t uid, bool make);
double queue_use_of(const struct queue_use *user, int64_t now);
/* GPU time of a running job so far, in ns of a whole GPU. A quarter of one for 4 s is 1 s. */
uint64_t queue_use_gpu_ns(const struct job *job);
void queue_use_add(struct queues *q, const struct job *job, int64_t now);
int queue_use_load(struct queues *q);
