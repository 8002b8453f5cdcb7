/* GPUs that an administrator drained: nothing new is granted there until they are resumed, and what
 * runs there goes on. A drain is of a UUID and stays in the database. So it outlives the daemon and
 * the life of the host, and is there when a GPU that was taken out comes back. On the loop's
 * thread.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "daemon/store/store.h"

struct error;
struct pool;
struct pool_gpu;

/* GPUs that are drained at a time, those that are not there now among them. */
#define GPU_DRAINS_MAX 256u

/* Zeroed: none is drained. */
struct gpu_drains {
	struct store_drain row[GPU_DRAINS_MAX];
	uint32_t count;
};

/* Reads them from the database. 0 or -errno. */
int gpu_drains_load(struct gpu_drains *drains, struct store *store);
/* The drain of the GPU with this UUID; NULL: it is not drained. */
const struct store_drain *gpu_drain_find(const struct gpu_drains *drains, const char *uuid_text);
const struct store_drain *gpu_drain_of(const struct pool *pool, uint32_t gpu);
/* Whether somebody may write this as the reason: one line of text, of 1 to DRAIN_REASON_SIZE - 1
 * bytes. */
bool gpu_drain_reason_is_valid(const char *reason);
/* Drains GPUs, on disk first; all or none. A drain that is there gets the new reason. 0; negative
 * with *err. */
int gpu_drains_put(struct gpu_drains *drains, struct store *store, const struct store_drain *rows,
		   uint32_t count, struct error *err);
/* Ends the drains of these UUIDs, on disk first; all or none. 0; negative with *err. */
int gpu_drains_remove(struct gpu_drains *drains, struct store *store, const char *const *uuids,
		      uint32_t count, struct error *err);

/* "drained by root: fan is loud". */
#define GPU_DRAIN_TEXT_SIZE (DRAIN_REASON_SIZE + 64)
const char *gpu_drain_text(const struct store_drain *drain, char buf[static GPU_DRAIN_TEXT_SIZE]);
