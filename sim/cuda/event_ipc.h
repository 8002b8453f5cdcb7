/* The part that an event has in common with those that other processes made of its handle.
 * Thread-safe. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct event_shared;
struct lane;

/* NULL: not to be had. */
struct event_shared *event_shared_make(void);
/* NULL is allowed. */
void event_shared_close(struct event_shared *shared);
/* The event was recorded; a recording of it is over. */
void event_shared_recorded(struct event_shared *shared);
void event_shared_over(struct event_shared *shared);
/* The counter to wait for so that all recordings until now are over. */
uint64_t event_shared_target(const struct event_shared *shared);
bool event_shared_reached(const struct event_shared *shared, uint64_t target);
/* Until then, or until the lane (NULL: none) wants no results any more. */
void event_shared_wait(const struct event_shared *shared, uint64_t target, const struct lane *lane);
