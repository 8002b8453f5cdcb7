/* The inside of the lease policy; for src/core/lease*.c alone.
 *
 * Every client has an account (struct seat) on each of its GPUs. It is credited with its share of
 * the GPU's time as that passes, and debited what it held. A client with credit left, or nearly
 * left (lease_choose.c), is due. The due client whose credit must be used soonest goes first
 * (earliest virtual deadline). So nobody is further behind than a lease, or ahead than a lease and
 * a half. Credits are in ns * ppm, hence exact.
 *
 * Four accounts can pay for a turn:
 *   SHARE   the client's own fraction.
 *   SAVED   strict mode: what it slept through, up to a plan; only time that nobody is due for.
 *   POOL    memory-sized clients have one credit together: in strict mode what fractions leave, at
 *           least 1%; in fair mode that 1%, where fractions leave less. This is the phantom
 *           client too: while none of them wants, the time stays idle.
 *   EXCESS  fair mode: time that nobody is due for. A second virtual clock with equal weights; in
 *           strict mode that clock has those that the pool pays for take turns.
 * FLUID is SHARE and EXCESS at the rate of the share, for a client that nobody else waits for.
 * Where somebody came to wait and the turn overran, SHARE pays for the overrun, if there is a
 * share.
 *
 * A GPU's clocks stand still while a client is due but can't run yet. That is between a grant and
 * the gate's opening, or while the GPU is kept for a gang. So shares are shares of the time that
 * can be used. Where it has time to spare later, they catch up. */
#pragma once

#include "core/lease.h"

/* A shorter lease than that isn't worth the switch (0.3 ms): 2%. */
#define LEASE_USEFUL_NS 5000000ull
/* How long after the last rival went a holder still runs with little in flight. */
#define LEASE_LATELY_NS 1000000000ull
/* A turn that goes on for longer after its end has a long kernel: more may not be in flight. */
#define LEASE_LATE_NS 5000000ull
/* Times that a gang whose turn it is lets others go before GPUs are kept for it. */
#define LEASE_PASSED_MAX 2u
/* Gangs looked at in one decision; then it is a single one's turn. */
#define LEASE_GANGS_MAX 4u
#define LEASE_BUCKETS 1024u
#define LEASE_SECONDS 60u
/* Owners whose debts a GPU remembers; the smallest is forgotten first. */
#define LEASE_DEBTS 64u

enum lease_account {
	ACCOUNT_SHARE,
	ACCOUNT_SAVED,
	ACCOUNT_POOL,
	ACCOUNT_EXCESS,
	ACCOUNT_FLUID,
};

/* REST -> GRANTED when it is the client's turn, -> OPEN when its gate is open, -> CLOSING when the
 * lease is revoked. Any state -> REST when the gate is closed, or the client is removed. REST ->
 * OPEN: its process opened the gate by itself. */
enum lease_state {
	STATE_REST,
	STATE_GRANTED, /* told the caller to open */
	STATE_OPEN,
	STATE_CLOSING, /* told the caller to close */
};

struct lease_client;

#define LEASE_ACCOUNTS 5

/* Only ever counts up: what each account paid for, and what was allowed besides; ns. */
struct lease_meter {
	uint64_t paid[LEASE_ACCOUNTS];
	uint64_t allowed;
};

struct lease_seat {
	struct lease_client *client;
	uint32_t gpu, index; /* index: in the GPU's array */
	enum lease_account account;
	int64_t credit, saved; /* ns * ppm; credit as of `mark` */
	int64_t key;           /* when its turn is due, as of the last look; INT64_MAX: it is not */
	uint64_t mark;         /* on the GPU's share clock */
	uint64_t since;        /* when it came, by the GPU's time */
	uint64_t excess;       /* virtual time, ns */
	uint64_t excess_aside; /* the excess in the mode that is not on: lease_set() */
	uint64_t served;       /* when it was last charged */
	uint64_t rested;       /* when its client went to sleep; 0: it never did */
	/* lease_measure.c: the meter, and as it stood at the last two marks. */
	struct lease_meter meter, meter_from, meter_to;
	int64_t credit_from, credit_to;
	/* Between so many marks in a row it had no turn, and by its own word no work on the GPU. */
	uint32_t silent;
	uint64_t charged, returned; /* by measurement; for showing */
};

/* ns; below 0: what is held and not in the driver's figures yet. `shown`: of that, what was
 * charged.
 */
struct lease_account_sum {
	int64_t ns, shown;
};

/* The time that an owner used beyond its turns, as measured. */
struct lease_outside {
	uint64_t owner;
	struct lease_account_sum whole, beyond; /* with and without what is borne */
	uint64_t had, taken;                    /* more of these by the last measurement */
	uint64_t gone; /* the time of clients that left, which the next measurement will have; ns */
};

/* Time held, by second and by plan. */
struct lease_history {
	uint64_t came;
	uint64_t second[LEASE_SECONDS + 1], second_now;
	uint64_t plan_from, plan_ns, plan_now, plan_held, plan_last;
	/* Time received of the last plan before plans became others, if they did: it is shown
	 * until one of these is over. */
	bool changed;
	uint32_t received_before;
};

