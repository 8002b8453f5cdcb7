#include "daemon/gpu/gpu_drain.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/utf8.h"
#include "daemon/gpu/pool.h"
#include "daemon/host/names.h"
#include "daemon/host/unrecorded.h"

static int on_drain(void *arg, const struct store_drain *row)
{
	struct gpu_drains *drains = arg;

	if (drains->count == GPU_DRAINS_MAX)
		return -E2BIG;
	drains->row[drains->count++] = *row;
	return 0;
}

int gpu_drains_load(struct gpu_drains *drains, struct store *store)
{
	drains->count = 0;
	return store_drains_each(store, on_drain, drains);
}

static struct store_drain *find(struct gpu_drains *drains, const char *uuid_text)
{
	for (uint32_t i = 0; i < drains->count; i++)
		if (!strcmp(drains->row[i].uuid_text, uuid_text))
			return &drains->row[i];
	return NULL;
}

const struct store_drain *gpu_drain_find(const struct gpu_drains *drains, const char *uuid_text)
{
	return find((struct gpu_drains *)drains, uuid_text);
}

const struct store_drain *gpu_drain_of(const struct pool *pool, uint32_t gpu)
{
	return gpu_drain_find(&pool->drains, pool->gpu[gpu].info.uuid_text);
}

bool gpu_drain_reason_is_valid(const char *reason)
{
	size_t length;

	for (const char *at = reason; *at; at += length) {
		uint32_t character;

		length = utf8_take(at, &character);
		if (!length || utf8_is_control(character))
			return false;
	}
	return reason[strspn(reason, " ")] && strlen(reason) < DRAIN_REASON_SIZE;
}

int gpu_drains_put(struct gpu_drains *drains, struct store *store, const struct store_drain *rows,
		   uint32_t count, struct error *err)
{
	uint32_t more = 0;

	for (uint32_t i = 0; i < count; i++)
		more += !find(drains, rows[i].uuid_text);
	if (drains->count + more > GPU_DRAINS_MAX) {
		error_set(err, EXIT_CODE_FAILED, "%u GPUs are drained, most of which are gone",
			  drains->count);
		error_hint(err, "carve node resume ends all drains, of GPUs that are gone, too");
		return -EXIT_CODE_FAILED;
	}
	int rc = store_drains_put(store, rows, count);
	if (rc < 0)
		return unrecorded_set(err, "the drain cannot be recorded", rc);
	for (uint32_t i = 0; i < count; i++) {
		struct store_drain *row = find(drains, rows[i].uuid_text);

		*(row ? row : &drains->row[drains->count++]) = rows[i];
	}
	return 0;
}

int gpu_drains_remove(struct gpu_drains *drains, struct store *store, const char *const *uuids,
		      uint32_t count, struct error *err)
{
	int rc = store_drains_remove(store, uuids, count);

	if (rc < 0)
		return unrecorded_set(err, "the end of the drain cannot be recorded", rc);
	for (uint32_t i = 0; i < count; i++) {
		struct store_drain *row = find(drains, uuids[i]);

		if (row)
			*row = drains->row[--drains->count];
	}
	return 0;
}

const char *gpu_drain_text(const struct store_drain *drain, char buf[static GPU_DRAIN_TEXT_SIZE])
{
	snprintf(buf, GPU_DRAIN_TEXT_SIZE, "drained by %.32s: %s",
		 names_of(NAMES_OF_USERS, drain->uid), drain->reason);
	return buf;
}
