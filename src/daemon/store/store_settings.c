/* Settings of administrators, the costs of contexts, and the GPUs of the host. */
#include <errno.h>
#include <sqlite3.h>

#include "daemon/store/store_db.h"

/* ---- quotas ------------------------------------------------------------------------------ */

int store_quota_put(struct store *store, const struct store_quota *quota)
{
	sqlite3_stmt *stmt = store_statement(store, QUOTA_PUT);

	sqlite3_bind_int(stmt, 1, (int)quota->kind);
	sqlite3_bind_int64(stmt, 2, quota->id);
	/* QUOTA_NONE comes out as -1, and back. */
	sqlite3_bind_int64(stmt, 3, (int64_t)quota->quota.vram_bytes);
	sqlite3_bind_int64(stmt, 4, (int64_t)quota->quota.sessions);
	sqlite3_bind_int64(stmt, 5, (int64_t)quota->quota.gpus);
	return store_step_synced(store, stmt);
}

int store_quota_remove(struct store *store, enum quota_kind kind, uint32_t id)
{
	sqlite3_stmt *stmt = store_statement(store, QUOTA_REMOVE);

	sqlite3_bind_int(stmt, 1, (int)kind);
	sqlite3_bind_int64(stmt, 2, id);
	return store_step_synced(store, stmt);
}

int store_quotas_each(struct store *store, store_quota_cb cb, void *arg)
{
	sqlite3_stmt *stmt = store_statement(store, QUOTAS);
	int step, rc = 0;

	while ((step = sqlite3_step(stmt)) == SQLITE_ROW && rc == 0) {
		struct store_quota quota = {
			.kind = (enum quota_kind)sqlite3_column_int(stmt, 0),
			.id = (uint32_t)sqlite3_column_int64(stmt, 1),
			.quota = {.vram_bytes = (uint64_t)sqlite3_column_int64(stmt, 2),
				  .sessions = (uint64_t)sqlite3_column_int64(stmt, 3),
				  .gpus = (uint64_t)sqlite3_column_int64(stmt, 4)},
		};

		rc = cb(arg, &quota);
	}
	sqlite3_reset(stmt);
	return rc < 0 ? rc : store_errno(step);
}

/* ---- context costs ----------------------------------------------------------------------- */

int store_context_get(struct store *store, const char *model, const char *driver,
		      uint64_t *ret_bytes, enum managed_shows *ret_managed)
{
	sqlite3_stmt *stmt = store_statement(store, CONTEXT_GET);

	store_bind_text(stmt, 1, model);
	store_bind_text(stmt, 2, driver);
	int step = sqlite3_step(stmt);
	if (step == SQLITE_ROW) {
		*ret_bytes = (uint64_t)sqlite3_column_int64(stmt, 0);
		*ret_managed = (enum managed_shows)sqlite3_column_int(stmt, 1);
	}
	sqlite3_reset(stmt);
	return step == SQLITE_DONE ? -ENOENT : store_errno(step);
}

static int learned_put(struct store *store, enum statement which, const char *model,
		       const char *driver, int64_t what)
{
	sqlite3_stmt *stmt = store_statement(store, which);

	store_bind_text(stmt, 1, model);
	store_bind_text(stmt, 2, driver);
	sqlite3_bind_int64(stmt, 3, what);
	return store_step(stmt);
}

int store_context_put(struct store *store, const char *model, const char *driver, uint64_t bytes,
		      enum managed_shows managed)
{
	int rc = learned_put(store, CONTEXT_PUT, model, driver, (int64_t)bytes);

	if (rc < 0 || managed == MANAGED_UNKNOWN)
		return rc;
	return learned_put(store, FIGURES_PUT, model, driver, managed);
}

/* ---- time-slicing ------------------------------------------------------------------------ */

static int slicing_put(struct store *store, const struct store_slicing *slicing)
{
	sqlite3_stmt *stmt = store_statement(store, SLICING_PUT);

	store_bind_text(stmt, 1, slicing->uuid_text);
	sqlite3_bind_int(stmt, 2, (int)slicing->setting.mode);
	sqlite3_bind_int64(stmt, 3, (int64_t)slicing->setting.lease_ns);
	sqlite3_bind_int64(stmt, 4, slicing->setting.granularity_ppm);
	return store_step(stmt);
}

int store_slicing_put(struct store *store, const struct store_slicing *slicing, uint32_t count)
{
	store_sync_each_commit(store, true);
	int rc = store_begin(store);
	for (uint32_t i = 0; rc == 0 && i < count; i++)
		rc = slicing_put(store, &slicing[i]);
	rc = store_finish(store, rc);
	store_sync_each_commit(store, false);
	return rc;
}

int store_slicing_each(struct store *store, store_slicing_cb cb, void *arg)
{
	sqlite3_stmt *stmt = store_statement(store, SLICINGS);
	int step, rc = 0;

	while ((step = sqlite3_step(stmt)) == SQLITE_ROW && rc == 0) {
		struct store_slicing slicing = {
			.setting = {.mode = (enum compute_mode)sqlite3_column_int(stmt, 1),
				    .lease_ns = (uint64_t)sqlite3_column_int64(stmt, 2),
				    .granularity_ppm = (uint32_t)sqlite3_column_int64(stmt, 3)},
		};

		store_column_text(stmt, 0, slicing.uuid_text, sizeof(slicing.uuid_text));
		rc = cb(arg, &slicing);
	}
	sqlite3_reset(stmt);
	return rc < 0 ? rc : store_errno(step);
}

/* ---- the GPUs of the host ---------------------------------------------------------------- */

int store_host_gpu_put(struct store *store, const struct store_host_gpu *gpu)
{
	sqlite3_stmt *stmt = store_statement(store, GPU_PUT);

	store_bind_text(stmt, 1, gpu->uuid_text);
	sqlite3_bind_int64(stmt, 2, gpu->index);
	store_bind_text(stmt, 3, gpu->name);
	store_bind_text(stmt, 4, gpu->pci_bus_id);
	sqlite3_bind_int64(stmt, 5, (int64_t)gpu->total);
	sqlite3_bind_int64(stmt, 6, (int64_t)gpu->reserved);
	sqlite3_bind_int(stmt, 7, gpu->mig);
	return store_step(stmt);
}

int store_host_gpu_remove(struct store *store, const char *uuid_text)
{
	sqlite3_stmt *stmt = store_statement(store, GPU_REMOVE);

	store_bind_text(stmt, 1, uuid_text);
	return store_step(stmt);
}

int store_host_gpus_each(struct store *store, store_host_gpu_cb cb, void *arg)
{
	sqlite3_stmt *stmt = store_statement(store, GPUS);
	int step, rc = 0;

	while ((step = sqlite3_step(stmt)) == SQLITE_ROW && rc == 0) {
		struct store_host_gpu gpu = {.index = (uint32_t)sqlite3_column_int64(stmt, 1),
					     .total = (uint64_t)sqlite3_column_int64(stmt, 4),
					     .reserved = (uint64_t)sqlite3_column_int64(stmt, 5),
					     .mig = sqlite3_column_int(stmt, 6)};

		store_column_text(stmt, 0, gpu.uuid_text, sizeof(gpu.uuid_text));
		store_column_text(stmt, 2, gpu.name, sizeof(gpu.name));
		store_column_text(stmt, 3, gpu.pci_bus_id, sizeof(gpu.pci_bus_id));
		rc = cb(arg, &gpu);
	}
	sqlite3_reset(stmt);
	return rc < 0 ? rc : store_errno(step);
}