struct lease_client {
	struct lease_client *next; /* the next one in its bucket */
	uint64_t id, owner, gpus;
	uint32_t fraction, seat_count;
	bool wants, open_ended, contended;
	bool barred, asks; /* asks: what it would want if it was not barred */
	bool goes_on;      /* by its own word work of it is on the GPU, as last told */
	bool fills;        /* it has a GPU that is kept for a gang, until that can have it */
	enum lease_state state;
	uint64_t covers; /* GPUs that its lease holds */
	uint64_t length, opened, charged, until;
	uint64_t overrun; /* the mean overrun of its last leases, about; ns */
	uint64_t burst;   /* its last turn that it ended itself; 0: it was longer since; ns */
	uint64_t wait_from;
	uint32_t passed;
	uint64_t skipped; /* the decision that left it out */
	struct lease_client_stat stat;
	struct lease_history history;
	struct lease_seat seat[];
};

/* Debts of one owner's clients at the time when they were removed: lease_debt.c. */
struct lease_debt {
	uint64_t owner;
	uint64_t until; /* on the GPU's share clock; `rate` of it */
	uint64_t excess;
	uint32_t rate;  /* ppm; 0: no such debt */
	uint32_t count; /* clients with that `excess`; 0: none */
};

struct lease_gpu {
	struct lease_setting setting;
	uint64_t plan; /* lease_plan_ns(&setting) */
	uint32_t index;
	struct lease_seat **seats;
	uint32_t count, room;
	uint32_t granted;                      /* ppm, as lease_promise() told */
	uint32_t promised, promised_active;    /* ppm, clients'; active: wants or holds */
	uint32_t active, wanting, pool_active; /* clients; pool: memory-sized ones */
	uint32_t holders, opening;
	struct lease_client *holder; /* right where holders == 1 */
	struct lease_client *reserved;
	struct lease_seat *waker;
	uint64_t at;                      /* clocks are as of */
	uint64_t time, plan_base;         /* ns that count, and where plan 0 began */
	uint64_t share_clock, share_rest; /* as time, but slower where shares are scaled down */
	uint64_t stalled;
	int64_t pool;
	uint64_t excess, excess_aside;
	struct lease_debt debt[LEASE_DEBTS];
	struct lease_outside *outside;
	uint32_t outside_count;
	uint64_t measured_from, measured_to; /* the last two marks; 0: there were none */
	uint64_t clock_from, clock_to;       /* these marks by the GPU's own clock */
	uint64_t rival_until;
	uint64_t overran, overran_at; /* the longest overrun of late, and when it ended */
	uint64_t late_until;          /* beside long kernels: lease_turn() */
	uint64_t due;
	bool dirty;
};

struct lease_table {
	struct lease_client *bucket[LEASE_BUCKETS];
	uint64_t sliced, round; /* sliced: mask of GPUs whose mode isn't off */
	struct lease_gpu gpu[LEASE_GPUS_MAX];
};

/* A turn that somebody could have. seat NULL: nobody; then `wait` is how long at least (ns;
 * UINT64_MAX: until something happens). */
struct lease_choice {
	struct lease_seat *seat;
	enum lease_account account;
	uint64_t length, wait;
};

#define lease_each_gpu(t, mask, g)                                                        \
	for (uint64_t mask_ = (mask); mask_ && ((g) = &(t)->gpu[__builtin_ctzll(mask_)]); \
	     mask_ &= mask_ - 1)

static inline uint32_t lease_bucket(uint64_t id)
{
	return (uint32_t)(id * 0x9e3779b97f4a7c15ull >> 54);
}

/* NULL: there is no such client. */
static inline struct lease_client *lease_find(const struct lease_table *t, uint64_t id)
{
	struct lease_client *c = t->bucket[lease_bucket(id)];

	while (c && c->id != id)
		c = c->next;
	return c;
}

static inline uint64_t lease_gpus(const struct lease_table *t, const struct lease_client *c)
{
	return c->gpus & t->sliced;
}

static inline bool lease_is_gang(const struct lease_table *t, const struct lease_client *c)
{
	uint64_t gpus = lease_gpus(t, c);

	return gpus & (gpus - 1);
}

static inline bool lease_active(const struct lease_client *c)
{
	return c->wants || c->state != STATE_REST;
}

/* How far a clock is from a moment; 0: it is past. */
static inline uint64_t lease_ahead(uint64_t moment, uint64_t clock)
{
	return moment > clock ? moment - clock : 0;
}

static inline uint64_t lease_useful(const struct lease_gpu *g)
{
	uint64_t half = g->setting.lease_ns / 2;

	return half < LEASE_USEFUL_NS ? half : LEASE_USEFUL_NS;
}

