/* Dynamic MIG: which instance a request gets, where it is made, and which idle ones have to go.
 * Pure: plain structs in, plain structs out; no clock, no I/O, no allocation. A pool is for one
 * thread at a time: mig_decide() keeps scores in its dies and restores its GPUs before it returns.
 *
 * Terms. A profile is a size of GPU instance as NVML describes it. A placement is a profile at a
 * start. A die is what GPUs with the same profiles and legal placements have in common. Everything
 * here comes from NVML's answers: nothing knows a profile's name, ID, size or number, or what a
 * certain GPU can hold.
 *
 * Memory units are NVML's: a placement covers `size` of them from `start`. They are counted as
 * bits of a word, unit 0 the lowest. Sizes in bytes, shares in millionths (SHARE_ONE).
 *
 * Choosing. The smallest profile of the die that fulfils the request is taken. Its instance is, in
 * this order: an idle instance; a new one at a free placement; a new one where idle instances are
 * destroyed for it. Free placements are compared by their cost: how much of what may be asked next
 * they spoil (core/mig_score.c). Where requests have been finding no room, cost also outweighs the
 * order above (MIG_SCARCE). At equal cost the fuller GPU is taken, so that others become empty.
 * With `spread` the emptiest GPU is taken first, in parts of its units, and cost decides among
 * equal GPUs only. Instances in use are never moved. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Profiles of a die. NVML numbers 18 kinds in its version 13; a die has 5 to 11 of them. */
#define MIG_PROFILES_MAX 32u
/* Memory units of a die: bits of a word. Known dies have 4 to 12. */
#define MIG_UNITS_MAX 32u
/* Instances of one GPU: each covers a unit at least. */
#define MIG_INSTANCES_MAX MIG_UNITS_MAX
/* Instances of one request (what a ledger has room for, see place.h). */
#define MIG_CHOICES_MAX 64u
/* In place of a profile's number: none. */
#define MIG_NO_PROFILE UINT8_MAX

/* The difference of a profile from the ordinary one of its size. Special ones are given only to
 * those who name them; without media engines also where no ordinary one is left. */
enum mig_flags {
	MIG_MEDIA = 1 << 0, /* "+me": with engines for video and images that the ordinary lacks */
	MIG_NO_MEDIA = 1 << 1, /* "-me": without any */
	MIG_GRAPHICS = 1 << 2, /* "+gfx" */
	MIG_OTHER = 1 << 3,    /* a kind that this code does not know */
};

/* Engines that a GPU has a fixed number of, and some profiles take. */
enum mig_engine {
	MIG_DECODERS,
	MIG_ENCODERS,
	MIG_JPEG,
	MIG_OPTICAL_FLOW,
	MIG_ENGINES,
};

/* All but the last three lines are nvmlGpuInstanceProfileInfo's and PossiblePlacements' answers. */
struct mig_profile {
	uint64_t memory_bytes; /* 0: NVML does not say (shared memory); only given by name */
	uint32_t sms;
	uint32_t slices; /* compute slices */
	uint32_t limit;  /* instances at once, as NVML says; 0: not known */
	uint16_t engines[MIG_ENGINES];
	uint32_t flags;  /* enum mig_flags, see mig_flags_of() */
	uint32_t starts; /* legal ones, a bit each */
	uint8_t size;    /* memory units of each placement */
};

/* The kind of profile that NVML's enumeration (not its profile ID) says it is. */
uint32_t mig_flags_of(uint32_t nvml_enum);

/* How often each profile was asked for: arrivals, decayed. */
struct mig_demand {
	double arrivals[MIG_PROFILES_MAX];
	uint32_t fresh; /* arrivals since the scores were computed from them */
};

/* Scores of occupancies: a direct-mapped cache. */
#define MIG_SCORES 512u
struct mig_scores {
	double weight[MIG_PROFILES_MAX]; /* the weight of each free placement of the profile */
	double empty;                    /* the score of an empty GPU */
	double score[MIG_SCORES];
	uint32_t mask[MIG_SCORES];
	bool known[MIG_SCORES];
};

