/* Dynamic MIG: carve makes instances for requests on GPUs with the MIG role. It keeps them when
 * their sessions end, and removes them when their room is needed. core/mig.h decides. NVML is
 * called on the thread pool alone, one order a GPU at a time.
 *
 * The changes of an order are in the store before it begins (an intent), with a new
 * generation of each instance. The books are corrected by the list that NVML then gives: after each
 * order, each second, and when a daemon starts. An instance that is not in the books is somebody
 * else's: it is never touched, and what it covers is not free. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "core/mig.h"
#include "core/place.h"
#include "daemon/request/request.h"

struct error;
struct mig;
struct mig;
struct peer;
struct session;
struct sessions;

/* A session's part of one GPU. */
struct mig_share {
	uint32_t gpu; /* position in the pool */
	char uuid_text[48];
	char profile[32];
	uint64_t bytes, requested;
};

struct mig_grant {
	struct mig_share share[MIG_CHOICES_MAX];
	uint32_t count;
	bool less;     /* the 93% rule was applied */
	bool together; /* it has only its requested part of each instance: others may be there, too
			*/
};

/* Calls to the requests that wait. The daemon's root fills it in (node_hooks.c). */
struct mig_hooks {
	/* The instances of request `id` are there, or not (waiting_made()). `err` NULL, or with
	 * EXIT_CODE_NO_ROOM: the request is decided anew, and may have other instances. */
	void (*made)(void *context, const char *id, const struct mig_grant *grant,
		     const struct error *err);
	/* Whether another instance is being decided on for this session. */
	bool (*resizes)(void *context, const char *session);
};

/* Reads roles and the ledger of instances from the store. The inventory must be in. 0 or -errno;
 * *ret is to be freed either way, where it was set. */
int mig_start(struct sessions *sessions, const struct mig_hooks *hooks, void *context,
	      struct mig **ret);
/* The sessions are back: they have the instances that they name. Begins to look. */
void mig_sessions_restored(struct mig *mig);
/* The daemon stops: orders that are under way are the last, and are told to nobody. */
void mig_stop(struct mig *mig);
/* Takes NULL. No order may be under way: the loop has ended. */
void mig_free(struct mig *mig);
/* The sessions of this group's members may share instances; MIG_SHARE_NO_GROUP: only those of one
 * user may. Takes NULL. */
#define MIG_SHARE_NO_GROUP ((gid_t)-1)
void mig_share_among(struct mig *mig, gid_t group);
/* The policy by which one of several GPUs is chosen. Takes NULL. */
void mig_place_by(struct mig *mig, enum place_policy policy);
/* GPUs were drained, or resumed. Takes NULL. */
void mig_drains_changed(struct mig *mig);
/* Once a second: looks what others did, and removes what could not be removed before. */
void mig_tick(struct mig *mig);
/* A sample is in, and says what programs outside carve hold in shared instances. Takes NULL. */
void mig_sampled(struct mig *mig);

/* Whether any GPU that the request may use gives out instances. And whether its instances are being
 * looked up or changed, so that a request is to be decided when that is done. */
bool mig_offers(const struct mig *mig, const struct slice_request *request);
bool mig_changing(const struct mig *mig, const struct slice_request *request);
/* Whether GPUs that are not drained could give the request its instances if sessions ended. */
bool mig_possible(struct mig *mig, const struct slice_request *request);
/* The pool that core/mig.h decides on; its GPUs are those of the daemon's pool. NULL: nothing gives
 * instances.
 */
struct mig_pool *mig_pool_of(struct mig *mig);
/* Whether the GPU's instances are being looked at or changed: it offers nothing until then. */
bool mig_gpu_changing(const struct mig *mig, uint32_t gpu);
/* The session that has an instance (by its number there); "": none. */
const char *mig_holder(const struct mig *mig, uint32_t gpu, uint32_t at);
/* Grows whenever instances came, went or became idle. */
uint64_t mig_changes(const struct mig *mig);
/* The memory of the instance that a request gets on that GPU where it is empty; 0: none. */
uint64_t mig_bytes_for(struct mig *mig, const struct place_request *place, uint32_t gpu);
/* Decides without doing anything. `peer` asks, and shares instances with its own party alone; NULL:
 * nobody does, and no instance is joined. `closed`: one flag a GPU, of those that are kept for
 * others; NULL: none. 0; -EAGAIN: there is no room now; anything else negative: never. With *err in
 * words.
 */
int mig_would(struct mig *mig, const struct slice_request *request, const struct peer *peer,
	      const uint8_t *closed, struct mig_decision *ret, struct error *err);
