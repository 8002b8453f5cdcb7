/* The inside of mig.h: what is known of instances, GPU by GPU, and how NVML's lists change it. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "backend/gpm.h"
#include "backend/gpus.h"
#include "backend/instances.h"
#include "core/mig.h"
#include "daemon/store/store.h"

struct groups;
struct mig_hooks;
struct mig_probe;
struct mig_share;
struct pool;
struct session;
struct sessions;

/* Beside struct mig_instance. */
struct mig_detail {
	struct instance_place place;
	char uuid_text[48];
	uint8_t gpu_instance, compute_instance; /* the driver's IDs plus 1; 0: not known */
	uint64_t bytes, reserved;
	uint64_t generation;
	char session[STORE_ID_SIZE];     /* one of those that share it */
	int64_t since;                   /* in this state: CLOCK_REALTIME, ns */
	uint32_t pid[INSTANCE_PIDS_MAX]; /* the processes that the driver lists in it */
	uint32_t pid_count;
	int8_t utilization; /* per cent of the time; GPM_UNKNOWN */
	/* Somebody holds it who is none of ours: neither given nor removed before. */
	uint64_t held_until_ns;
};

struct mig_board {
	bool role;
	bool known;    /* its profiles are, and what there is */
	bool changing; /* an order is under way */
	bool collect;  /* then those that were idle for so long are to go: */
	uint64_t collect_older_ns;
	char why[96];       /* it cannot be used; "": it can */
	bool silent;        /* as the driver fails to say what instances it has: it may yet */
	int8_t utilization; /* the GPU's, per cent of the time; GPM_UNKNOWN */
	uint64_t looked_ns; /* CLOCK_MONOTONIC, when NVML was asked what follows */
	uint64_t available; /* the largest instance that could be had, when that was last known */
	struct mig_instance instance[MIG_INSTANCES_MAX];
	struct mig_detail detail[MIG_INSTANCES_MAX];
	uint32_t count;
	uint32_t refused[MIG_PROFILES_MAX]; /* starts of each profile, by the driver */
	uint64_t refused_ns;                /* when it refused one last */
	/* The driver refused to make or remove an instance, for a reason of the whole GPU. Until
	 * then none is asked for there. */
	uint64_t frozen_until_ns; /* CLOCK_MONOTONIC; 0: it did not */
	const char *refusal;      /* that reason in words; static */
	/* One CUDA context in an instance of each profile, bytes; 0: not known. */
	uint64_t context[MIG_PROFILES_MAX];
	uint64_t context_learned[MIG_PROFILES_MAX];  /* likewise, in one */
	uint64_t context_again_ns[MIG_PROFILES_MAX]; /* after a failure, CLOCK_MONOTONIC */
	/* The instances that NVML listed last. */
	struct instance_place there[MIG_INSTANCES_MAX];
	size_t there_count;
};

struct mig {
	/* Lent. */
	struct sessions *sessions;
	struct pool *gpus;
	const struct mig_hooks *hooks;
	void *context; /* the hooks' argument */
	bool stopping;
	struct instances *driver;
	struct gpm *gpm;      /* NULL: this driver has none */
	struct mig_pool pool; /* its GPUs are those of `gpus` */
	struct mig_gpu gpu[GPUS_MAX];
	struct mig_die die[MIG_DIES_MAX];
	struct instance_profile profile[MIG_DIES_MAX][MIG_PROFILES_MAX];
	struct mig_board board[GPUS_MAX];
	uint64_t generation;                 /* the last one that was given */
	uint32_t orders;                     /* under way */
	uint64_t changes;                    /* mig_changes() */
	struct mig_mode_change *mode_change; /* under way; NULL: none */
	struct mig_probe *probes;            /* that run */
	gid_t share_group;                   /* mig_share_among() */
};

/* Stands for those who may share an instance with this user: all who count to one owner, or all
 * who are in the group that the administrator named. */
uint64_t mig_party(const struct mig *mig, uid_t uid, gid_t gid, const struct groups *groups);
/* Makes the pool follow the board. */
void mig_board_publish(struct mig *mig, uint32_t gpu);
/* The number of the die of these kinds, a new one if need be; -1: there are too many. */
int mig_die_find(struct mig *mig, const struct instance_kinds *kinds);
/* The number of NVML's profile ID in a GPU's die; MIG_NO_PROFILE: none. */
uint8_t mig_profile_of(const struct mig *mig, uint32_t gpu, uint32_t profile_id);
/* A new entry; NULL: there is no room. */
struct mig_detail *mig_entry_add(struct mig *mig, uint32_t gpu, const struct instance_place *place,
				 enum mig_state state);
/* The entry at this place that is not foreign; -1: none. */
int mig_entry_find(const struct mig_board *board, const struct instance_place *place);
void mig_entry_set(struct mig_board *board, uint32_t at, enum mig_state state);
/* As it is in the store. */
void mig_entry_record(const struct mig *mig, uint32_t gpu, uint32_t at, struct store_instance *ret);
/* Writes it; a failure is logged, and put right by the next daemon. */
void mig_entry_store(struct mig *mig, uint32_t gpu, uint32_t at);
/* A session on it has less of it than all: others may be there, too. */
bool mig_is_shared(const struct mig *mig, const struct mig_detail *detail);
/* The first session from `s` on (NULL: none) that names this instance. */
const struct session *mig_session_on(const struct session *s, const char *uuid_text);
/* Sessions that name its instances have them, and no others: whichever was written first when a
 * daemon was ended. */
void mig_sessions_match(struct mig *mig, uint32_t gpu);
/* NVML lists these, asked at `looked_ns`. Sessions whose instances are gone are ended. */
void mig_board_settle(struct mig *mig, uint32_t gpu, const struct instance *list, size_t count,
		      uint64_t looked_ns);
/* Whether NVML was asked who is in the idle instance since its last session ended. */
bool mig_entry_seen(const struct mig_board *board, uint32_t at);
/* Whether it has no session, and somebody holds it. */
bool mig_entry_held(const struct mig_board *board, uint32_t at);
/* These figures are of what NVML listed with them. */
void mig_board_measured(struct mig_board *board, const struct instance *list, size_t count,
			int8_t utilization, const int8_t *of_instances);
/* Whether the daemon looks after the GPU's instances: it has the role, is in MIG mode, and is this
 * daemon's. */
bool mig_board_ours(const struct mig *mig, uint32_t gpu);
/* Likewise, and it is not drained. */
bool mig_board_gives(const struct mig *mig, uint32_t gpu);
/* Fills a request's share with the UUID and the real size of the instance at this place. False: it
 * is not there. */
bool mig_entry_share(const struct mig *mig, const struct instance_place *place, bool together,
		     struct mig_share *share);
