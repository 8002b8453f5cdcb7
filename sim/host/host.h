/* The state of a simulated host, and what changes it. One thread (the server's); no sockets here,
 * so that tests and fuzzers can drive it. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "host/books.h"
#include "host/engine.h"
#include "host/faults.h"
#include "host/mig.h"
#include "host/partition.h"
#include "host/spec.h"
#include "host/trace.h"
#include "host/wire.h"

struct host;
struct process;

/* Something that clients can name as a device: a whole GPU, a MIG GPU instance or compute instance.
 */
struct part {
	struct list node; /* in host_gpu.parts; the first one is the whole GPU */
	struct host *host;
	wire_device device;
	struct book_space
		*space; /* where its memory comes from: own_space, or its GPU instance's */
	struct book_space own_space;
	struct engine engine;
	uint32_t users; /* processes that have an engine client here */
	const struct sim_model *model;
};

struct host_gpu {
	const struct sim_model *model;
	struct list parts;
	uint64_t peak;        /* bytes held at once, MIG instances included */
	struct mig_state mig; /* its instances */
	/* Model time at which the changes of instances that were asked for are done: one at a time.
	 */
	uint64_t mig_busy_until;
};

/* The work of a process on one part. */
struct process_part {
	struct list node; /* in process.parts */
	struct part *part;
	struct process *process;
	struct engine_client client;
	uint64_t launches, copies;
	uint64_t copied_bytes[WIRE_ENGINES];
	uint64_t lag_ns;
};

struct process_queue {
	struct process *process;
	struct process_part *place;
	uint16_t number;
	bool dirty;                   /* progress not published yet */
	struct list dirty_node;       /* in host.dirty */
	struct list node;             /* in process.queues */
	uint64_t done_at, sure_until; /* to be published, see struct wire_queue */
	struct engine_queue queue;
};

struct process_name {
	char name[WIRE_NAME_MAX];
	uint64_t count;
};
#define PROCESS_NAMES_MAX 128u

/* One connection. */
struct process {
	struct list node; /* in host.processes */
	struct host *host;
	uint64_t number;
	pid_t pid;
	unsigned long long start_time;
	uid_t uid;
	char command[32];
	char cgroup[WIRE_CGROUP_MAX]; /* where it was when somebody last looked; "": nobody did */
	uint64_t started;             /* model time */
	enum wire_role role;          /* 0: did not say HELLO yet */
	struct book_holder memory;
	struct list parts;
	struct list queues;
	struct process_queue *queue[WIRE_QUEUES_MAX];
	struct wire_progress *progress; /* role CUDA */
	int progress_fd;
	struct process_name unsupported[PROCESS_NAMES_MAX];
	uint32_t unsupported_count;
	uint64_t unsupported_calls;
};

/* The record of a process on a GPU after its end. */
struct ended {
	uint64_t process;
	pid_t pid;
	uint32_t gpu;
	char command[32];
	uint64_t started, ended; /* model time */
	uint64_t memory_peak;    /* bytes */
	uint64_t busy_ns, launches, copies, lag_ns, unsupported;
};
#define ENDED_MAX 512u

/* Memory that outlives processes: memory that an exported descriptor keeps alive. */
struct host_anchor {
	struct list node; /* in host.anchors */
	struct book_holder memory;
	struct book_block *block;
	int fd;         /* the host's end: hangs up when nobody has the other one */
	uint64_t inode; /* the other end's */
};

struct host {
	struct wire_host *page;
	int page_fd;
	struct host_gpu gpu[WIRE_GPUS_MAX];
	uint32_t gpu_count;
	struct books books;
	struct partitions partitions;
	struct list processes, anchors;
	struct list dirty; /* process_queue: progress to be published */
	uint64_t next_process;
	uint64_t now; /* set by host_tick */
	uint64_t published;
	struct faults faults;
	/* Two, so that a storm of short kernels does not push out who held how much. */
	struct trace *work_trace;      /* turns, copies */
	struct trace *memory_trace;    /* memory, processes */
	struct ended ended[ENDED_MAX]; /* ring of the newest */
	uint64_t ended_count;          /* ever */
	/* Told when an anchor comes, so that its descriptor can be watched; may be NULL. */
	int (*anchor_watch)(void *context, struct host_anchor *anchor);
	void *watch_context;
	/* Ends a process's connection at once, and the process here with it; NULL: just that. */
	void (*process_end)(void *context, struct process *p);
};

/* 0 or -errno. `now` is the model's clock. */
int host_init(struct host *h, const struct spec *spec, const struct spec_driver *driver,
	      uint64_t now);
void host_finish(struct host *h);

/* The model's clock has come so far: everything due happens. */
void host_tick(struct host *h, uint64_t now);
/* Writes progress to clients' pages and wakes who waits for it. */
void host_publish(struct host *h);
/* When host_tick must be called next; UINT64_MAX: nothing is due. */
uint64_t host_wake(const struct host *h);

/* A connection of that peer. NULL: out of memory. */
struct process *host_process_add(struct host *h, pid_t pid, uid_t uid);
/* Its last holder is gone. */
void host_process_remove(struct process *p);
void host_anchor_remove(struct host *h, struct host_anchor *anchor);

/* The GPU is reset: processes that used it lose their connections, its memory and instances are
 * gone, and a MIG mode that was pending is the current one. A reboot does so with all processes,
 * and GPUs from Hopper on come up without MIG mode. */
void host_gpu_reset(struct host *h, uint32_t gpu, bool reboot);

/* NULL: no such device. */
struct part *host_part_find(const struct host *h, wire_device device);
/* A MIG instance comes: with memory of its own (capacity), or, for a compute instance, that of
 * `of`. NULL: out of memory. */
struct part *host_part_add(struct host *h, wire_device device, uint64_t capacity, struct part *of);
/* -EBUSY: processes use it. */
int host_part_remove(struct host *h, struct part *part);
/* The process's work on that part, made when missing. NULL: out of memory. */
struct process_part *process_part_get(struct process *p, struct part *part);
/* Its progress is to be published. */
void process_queue_soil(struct process_queue *q);
/* Drops the queue's items and the queue. */
void process_queue_free(struct process_queue *q);
/* It has said that it uses GPUs: from now on it is in the trace. */
void host_process_enlist(struct process *p);
/* The work of the process on a GPU, all its parts together. False: it never used it. */
bool process_summarize(const struct process *p, uint32_t gpu, struct ended *ret);
/* Bytes used on a GPU, its MIG instances included. */
uint64_t host_gpu_used(const struct host *h, uint32_t gpu);
