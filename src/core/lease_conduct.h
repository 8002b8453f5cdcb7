/* How an owner's programs behave, as far as that can be known for certain, and what follows. Pure;
 * not thread-safe. Times in ns of any one clock; zeroed: nothing is held against the owner.
 *
 *   state      what happens                               next
 *   FREE       FORGED                                     WATCHED
 *   WATCHED    FORGED, CONDUCT_STRIKES times in all       SUSPENDED
 *   any        UNFRONTED                                  SUSPENDED
 *   SUSPENDED  a fault                                    SUSPENDED, from now on
 *   SUSPENDED  the time is up                             WATCHED, one strike from the next
 *   WATCHED    CONDUCT_WATCH_NS without a fault           FREE
 *
 * A fault is an act that only the owner's own processes can do. How long work took, or how much of
 * the GPU's time a measurement shows, is no fault: the work of a neighbour changes both. A
 * suspended owner gets no turn, and the programs that did it are ended where the policy says so. A
 * suspension lasts for CONDUCT_FIRST_NS, and twice as long each time until the owner is FREE again,
 * CONDUCT_MOST_NS at most. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#define CONDUCT_STRIKES 3u
#define CONDUCT_WATCH_NS 600000000000ull
#define CONDUCT_FIRST_NS 10000000000ull
#define CONDUCT_MOST_NS 640000000000ull

enum conduct_state { CONDUCT_FREE, CONDUCT_WATCHED, CONDUCT_SUSPENDED };
enum conduct_event {
	CONDUCT_FORGED,    /* a process opened its gate, though the daemon was there */
	CONDUCT_UNFRONTED, /* a process used the GPU, and no front counted its work */
};

struct lease_conduct {
	enum conduct_state state;
	uint64_t until; /* not FREE: when the state ends by itself */
	uint32_t strikes, suspensions;
	uint64_t spent, spent_at; /* patience, and when it was counted */
};

/* Lets time pass. True: the state is another one. */
bool lease_conduct_pass(struct lease_conduct *c, uint64_t now);
/* Notes a fault. True: the owner is suspended (anew). */
bool lease_conduct_note(struct lease_conduct *c, enum conduct_event event, uint64_t now);
static inline bool lease_conduct_suspended(const struct lease_conduct *c)
{
	return c->state == CONDUCT_SUSPENDED;
}
/* Nothing is held against the user, who has all patience. */
bool lease_conduct_is_clean(const struct lease_conduct *c, uint64_t now);

/* The patience: how long work may go on after the end of its turn, fruitless drains included. It
 * holds while others want the part of the GPU's time (ppm) that they have been promised. They can
 * have that part all the same within CONDUCT_WINDOW_NS. 0 ppm: for ever. */
#define CONDUCT_WINDOW_NS 20000000000ull
uint64_t lease_patience(uint32_t others_ppm);
/* The rest of the patience: the user has spent some, and gets it back at CONDUCT_REFILL_PPM. */
#define CONDUCT_REFILL_PPM 20000u
uint64_t lease_conduct_left(const struct lease_conduct *c, uint64_t patience, uint64_t now);
/* The user's work went on for `ns` after its turn, until it was cut off. Nobody can know whether it
 * would have ended. */
void lease_conduct_spend(struct lease_conduct *c, uint64_t ns, uint64_t now);
