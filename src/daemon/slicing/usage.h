/* Compares the GPUs' time that processes use, by the driver, with their sessions' turns. A user
 * pays for time beyond the turns. `slicing_policy` says what follows where a program opens its
 * gate, or uses the GPU without the front. All of it runs on the loop but for the driver's answers
 * and what /proc says of who is no session's, for which the thread pool waits. */
#pragma once

struct slicing;
struct usage;

/* Once the inventory is in. 0 or -errno. */
int usage_start(struct slicing *slicing, struct usage **ret);
/* Before the loop waits: the GPUs are looked at only while somebody may use a sliced one, so that
 * an idle daemon is not woken. Takes NULL. */
void usage_prepare(struct usage *usage);
/* Takes NULL. A look that still runs ends by itself. */
void usage_stop(struct usage *usage);
