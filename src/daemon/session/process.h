/* Attached processes: a slot of a session's ledger each, from the attach until the driver has its
 * memory back. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "core/process_life.h"
#include "daemon/host/peer.h"

struct attach_connection;
struct gpu_sample;
struct sessions;
struct session;

/* Nobody waits longer than this for a process that is ending; counted from when that was seen. */
#define PROCESS_ENDING_MOST_NS 3000000000ull

struct process {
	struct process *next; /* session->processes */
	struct session *session;
	struct process_id id;
	uint32_t slot;
	struct process_watch *watch; /* NULL once it is dead */
	enum process_life life;
	/* The connection it attached by; NULL where `life` has none. Forked children hold it as
	 * they hold the driver's descriptors. */
	struct attach_connection *connection;
	uint64_t attach_number; /* its place among all attaches; 0: before this daemon, and not
				   connected since */
	bool sampled;           /* it was attached when the last sample started */
	bool heard;             /* this daemon had a connection of it; else one before it had */
	bool listed;            /* the driver has listed it since it attached */
	uint64_t dead_ns;       /* CLOCK_MONOTONIC */
	uint64_t ending_ns;     /* likewise: since when it is known to be ending; 0: it is not */
	/* A call that was under way when its connection had ended: since when it stands like that
	 * (CLOCK_MONOTONIC; 0: there was none). */
	uint64_t stuck_since_ns;
	uint32_t stuck_begun, stuck_done;
	uint64_t reap_sample; /* number of the first sample that can show its memory gone */
	/* The slot's words when the running sample started: figures compare only if it was
	 * quiescent. */
	uint32_t seen_begun, seen_done, seen_release_pending, seen_local_release_seq;
	uint64_t seen_maybe_freed;
	uint32_t seen_managed;
	bool seen_certain;
	uint64_t exported_fd_bytes; /* its slot's, when marks were read last */
	/* It asks to be compared by the sample of this number or a later one; 0: it does not. The
	 * memory that it gave back on a GPU of its session (position), and has charged still. */
	uint64_t ask_sample, ask_release_pending, ask_until_ns;
	uint32_t ask_position;
	enum settle_why {
		SETTLE_SECOND, /* the daemon looks: no call of the process may be under way */
		/* The process asks, and its own call may be under way; all that it charged is on
		 * the device, or maybe not. */
		SETTLE_EXACT,
		SETTLE_INEXACT,
	} ask_why;
	bool quiescent;         /* no call changed what it has over the newest sample */
	unsigned not_quiescent; /* comparisons since it last was */
	struct process_gpu {
		int64_t seen_used, seen_managed_unlisted; /* see process_managed_unlisted() */
		int64_t floor; /* settled is never set below it; see settled_aim() */
		/* By the driver: what it held when it was last seen alive, and what is listed for
		 * it, as of the last sample in which nobody else had its PID. */
		uint64_t held, listed;
		int64_t least; /* the least that a never quiescent one held beyond its charges */
	} gpu[];
};

/* Gives a living process a slot. 0; -ENOSPC no slot left, -ESRCH it has ended, or -errno. */
int process_attach(struct session *session, struct process_id id,
		   struct attach_connection *connection, struct process **ret);
/* Takes up the slot that a daemon before this one gave to a process, which may have ended since. 0
 * or -errno. */
int process_resume(struct session *session, uint32_t slot, struct process_id id);
/* A slot that no process has; 0: none left. */
uint32_t process_slot_free(const struct session *session);
/* Whether it was handed the session's wake descriptor (proto/attach.h) by this daemon. */
void process_hears(struct process *process, bool hears);
/* Whether its slot has anything charged to it. */
bool process_is_charged(const struct process *process);
/* Forgets it, leaving the slot as it is. */
void process_free(struct process *process);
/* Whether that process is attached to any session. */
bool process_is_attached(const struct sessions *sessions, struct process_id id);
/* Whether it is attached to any other session that has a slice on that GPU of the pool. */
bool process_has_slice_elsewhere(const struct process *process, int gpu);
/* Whether the driver's figure of it on GPU `position` of its session counts in that session. A
 * process may be attached to several sessions there, and holds its memory once: in that to which it
 * attached last, as one does that becomes another command by exec. */
bool process_counts_at(const struct process *process, uint32_t position);
/* Whether it has ended, and only its slot is left. */
static inline bool process_is_dead(const struct process *process)
{
	return process_life_is_over(process->life);
}
/* It has ended. The first part that finds that says so; once. */
void process_ended(struct process *process);
/* An attach connection that another daemon had, or a new one in its place, is its. */
void process_connected(struct process *process, struct attach_connection *connection);
/* The connection it attached by has ended. */
void process_disconnected(struct process *process);

/* Bytes that the driver's newest sample of that GPU of the pool says a living process holds. */
uint64_t process_figure(const struct process *process, int gpu);
/* Likewise on the GPU, or in the MIG instance, that is the session's `position`; of one of several
 * instances of a GPU only where the sample tells them apart (gpu_sample.parts_known). */
uint64_t process_figure_at(const struct process *process, uint32_t position);

/* The bytes that a dead one holds by that sample. A process that has its PID now is another one. */
uint64_t process_figure_of_dead(const struct process *process, const struct gpu_sample *sample);

/* Managed memory that it has charged and that is in no process's figure, wherever it is. */
int64_t process_managed_unlisted(const struct process *process, uint32_t position);
/* Some of what it had charged when it was sampled, or has by now, may be elsewhere than on the GPU.
 * Or it may be there and in no process's figure. The process does not say how much. */
bool process_has_managed(const struct process *process);

/* The slot that is compared with the figure of its process, which may have several: that one, if
 * it has only one. */
const struct process *process_first_twin(const struct process *process);

/* So many bytes on GPU `position` of its session are given back that the driver may keep for
 * others, if the process exported any. */
void process_orphans(struct process *process, uint32_t position, uint64_t bytes);
/* A sample is in: gives back what programs had that their processes replaced by exec; and then the
 * slots of dead processes whose memory the driver has back. */
void processes_settle_execed(struct sessions *sessions);
void processes_reap(struct sessions *sessions);
/* Has the driver asked soon whether it has the memory of `session`'s ending processes back, and
 * again until it has. Returns the number of the first sample that can show it. */
uint64_t processes_await(struct session *session);
/* Whether the driver does not answer for one of its GPUs: nobody can tell what is on it. */
bool session_is_silent(const struct session *session);
/* Bits of the pool's GPUs that this session is on. */
uint64_t session_gpu_mask(const struct session *session);
