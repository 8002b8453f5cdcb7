/* Jobs of queues: what is asked for, what is on disk, and what the daemon has in memory of jobs
 * that have not ended. A job's process tree is a shim's (proto/shim.h), not the daemon's. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/record.h"
#include "base/units.h"
#include "core/place.h"
#include "core/queue_spec.h"
#include "core/queue_waits.h"
#include "daemon/host/peer.h"
#include "daemon/store/store.h"

/* How json_dumps() writes a job's request: as it is shown later. */
#define JOB_TEXT_FORM (JSON_COMPACT | JSON_REAL_PRECISION(SHARE_DIGITS))
/* Values in a request, all words of the command and variables of the environment together. To read
 * so many takes the loop some 2 ms. */
#define JOB_VALUES_MAX 10000u

struct budget;
struct error;
struct job;
struct queue_bucket;
struct queues;
struct warrant;

#define JOB_NAME_SIZE 64 /* JOB_TEXT_NAME_SIZE of proto/job_text.h */
#define JOB_REASON_SIZE 192
#define JOB_CODE_UNKNOWN (-1)
#define JOB_AFTER_MAX 16u
#define JOB_RETRY_ON_MAX 16u
/* Jobs of one array or sweep, and words of an array's list. */
#define JOB_ARRAY_MAX 100000u
#define JOB_GRACE_DEFAULT_NS (10 * 1000000000ull)

/* Allowed changes: job_state_may() in job_spec.c. On disk by number: never renumbered. */
enum job_state {
	JOB_QUEUED = 0,
	JOB_HELD = 1,
	/* Its slice is granted, and its shim is not there yet. On disk: its shim is there, and the
	 * job's records say whether it runs. */
	JOB_STARTING = 2,
	JOB_RUNNING = 3,
	JOB_DONE = 4,
	JOB_FAILED = 5,
	JOB_CANCELLED = 6,
	JOB_TIMEOUT = 7,
	JOB_LOST = 8, /* nobody knows how it ended */
	JOB_STATES
};

const char *job_state_text(enum job_state state);
bool job_state_may(enum job_state from, enum job_state to);
static inline bool job_state_ended(enum job_state state)
{
	return state >= JOB_DONE;
}

enum job_after_kind { JOB_AFTER_OK, JOB_AFTER_ANY, JOB_AFTER_NOTOK };

struct job_after {
	enum job_after_kind kind;
	int64_t job;             /* the number of a job or of an array */
	int32_t index;           /* one of the array's; -1: all of it */
	struct queue_after wait; /* the wait of the jobs in the spec's `after_list` */
	struct job_spec *spec;   /* once there is a wait */
};

struct job_list {
	struct job *first, *last;
	size_t count;
	bool as_they_come;           /* the last to come is last; else they are by ID */
	struct queue_bucket *bucket; /* NULL: it is none's */
};

/* A job's request. Shared by the jobs of an array. */
struct job_spec {
	unsigned uses;
	int64_t id; /* the ID of its text in the store */
	char name[JOB_NAME_SIZE];
	bool sized; /* `request` is set */
	struct place_request request;
	char image[QUEUE_IMAGE_SIZE]; /* a container's; "": none */
	char container_args[1024];    /* options of its runtime, one a line */
	uint64_t limit_ns;            /* 0: no limit */
	uint64_t grace_ns;
	int64_t begin; /* not before (ns since 1970); 0: at once */
	unsigned retries;
	unsigned retry_on_count;            /* 0: any failure */
	int16_t retry_on[JOB_RETRY_ON_MAX]; /* exit codes; signals as negative numbers */
	bool requeue;                       /* may be preempted, and then starts anew */
	bool hold;
	int priority;
	uint32_t array_most; /* jobs of the array at a time; 0: no limit */
	unsigned after_count;
	struct job_after after[JOB_AFTER_MAX];
	/* Its jobs that wait for others to end, and those that wait for `begin`: they do so as one.
	 */
	struct job_list after_list, begin_list;
	struct queue_time begin_wait;
	struct queue_after group; /* in the list of those that have such jobs */
	/* When job_comes_round() came here last, and what it looks at next. */
	uint64_t looked;
	struct job_spec *look_next;
	/* Its part in its user's budget of jobs (job_table.h); NULL: nothing. */
	struct budget *budget;
	uid_t owner;
	unsigned units;
	struct warrant *warrant; /* malloc'ed; NULL: the daemon runs jobs of its own user */
};

