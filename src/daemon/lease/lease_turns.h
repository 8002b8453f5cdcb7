/* The inside of lease_turns.c, which is in parts: the gate of a member, its turn, and the end of
 * that. All with the service's lock held; times are ns of its clock. */
#pragma once

#include "daemon/lease/lease_service.h"

#define MS 1000000ull
/* A look may cost this much of the time until the next one. */
#define LOOK_BUDGET 20u
/* The holder of a lease that nobody else wants is looked at, to see whether it still works. */
#define ALONE_LOOK_NS (500 * MS)
/* How often to see at first whether work ended that a lease's end was not held up for. */
#define LEAK_LOOK_NS MS

/* ---- lease_turns.c */
void turn_wants(struct leases *l, struct lease_member *m, bool wants, uint64_t now);
/* ns between two looks at a page. */
uint64_t turn_look_interval(const struct leases *l);
/* When to look again where each microsecond counts: in the next pass, at once, as long as the
 * thread may. Not in this one, which knows one time and holds the lock. */
uint64_t turn_look_soon(const struct leases *l, uint64_t now, uint64_t otherwise);
/* It has a lease, if one that ends. */
bool turn_holds(const struct lease_member *m);
/* The lease is over. waiting: it wants the next one already. */
void turn_shut(struct leases *l, struct lease_member *m, bool waiting, uint64_t now);
/* True: not yet. */
bool opening_look(struct leases *l, struct lease_member *m, uint64_t now);
/* The table counts its time from here. */
void opening_end(struct leases *l, struct lease_member *m, uint64_t now);

/* ---- lease_gate.c */
void turn_gate_put(struct lease_member *m, enum gate_state state);
/* The gate is shut, and who passed it before shows in its page. */
void turn_gate_shut(struct lease_member *m);
/* If nobody has changed it. */
bool turn_gate_replace(struct lease_member *m, enum gate_state state);
/* The changes that its processes made to it. A daemon that has been there all the time has no
 * waiters who take it for gone: who says so has SPOILT it. A change that harms nobody else is put
 * right, and is the SAME. */
enum gate_change turn_gate_find(struct leases *l, struct lease_member *m);
/* It was open against the plan, perhaps since it was looked at last: shut again, and charged. */
void turn_gate_forged(struct leases *l, struct lease_member *m, uint64_t now);
/* Whether the gates of who waits are shut. Returns when to look again. */
uint64_t turn_gates_look(struct leases *l, uint64_t now);

/* ---- lease_holder.c */
void holder_gate(struct lease_member *m);
void holder_look(struct leases *l, struct lease_member *m, uint64_t now);
/* It has work again. */
void holder_quiet_end(struct lease_member *m, uint64_t now);

/* ---- lease_drain.c */
void drain_begin(struct leases *l, struct lease_member *m, uint64_t now);
void drain_look(struct leases *l, struct lease_member *m, uint64_t now);
/* The bound of its work in flight: that of the settings, doubled so often. */
void drain_room_set(const struct lease_member *m, unsigned doubled);

/* ---- lease_conduct.c */
/* The record of the owner; NULL: there is none. */
struct lease_owner *owner_find(const struct leases *l, uint64_t owner);
/* A process of that session ("": of none) did that. */
void owner_note(struct leases *l, uint64_t culprit, enum conduct_event event, const char *session,
		uint64_t now);
/* Lets time pass for all of them. Returns when to do so again. */
uint64_t owners_pass(struct leases *l, uint64_t now);
/* Members that get no turns: of owners that are suspended all; of one whose member's work outstays
 * its turn all others that share a GPU with that. */
void owners_bar(struct leases *l, uint64_t now);
/* How long its work may outstay its turn, as things are. */
uint64_t owner_patience(struct leases *l, const struct lease_member *m, uint64_t now);
/* Its work goes on after its turn, since then. */
void outstay_begin(struct leases *l, struct lease_member *m, uint64_t since, uint64_t now);
/* To be called now and then, and before `ends`: the work is done by itself (done), or was cut off,
 * which is spent patience. */
void outstay_look(struct leases *l, struct lease_member *m, uint64_t now);
void outstay_end(struct leases *l, struct lease_member *m, bool done, uint64_t now);
void owners_free(struct leases *l);

/* ---- lease_left.c */
/* The GPU's time is sliced from now on: goes on with the account that is there. It has no members
 * yet. */
void turn_accounts_gpu_begin(struct leases *l, uint32_t gpu, uint64_t now);
/* It is sliced no more. */
void turn_accounts_gpu_end(struct leases *l, uint32_t gpu);
/* Just after it came into the table: goes on with the account that is there. */
void turn_accounts_join(struct leases *l, struct lease_member *m);
void turn_accounts_leave(struct lease_member *m);
/* Writes the accounts that are due, or all of them. */
void turn_accounts_write(struct leases *l, bool all, uint64_t now);

/* ---- lease_leak.c */
/* To be called before it gets or loses a lease: while it has one it pays anyway. */
void leak_count(struct lease_member *m, uint64_t now);
void leak_begin(struct leases *l, struct lease_member *m, const struct member_look *look,
		uint64_t now);
void leak_look(struct leases *l, struct lease_member *m, uint64_t now);
