/* The daemon at work: one loop, on which its rooms (rooms.h) start, act by the clock, and end. No
 * room includes this header; node.h has the state. */
#pragma once

struct error;
struct node;

/* Serves until a signal, idleness or the loss of its directory ends it. The runtime directory is
 * locked already. Returns the exit code; *err is set where it could not start. */
int serve_run(struct node *node, struct error *err);
