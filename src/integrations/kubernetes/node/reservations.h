/* The threads that have reservations made again while slices use their GPUs. */
#pragma once

struct reserve;
struct reservations;
struct watcher;

/* Follows the reservation pods of the node. A pod that is deleted or evicted is replaced at once if
 * a claim has a slice of its GPU. `watcher` tells the GPUs. 0, also where the plugin makes no
 * reservations (*ret is NULL then), or -errno. */
int reservations_start(struct reserve *reserve, struct watcher *watcher, struct reservations **ret);
/* Ends the threads once api_goes_on() says no. NULL: does nothing. */
void reservations_stop(struct reservations *reservations);