struct mig_die {
	/* The caller's. */
	struct mig_profile profile[MIG_PROFILES_MAX];
	uint32_t profile_count;
	/* mig_die_init()'s. */
	uint32_t units;                /* memory units: all that placements cover */
	uint32_t sms;                  /* the largest profile's */
	uint32_t engines[MIG_ENGINES]; /* the GPU's engines; UINT32_MAX: they limit nothing */
	struct mig_demand demand;
	struct mig_scores scores;
};

/* Checks what the caller filled in, derives the rest, and forgets all demand. -EINVAL: a placement
 * of no unit, or beyond MIG_UNITS_MAX; -E2BIG: too many profiles. A GPU that has no profiles (a
 * vGPU guest) makes a die that fulfils nothing. */
int mig_die_init(struct mig_die *die);
/* Whether two GPUs' answers are the same, so that they can share a die. */
bool mig_die_equal(const struct mig_die *a, const struct mig_die *b);

/* The life of an instance. */
enum mig_state {
	MIG_FOREIGN,  /* carve did not make it: never touched */
	MIG_CREATING, /* decided on, not usable yet */
	MIG_BUSY,     /* a session has it */
	MIG_IDLE,     /* kept for reuse; may be destroyed */
	MIG_REMOVING,
	MIG_DEBT, /* carve's, half made or half removed, and could not be destroyed yet */
	MIG_GONE, /* no instance any more */
	MIG_STATES,
};
/* "foreign", "creating", ...: as `carve mig list` shows it. */
const char *mig_state_text(enum mig_state state);
/* Whether an instance may go from one state to the other. All may be gone at any time: a reset of
 * the GPU takes them. */
bool mig_state_may(enum mig_state from, enum mig_state to);

struct mig_instance {
	uint64_t room;   /* MIG_BUSY, shared by several requests: what those leave, bytes; or 0 */
	uint64_t party;  /* where there is room: to whom the requests belong that share it */
	uint64_t used;   /* last use, by any clock that only grows; of idle ones */
	uint8_t profile; /* number within the die; MIG_NO_PROFILE: none that NVML lists */
	uint8_t start, size;
	enum mig_state state;
};

struct mig_gpu {
	/* The caller's. */
	const struct mig_instance *instances;
	uint32_t instance_count;
	/* Starts of each profile that the driver refused though they looked free; the caller clears
	 * it when an instance of this GPU comes or goes. NULL: none. */
	const uint32_t *refused;
	/* Cost of one CUDA context in an instance of each profile, bytes; 0: not known. NULL: none
	 * is. */
	const uint64_t *context;
	uint16_t die; /* number within the pool */
	bool offered; /* false: not ours to give (no role, lost, being reset) */
	bool frozen;  /* idle instances are given as they are: none is made or destroyed */
	/* mig_gpu_update()'s: of the instances. */
	uint32_t live;          /* units of all but idle ones */
	uint32_t idle;          /* units of idle ones */
	uint32_t idle_profiles; /* profiles of idle ones, a bit each */
	uint32_t blocked;       /* profiles that limits or engines allow no more of */
	uint32_t taken_mask;    /* instances that this decision has used already, a bit each */
	uint32_t live_count;    /* instances that are not idle */
	uint64_t idle_oldest;   /* least last use of idle ones; UINT64_MAX: none */
	bool chosen;            /* this decision has an instance here already */
	uint16_t engines[MIG_ENGINES];
	uint8_t count[MIG_PROFILES_MAX];
};

/* To be called when the instances of a GPU changed. -EINVAL: more instances than units, or one
 * outside of the word. */
int mig_gpu_update(struct mig_gpu *gpu, const struct mig_die *die);

struct mig_pool {
	struct mig_die *dies;
	struct mig_gpu *gpus;
	uint32_t die_count, gpu_count;
	bool spread; /* the caller's: PLACE_SPREAD (core/place.h) */
	/* Arrivals that found no room at once, decayed as the demand is; and those of them that
	 * stayed to wait. */
	double turned_away, queued;
};

