/* Programs outside carve, one by one: processes that the driver lists on a GPU and that belong to
 * no session. They are shown and reported. Where the administrator wants it (`outside_policy:
 * kill`) a system daemon ends those of ordinary users.
 *
 * No figure has a part in that, as neighbours move figures. A process is ended only for what
 * itself, its user or root did, and each word of that is the kernel's or the driver's:
 *
 * - the driver lists its PID among those that compute, at each look for `outside_seconds`;
 * - it is attached nowhere, and no ancestor of it is in a session (strays.h);
 * - the warden looked at its marks (proto/warden_outside.h). None of them names a session that
 *   lives, and it is in no job's cgroup and in no namespace of its own;
 * - the warden finds all of that again when it sends the signal, by a pidfd.
 *
 * Whether a mark's session lives is this daemon's word. So a variable with the ID of a session that
 * has ended, or of another user's, spares nobody. A process that names a living session of its own
 * user is that session's stray from then on, and its memory counts there. Loop thread only. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "core/outside.h"
#include "daemon/host/peer.h"
#include "daemon/settle/exempt.h"
#include "proto/warden_outside.h"

struct settling;

/* More are not looked after: a context takes some hundred MB of a GPU. */
#define OUTSIDERS_MAX 1024u
#define OUTSIDERS_OF_USER 64u
/* So many processes that are not known are looked at with one sample. */
#define OUTSIDERS_FRESH 64u
#define OUTSIDERS_BUCKETS 256u
#define OUTSIDER_COMMAND_SIZE 20

struct outsider {
	struct outsider *next, *next_pid;
	struct process_id id;
	struct outside_facts facts;
	uint64_t gpus;     /* bits of the pool's GPUs that list it */
	uint64_t computes; /* those among them that list it as one that computes */
	int64_t since; /* CLOCK_REALTIME: when it was first found outside; 0: it is in a slice */
	char command[OUTSIDER_COMMAND_SIZE];
	struct outside_life life;
	enum outside_spared spared;
	struct warden_marks marks;
	char ledger_session[MARKS_SESSION_SIZE]; /* the one whose ledger it has mapped; "": none */
	bool looking;
	uint64_t look_ns;  /* CLOCK_MONOTONIC: the warden is not asked before, */
	uint64_t facts_ns; /* nor the kernel for its user */
};

struct outside_setting {
	bool kills;
	uint64_t after_ns;
};

struct outsiders {
	struct settling *settling; /* lent */
	const pid_t *probe;        /* lent: the daemon's own child on a GPU */
	struct outside_setting setting;
	struct exempt exempt;
	bool exempt_told, exempt_unknown;
	/* Why nobody is ended though the policy says so; "": there is no such reason. */
	char problem[160];
	struct outsider *first, *by_pid[OUTSIDERS_BUCKETS];
	uint32_t count;
	uint32_t idle_seconds; /* since a sample was asked for here */
	uint32_t fresh;        /* processes that were not known, in this sample */
	size_t turn;           /* where in the driver's lists it began */
	/* The processes in slices, as of this sample, in ascending order. */
	pid_t *inside;
	size_t inside_count, inside_room;
};

/* `kills`: the policy. */
void outsiders_set(struct outsiders *outsiders, const struct outside_setting *setting,
		   const struct exempt_names *users, const struct exempt_names *groups);
/* Each second: asks for samples as the policy needs them. */
void outsiders_tick(struct outsiders *outsiders);
/* A sample is in: finds who is outside, and does what is due. After strays_sampled(). */
void outsiders_sampled(struct outsiders *outsiders);
/* The bytes that the newest samples have for it. */
uint64_t outsider_bytes(const struct outsiders *outsiders, const struct outsider *x);
struct outsider *outsiders_find(const struct outsiders *outsiders, pid_t pid);
/* Looks at one of them, as of now, and takes the step that is due (outsiders_judge.c). */
void outsider_judge(struct outsiders *outsiders, struct outsider *x, uint64_t now);
void outsiders_free(struct outsiders *outsiders);