/* The fields of the body of POST /v1/jobs that only the queue looks at, beside job_text_fields and
 * those of a size. */
extern const struct record_field job_spec_fields[];
/* Body of POST /v1/jobs, but for `id` and `queue`. The number of jobs in *ret_count, and where it
 * is an array their indexes in *ret_indexes (malloc; NULL: it is none). 0, or negative with *err.
 */
int job_spec_parse(const json_t *body, const struct peer *peer, bool may_raise,
		   struct job_spec *ret, uint32_t *ret_count, int32_t **ret_indexes,
		   struct error *err);
/* Reads what job_spec_parse() took before. 0 or -EINVAL. */
int job_spec_load(const char *text, struct job_spec *ret);
/* How often a job may be started: a job that may be put back into its queue has no limit that it
 * would come to. */
uint32_t job_spec_attempts(const struct job_spec *spec);
void job_spec_unref(struct job_spec *spec);
/* "17" or "17_3": 0 with *ret_index -1 where there is none, or -EINVAL. */
int job_id_parse(const char *text, int64_t *ret_id, int32_t *ret_index);

/* The ID of a job that is in no array is its number. An array takes one number, and the IDs of its
 * jobs lie beyond all numbers: JOB_ARRAY_IDS, plus the number and the place in the array as decimal
 * digits. Up to 8 * 10^9 numbers all IDs are below 2^53, and so exact in JSON. */
#define JOB_ARRAY_IDS INT64_C(1000000000000000)
#define JOB_ARRAY_PLACES INT64_C(1000000)
_Static_assert(JOB_ARRAY_MAX <= JOB_ARRAY_PLACES, "a place in an array is part of an ID");

static inline int64_t job_element_id(int64_t array, uint32_t place)
{
	return JOB_ARRAY_IDS + array * JOB_ARRAY_PLACES + place;
}

/* The number that a job of this ID has, or its array. */
static inline int64_t job_id_number(int64_t id)
{
	return id < JOB_ARRAY_IDS ? id : (id - JOB_ARRAY_IDS) / JOB_ARRAY_PLACES;
}

/* IDs in the order in which the jobs came. */
static inline int64_t job_id_rank(int64_t id)
{
	return id < JOB_ARRAY_IDS ? id * JOB_ARRAY_PLACES : id - JOB_ARRAY_IDS;
}

/* A job as it is on disk. Times in ns since 1970; 0: none. Texts are never NULL, and not owned: a
 * callback of the store's has them until it returns. */
struct job_record {
	int64_t id;
	int64_t array; /* the number of its array; 0: it is of none */
	int32_t index; /* in the array; -1: it is of none */
	int64_t spec;
	uid_t uid;
	gid_t gid;
	const char *queue, *name;
	enum job_state state;
	int priority;
	uint32_t attempt;
	struct process_id shim;
	const char *boot; /* the life of the host that the shim is of */
	char session[STORE_ID_SIZE];
	const char *place; /* its GPUs, JSON: [[index, bytes], ...] */
	char agent[16];
	const char *ending; /* why it is being ended; "": it is not */
	enum job_state ending_as;
	int64_t enqueued, started, ended;
	int exit_code; /* JOB_CODE_UNKNOWN: nobody knows it */
	int signal;
	uint32_t text_bytes; /* the size of its request's text: its share, where that is an array's
			      */
	const char *reason;
	uint64_t peak_bytes, gpu_ns, rss_bytes;
	int64_t change; /* the number of its end (queue_end_read()); 0: it has not ended */
};

#define JOB_ID_TEXT 32
const char *job_id_text(const struct job_record *record, char buf[static JOB_ID_TEXT]);
/* The job that is named. */
const char *job_after_text(const struct job_after *after, char buf[static JOB_ID_TEXT]);
