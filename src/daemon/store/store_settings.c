/* Settings of administrators, the costs of contexts, and the GPUs of the host. */
#include <errno.h>
#include <sqlite3.h>

#include "daemon/store/store_db.h"

/* ---- quotas ------------------------------------------------------------------------------ */

/* QUOTA_NONE comes out as -1 and QUOTA_UNLIMITED as -2, and back. */
static const struct record_field quota_fields[] = {
	RECORD_FIELD(struct store_quota, kind, "kind"),
	RECORD_FIELD(struct store_quota, id, "id"),
	RECORD_FIELD(struct store_quota, quota.most[QUOTA_VRAM], "vram"),
	RECORD_FIELD(struct store_quota, quota.most[QUOTA_SESSIONS], "sessions"),
	RECORD_FIELD(struct store_quota, quota.most[QUOTA_GPUS], "gpus"),
	RECORD_FIELD(struct store_quota, quota.most[QUOTA_HOURS], "hours"),
	{0},
};

int store_quota_put(struct store *store, const struct store_quota *quota)
{
	return store_step_synced(
		store, row_bind_record(store_statement(store, QUOTA_PUT), quota_fields, quota));
}

int store_quota_remove(struct store *store, enum quota_kind kind, uint32_t id)
{
	sqlite3_stmt *stmt = store_statement(store, QUOTA_REMOVE);

	return store_step_synced(store, row_bind(stmt, ROW_NUMBER(kind), ROW_NUMBER(id)));
}

int store_quotas_each(struct store *store, store_quota_cb cb, void *arg)
{
	return row_each(store_statement(store, QUOTAS), quota_fields, struct store_quota, cb, arg);
}

/* ---- context costs ----------------------------------------------------------------------- */

int store_context_get(struct store *store, const char *model, const char *driver,
		      uint64_t *ret_bytes, enum managed_shows *ret_managed)
{
	sqlite3_stmt *stmt = store_statement(store, CONTEXT_GET);
	int64_t row[2];
	int rc = row_get_numbers(row_bind(stmt, ROW_TEXT(model), ROW_TEXT(driver)), row, 2);

	if (rc < 0)
		return rc;
	*ret_bytes = (uint64_t)row[0];
	*ret_managed = (enum managed_shows)row[1];
	return 0;
}

int store_context_put(struct store *store, const char *model, const char *driver, uint64_t bytes,
		      enum managed_shows managed)
{
	int rc =
		store_run(store, CONTEXT_PUT, ROW_TEXT(model), ROW_TEXT(driver), ROW_NUMBER(bytes));

	if (rc < 0 || managed == MANAGED_UNKNOWN)
		return rc;
	return store_run(store, FIGURES_PUT, ROW_TEXT(model), ROW_TEXT(driver),
			 ROW_NUMBER(managed));
}

/* ---- time-slicing ------------------------------------------------------------------------ */

static const struct record_field slicing_fields[] = {
	RECORD_FIELD(struct store_slicing, uuid_text, "uuid"),
	RECORD_FIELD(struct store_slicing, setting.mode, "mode"),
	RECORD_FIELD(struct store_slicing, setting.lease_ns, "lease"),
	RECORD_FIELD(struct store_slicing, setting.granularity_ppm, "granularity"),
	{0},
};

int store_slicing_put(struct store *store, const struct store_slicing *slicing, uint32_t count)
{
	store_sync_each_commit(store, true);
	int rc = store_begin(store);
	for (uint32_t i = 0; rc == 0 && i < count; i++)
		rc = store_put(store, SLICING_PUT, slicing_fields, &slicing[i]);
	rc = store_finish(store, rc);
	store_sync_each_commit(store, false);
	return rc;
}

int store_slicing_each(struct store *store, store_slicing_cb cb, void *arg)
{
	return row_each(store_statement(store, SLICINGS), slicing_fields, struct store_slicing, cb,
			arg);
}

/* ---- drained GPUs ------------------------------------------------------------------------ */

static const struct record_field drain_fields[] = {
	RECORD_FIELD(struct store_drain, uuid_text, "uuid"),
	RECORD_FIELD(struct store_drain, reason, "reason"),
	RECORD_FIELD(struct store_drain, uid, "uid"),
	RECORD_FIELD(struct store_drain, since, "since"),
	{0},
};

int store_drains_put(struct store *store, const struct store_drain *drains, uint32_t count)
{
	store_sync_each_commit(store, true);
	int rc = store_begin(store);
	for (uint32_t i = 0; rc == 0 && i < count; i++)
		rc = store_put(store, DRAIN_PUT, drain_fields, &drains[i]);
	rc = store_finish(store, rc);
	store_sync_each_commit(store, false);
	return rc;
}

int store_drains_remove(struct store *store, const char *const *uuids, uint32_t count)
{
	store_sync_each_commit(store, true);
	int rc = store_begin(store);
	for (uint32_t i = 0; rc == 0 && i < count; i++)
		rc = store_run(store, DRAIN_REMOVE, ROW_TEXT(uuids[i]));
	rc = store_finish(store, rc);
	store_sync_each_commit(store, false);
	return rc;
}

int store_drains_each(struct store *store, store_drain_cb cb, void *arg)
{
	return row_each(store_statement(store, DRAINS), drain_fields, struct store_drain, cb, arg);
}

/* ---- the GPUs of the host ---------------------------------------------------------------- */

static const struct record_field gpu_fields[] = {
	RECORD_FIELD(struct store_host_gpu, uuid_text, "uuid"),
	RECORD_FIELD(struct store_host_gpu, index, "number"),
	RECORD_FIELD(struct store_host_gpu, name, "name"),
	RECORD_FIELD(struct store_host_gpu, pci_bus_id, "pci"),
	RECORD_FIELD(struct store_host_gpu, total, "total"),
	RECORD_FIELD(struct store_host_gpu, reserved, "reserved"),
	RECORD_FIELD(struct store_host_gpu, mig, "mig"),
	{0},
};

int store_host_gpu_put(struct store *store, const struct store_host_gpu *gpu)
{
	return store_put(store, GPU_PUT, gpu_fields, gpu);
}

int store_host_gpu_remove(struct store *store, const char *uuid_text)
{
	return store_run(store, GPU_REMOVE, ROW_TEXT(uuid_text));
}

int store_host_gpus_each(struct store *store, store_host_gpu_cb cb, void *arg)
{
	return row_each(store_statement(store, GPUS), gpu_fields, struct store_host_gpu, cb, arg);
}
