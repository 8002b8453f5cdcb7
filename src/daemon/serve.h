/* The daemon at work: starts its parts on one loop, has them act by the clock, and ends them.
 * Includes all rooms, and none includes it; node.h has the state. */
#pragma once

struct error;
struct node;

/* Serves until a signal, idleness or the loss of its directory ends it. The runtime directory is
 * locked already. Returns the exit code; *err is set where it could not start. */
int serve_run(struct node *node, struct error *err);