/* If at least this many of the last arrivals found no room, room is scarce. Then the placement that
 * spoils least is taken, and of equals the one that is there soonest. Below that no request is
 * turned away, and nobody misses what a placement spoils. In arrivals; their half-life is
 * MIG_HALF_LIFE: one request without room counts for the next 813. With 10 in place of this, 1,000
 * GPUs that turned 3% away accepted 0.4 points less. */
#define MIG_SCARCE 0.2
/* If at least this many of the last arrivals wait (of 505 that count), the next one soon takes what
 * is freed. No GPU becomes empty by itself then, so none is kept free. It is 30% of the arrivals;
 * with 10 in place of this, 8 GPUs at a load of 0.7 had longer waits. With no such rule, carve's
 * mean wait with 100 GPUs was 3 to 7% longer than FGD's in three cases. */
#define MIG_QUEUES 150.0
/* In arrivals. Tried with 100 GPUs: a half-life that grows with the pool (10 a GPU). Workloads of
 * mostly small requests gained 0.3 to 0.6 points where requests are lost. Bimodal ones lost 0.2 to
 * 0.6, and waits were no better. */
#define MIG_HALF_LIFE 350.0

enum mig_kind {
	MIG_ASK_BYTES,
	MIG_ASK_SHARE, /* a share of the die's memory units; SHARE_ONE: a whole GPU */
	MIG_ASK_PROFILE,
};

struct mig_request {
	enum mig_kind kind;
	uint64_t bytes;         /* MIG_ASK_BYTES */
	uint32_t share;         /* MIG_ASK_SHARE */
	const uint8_t *profile; /* MIG_ASK_PROFILE: its number in each die of the pool, or
				   MIG_NO_PROFILE */
	uint32_t starts; /* MIG_ASK_PROFILE: only at these, a bit each; 0: wherever it is legal */
	const uint32_t *starts_on; /* likewise, for each GPU of the pool; NULL: see `starts` */
	uint32_t compute;          /* least share of the SMs of a GPU's largest profile; 0: any */
	uint32_t count;            /* instances, 1 to MIG_CHOICES_MAX */
	const uint8_t *allowed;    /* one flag a GPU; NULL: all */
	bool apart;                /* each on another GPU */
	bool strict;               /* no tolerance: never fewer bytes */
	bool together;             /* MIG_ASK_BYTES: others of `party` may be in it, too */
	uint64_t party;            /* any number that stands for those who trust each other */
};

/* Which profiles of a die fulfil a request, the best first. */
struct mig_match {
	uint8_t fit[MIG_PROFILES_MAX];  /* profiles of one size: the ordinary one, then those that
					   can stand  in for it */
	uint8_t less[MIG_PROFILES_MAX]; /* likewise where the 93% rule lets fewer bytes do */
	uint8_t fit_count, less_count;
	uint8_t near; /* the next smaller profile, where it has 93% of what was asked; or
			 MIG_NO_PROFILE */
};

void mig_match(const struct mig_die *die, uint32_t die_number, const struct mig_request *request,
	       struct mig_match *ret);
/* The requested memory, in bytes of this die (shares: of its largest profile). 0 for a profile that
 * the die does not have. */
uint64_t mig_requested(const struct mig_die *die, uint32_t die_number,
		       const struct mig_request *request);

enum mig_step {
	MIG_REUSE,   /* `instance` as it is */
	MIG_CREATE,  /* at a free placement */
	MIG_REPLACE, /* likewise, after the instances in `destroy` have been destroyed */
	MIG_JOIN,    /* `instance`, which others have as well: mig_join() */
};

struct mig_choice {
	enum mig_step step;
	uint32_t gpu;      /* number within the pool */
	uint32_t instance; /* MIG_REUSE, MIG_JOIN: number within the GPU's instances */
	uint32_t destroy;  /* MIG_REPLACE: a bit for each of them */
	uint8_t profile, start;
	uint8_t near;   /* as in struct mig_match */
	bool less;      /* the 93% rule was applied */
	bool doubtful;  /* NVML's limits or engines say that it cannot be made; they may be wrong */
	uint64_t bytes; /* granted: the profile's; an instance may have a little more or less */
	uint64_t requested; /* in bytes of this GPU */
};

