/* The rooms of the daemon, as one table in the order in which they start. */
#pragma once

#include <stdint.h>

struct error;
struct node;

/* Starts rooms that have not started. A room may wait for the loop: then returns ROOMS_WAIT, and a
 * later call goes on behind that room. Returns 0 when all rooms have started, or negative with
 * *err. */
#define ROOMS_WAIT 1
int rooms_start(struct node *node, struct error *err);
/* Called in each round of the loop, before it sleeps. */
void rooms_round(struct node *node);
/* Called once a second. */
void rooms_tick(struct node *node);
/* Called when a sample of the driver's figures is in. */
void rooms_sampled(struct node *node);
/* Called while the loop runs: closes the handles of the rooms that have started. */
void rooms_stop(struct node *node);
/* Called when the loop has ended, after rooms_stop(). */
void rooms_free(struct node *node);