/* Takes what was decided for the request `id`. 1: it is there, *ret says what; 0: it is being made,
 * and mig_hooks.made is told; negative with *err: it cannot be. */
int mig_take(struct mig *mig, const char *id, const struct mig_decision *decision, bool together,
	     struct mig_grant *ret, struct error *err);
/* Those instances are the session's; or, after all, nobody's. */
void mig_give(struct mig *mig, const struct mig_grant *grant, const char *session);
/* The answer of one GPU with the role to a request. */
struct mig_says {
	enum mig_reason reason;
	char text[160];
	uint64_t requested, capacity; /* in bytes of this GPU; its largest instance */
};
void mig_explain(struct mig *mig, const struct slice_request *request, uint32_t gpu,
		 struct mig_says *ret);
/* A request came, and that became of it. */
void mig_came(struct mig *mig, const struct slice_request *request, enum mig_admission admission);
/* For a decision about another instance for a session that nobody is in: its own may go for it. To
 * be taken back by mig_lend(mig, NULL) before anything else happens. */
void mig_lend(struct mig *mig, const struct session *session);
/* Its processes are gone, or it was moved: its instances are kept for others. */
void mig_session_ended(const struct session *session);

/* Whether the session has only a part of its instance, and others may have the rest. */
bool mig_shares(const struct session *session);
/* How many bytes a session that shares its instance could have in it now; 0: it shares none. */
uint64_t mig_part_most(const struct session *session);
/* The bytes that one CUDA context takes in the session's instance `position`; 0: not known. */
uint64_t mig_context_bytes(const struct session *session, uint32_t position);
/* Likewise, in the instance that it shares; 0: it shares none. */
uint64_t mig_part_least(const struct session *session);
/* The session's part of its instance has another size now. */
void mig_part_changed(const struct session *session);

bool mig_has_role(const struct mig *mig, uint32_t gpu);
/* Why a GPU with the role gives out no instances; "": it does, or has no role. */
const char *mig_problem(const struct mig *mig, uint32_t gpu);
/* Names an idle instance of GPU `gpu` that somebody holds, and the process, into `buf`, which is
 * returned; NULL: nobody holds one. */
const char *mig_held_text(const struct mig *mig, uint32_t gpu, char *buf, size_t size);
/* Why the driver refused lately to make or remove instances of a GPU with the role, so that the GPU
 * is left out for a while; "": it did not. */
const char *mig_refusal(const struct mig *mig, uint32_t gpu);
/* Per cent of the last second that a GPU with the role computed, by the driver; -1: not known. */
int mig_utilization(const struct mig *mig, uint32_t gpu);
/* Likewise an instance of a GPU with the role; at least 1 where it computed at all. -1: not known,
 * or not known lately. */
int mig_instance_utilization(const struct mig *mig, uint32_t gpu, const char *uuid_text);
/* Starts of a profile, by its position in the die, that the driver refused lately though nothing is
 * in the way there; a bit each. */
uint32_t mig_refused(const struct mig *mig, uint32_t gpu, uint8_t profile);
/* Instances there that carve did not make, as far as it looks. */
uint32_t mig_foreign(const struct mig *mig, uint32_t gpu);
/* The memory that sessions have in instances there. */
uint64_t mig_promised(const struct mig *mig, uint32_t gpu);
/* The memory of the largest instance that a request could get now. */
uint64_t mig_available(const struct mig *mig, uint32_t gpu);
/* Gives GPUs (bit = position in the pool) the role, or takes it. 0, or negative with *err. */
int mig_role_set(struct mig *mig, uint64_t mask, bool on, const struct peer *actor,
		 struct error *err);
/* Removes idle instances that nobody has used for so long, ns. Returns how many are to go. */
unsigned mig_collect(struct mig *mig, uint64_t older_ns);
/* The driver's IDs of an instance of a GPU with the role. False: they are not known (yet). */
bool mig_instance_ids(const struct mig *mig, uint32_t gpu, const char *uuid_text,
		      uint32_t *ret_gpu_instance, uint32_t *ret_compute_instance);
/* The next smaller profile than what was granted for so many bytes, where it nearly holds them;
 * NULL: none, or the GPU is not known. */
const char *mig_near(const struct mig *mig, uint32_t gpu, uint64_t requested, uint32_t compute,
		     uint64_t *ret_bytes, double *ret_compute);
/* Whether the request, asked for anew on the GPU, would get the profile that a session's `part`
 * has already; *ret_requested is then what it asks for in bytes. */
bool mig_keeps(struct mig *mig, const struct store_gpu *part, uint32_t gpu,
	       const struct slice_request *request, uint64_t *ret_requested);