struct mig_decision {
	struct mig_choice choice[MIG_CHOICES_MAX];
	uint32_t count;
};

/* Decides for all instances of a request together. 0; -EAGAIN: there is no room now; -EDOM: there
 * never is, whoever leaves. Does not count as an arrival. */
int mig_decide(struct mig_pool *pool, const struct mig_request *request, struct mig_decision *ret);
/* For a request that may share: the instance that its party uses with the least room that is
 * enough. Requests of different parties never share. 0; -EAGAIN: there is no such instance. */
int mig_join(const struct mig_pool *pool, const struct mig_request *request,
	     struct mig_decision *ret);
/* The outcome for a request at its arrival. */
enum mig_admission {
	MIG_GRANTED,
	MIG_QUEUED, /* it waits for room */
	MIG_REFUSED,
};

/* A request came (once, however often it is decided): what it asks for is to be expected again. */
void mig_arrival(struct mig_pool *pool, const struct mig_request *request,
		 enum mig_admission admission);

/* Dies of one pool, at most. */
#define MIG_DIES_MAX 64u

/* Why one GPU does not fulfil a request now. */
enum mig_reason {
	MIG_FITS,
	MIG_NOT_ALLOWED, /* not in `allowed` */
	MIG_NOT_OFFERED,
	MIG_NO_SUCH_PROFILE,  /* it has none of that name; or none at all */
	MIG_TOO_LARGE,        /* no profile has so much memory */
	MIG_TOO_MUCH_COMPUTE, /* no profile has so many SMs */
	MIG_TOO_SMALL,        /* a part of an instance that would not hold one context */
	MIG_FULL,             /* sessions' instances are in the way */
	MIG_FULL_FOREIGN,     /* instances that carve did not make are: without them it would fit */
	MIG_FULL_CHANGING,    /* instances that are being made or removed are */
	MIG_FULL_LIMIT,       /* there is a place, but no more of the profile may be there */
	MIG_FULL_REFUSED,     /* there is a place, but the driver refused it lately */
	MIG_FULL_FROZEN,      /* there is a place, but the GPU is frozen */
};

enum mig_reason mig_check(struct mig_pool *pool, uint32_t gpu, const struct mig_request *request);
/* Whether the driver refused the profile wherever no busy or foreign instance is in the way. */
bool mig_is_refused(const struct mig_gpu *gpu, const struct mig_die *die, uint8_t profile);
/* Whether another GPU of the same kind has a place for the profile. */
bool mig_is_elsewhere(const struct mig_pool *pool, uint32_t gpu, uint8_t profile);
/* The profile that a request would get on a GPU if that were empty; MIG_NO_PROFILE: none. */
uint8_t mig_wanted(const struct mig_pool *pool, uint32_t gpu, const struct mig_request *request);

/* Decides where a memory request goes in a pool that has fraction GPUs, too. True: to the MIG
 * instances that were decided on. False: to a fraction of `fraction_bytes` (on each GPU;
 * `fraction_less`: by the 93% rule). A grant in full goes before one by the 93% rule; then the one
 * that wastes less is taken. Between equals it is the fraction, as a GPU that is cut by the byte
 * holds whatever may be asked next. */
bool mig_preferred(const struct mig_decision *decision, uint64_t fraction_bytes,
		   bool fraction_less);

/* The cost of a placement on a GPU with these units taken. It is how much of what may be asked next
 * it spoils, as a part of what an empty GPU can take (0 to 1). For simulations and tests. */
double mig_cost(struct mig_die *die, uint32_t taken, uint8_t profile, uint8_t start);
/* Units of a placement. */
static inline uint32_t mig_units(uint8_t start, uint8_t size)
{
	return (uint32_t)(((1ull << size) - 1) << start);
}