/* lease_account.c: clocks, credits, charges. */
struct lease_seat *lease_seat(struct lease_client *c, uint32_t gpu);
/* Brings the GPU's clocks up to `now`. To be done before anything about it changes. */
void lease_settle(struct lease_gpu *g, uint64_t now);
/* Lets `ns` of the clocks pass. */
void lease_advance(struct lease_gpu *g, uint64_t ns);
/* Promises, in ppm: to clients, and of whom there is no client yet. */
uint32_t lease_promised(const struct lease_gpu *g);
/* Fractions leave the memory-sized too little: these have their floor. In fair mode too, though
 * some of the fractions sleep and nobody is scaled down: who naps would give it and take it back
 * before it is anybody's turn. */
bool lease_squeezed(const struct lease_gpu *g);
/* The credit of a seat, or of the pool, in ppm of the GPU's time; at least 1. */
uint32_t lease_seat_rate(const struct lease_gpu *g, const struct lease_seat *s);
uint32_t lease_pool_rate(const struct lease_gpu *g);
/* On settled clocks. */
int64_t lease_credit(const struct lease_gpu *g, const struct lease_seat *s);
/* It has a share, has had nothing of it yet, and owes nothing: its first turn comes before others'.
 */
bool lease_is_new(const struct lease_gpu *g, const struct lease_seat *s);
/* The longest turn that its share pays a client for; ns. A lease; less in strict mode beside work
 * that outlasts its turns, for which the others then wait for less. */
uint64_t lease_turn(const struct lease_gpu *g);
/* ns * ppm of a lease, or of the share of a plan or two turns where these are less. */
int64_t lease_quantum(const struct lease_gpu *g, const struct lease_seat *s);
/* The longest turn that its share pays for: UINT64_MAX once it is no newcomer any more. */
uint64_t lease_young(const struct lease_gpu *g, const struct lease_seat *s);
/* The part of the quantum that its next turn takes: in fair mode, where the last one was a burst,
 * as much as that, or what is worth a lease. */
int64_t lease_need(const struct lease_gpu *g, const struct lease_seat *s);
/* The most that it may have in SAVED. */
int64_t lease_saved_max(const struct lease_gpu *g, const struct lease_seat *s);
/* Brings the credit up to date. */
void lease_seat_fold(struct lease_gpu *g, struct lease_seat *s);
/* Its claim to the time that is left over is a lease at most. */
void lease_seat_level(const struct lease_gpu *g, struct lease_seat *s);
/* The end of its sleep: credit slept through is cut, or saved. */
void lease_seat_wake(struct lease_gpu *g, struct lease_seat *s);
/* Brings credits within what the setting allows. */
void lease_seat_clamp(struct lease_gpu *g, struct lease_seat *s);
/* Charges what a holder had up to `now`, on settled clocks of its own. */
void lease_charge(struct lease_table *t, struct lease_client *c, uint64_t now);
/* Charges what ran outside of its leases, on settled clocks. */
void lease_charge_leak(struct lease_gpu *g, struct lease_seat *s, uint64_t ns);
/* A lease on the GPU went on for so long after it was to end; on settled clocks. */
void lease_overrun_note(struct lease_gpu *g, uint64_t ns);
/* The longest that one did of late, as far as it counts; ns. */
uint64_t lease_overran(const struct lease_gpu *g, uint64_t now);
/* lease_settle(), and the holder's charge. */
void lease_sync(struct lease_table *t, struct lease_gpu *g, uint64_t now);

/* lease_measure.c: the client is being removed. */
void lease_meter_leave(struct lease_gpu *g, const struct lease_seat *s);

/* lease_debt.c: what clients that are gone owe. On settled clocks. */
/* The client is being removed: what it owes stays. */
void lease_debt_leave(struct lease_gpu *g, const struct lease_seat *s);
/* A new client takes over what its owner's last ones owe. */
void lease_debt_take(struct lease_gpu *g, struct lease_seat *s);
void lease_debt_add(struct lease_gpu *g, const struct lease_debt *debt);
/* Brings debts within what the setting allows. */
void lease_debts_clamp(struct lease_gpu *g);
void lease_debts_forget(struct lease_gpu *g);
/* The clock of what is left over becomes one that is at `excess`. */
void lease_debts_turn(struct lease_gpu *g, uint64_t excess);

/* lease_choose.c: who is next. */
/* The one of the wanting (and `holder`, if any) that should run on the GPU now; gangs as if all of
 * their GPUs were free. Singles: without gangs. */
struct lease_choice lease_pick(struct lease_table *t, struct lease_gpu *g,
			       const struct lease_client *holder, bool singles);
/* Likewise, but a gang is given only where it can be granted, or where the GPU is to be kept for
 * it. */
struct lease_choice lease_choose(struct lease_table *t, struct lease_gpu *g,
				 const struct lease_client *holder, uint64_t now);
/* The account that would pay for a turn of `s` now, and for how long. */
struct lease_choice lease_terms(struct lease_gpu *g, struct lease_seat *s);
/* Whether a gang could have its GPUs: all; all but that one. */
bool lease_all_free(struct lease_table *t, const struct lease_client *c);
bool lease_others_free(struct lease_table *t, const struct lease_client *c,
		       const struct lease_gpu *here);

/* lease_stat.c */
void lease_history_begin(struct lease_table *t, struct lease_client *c, uint64_t now);
void lease_history_add(struct lease_history *h, uint64_t from, uint64_t to);
