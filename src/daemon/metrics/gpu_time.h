/* GPU time of sessions on GPUs whose time is not sliced, by what the driver says of processes. It
 * is measured once a second, and only while somebody reads metrics: the driver may hold programs'
 * own calls up meanwhile. A daemon that starts begins at 0. Loop thread; the thread pool asks the
 * driver. */
#pragma once

#include <stdint.h>

struct gpu_time;
struct sessions;

/* NULL: no memory. `sessions` is lent, and its pool has to be ready. */
struct gpu_time *gpu_time_new(struct sessions *sessions);
/* Metrics are read now: measures for five more minutes. */
void gpu_time_want(struct gpu_time *time);
/* Each second. */
void gpu_time_tick(struct gpu_time *time);
/* Sessions end with the daemon: what is being measured does not count any more. Takes NULL. */
void gpu_time_stop(struct gpu_time *time);
/* Once the loop has ended. Takes NULL. */
void gpu_time_free(struct gpu_time *time);
