/* MIG instances, for a worker whom the driver tells nothing of them and lets change nothing. These
 * operations run in one child at a time, which opens NVML when it is first needed.
 *
 * The record (mig_record.h) says which instances the warden made. An instance is written there
 * before it is made, and only if no other is at its place. So the record names only instances of
 * the warden's, also where a process died in between. A list that lacks an instance takes it out of
 * the record: another one that comes there later is not the warden's. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "backend/gpus.h"
#include "backend/instances.h"
#include "base/error.h"
#include "base/macros.h"
#include "proto/warden_mig.h"
#include "warden/message.h"
#include "warden/mig_record.h"
#include "warden/run.h"

_Static_assert(WARDEN_MIG_MOST >= MIG_PROFILES_MAX, "room for a GPU's profiles");
_Static_assert(WARDEN_MIG_MOST >= MIG_INSTANCES_MAX, "room for a GPU's instances");

/* A child's, for as long as it lives. */
static struct {
	struct gpus *gpus;
	struct instances *instances;
} driver;

static int driver_open(void)
{
	struct error ignored = {0};
	int rc = driver.gpus ? 0 : gpus_open(&driver.gpus, &ignored);

	if (rc == 0 && !driver.instances)
		rc = instances_open(driver.gpus, &driver.instances);
	return rc;
}

/* ---- as messages have it ------------------------------------------------------------------ */

static struct warden_mig_one one_pack(const struct instance *from)
{
	struct warden_mig_one one = {.bytes = from->bytes,
				     .profile_id = from->place.profile_id,
				     .start = from->place.start,
				     .size = from->place.size};

	_Static_assert(sizeof(one.pid) == sizeof(from->pid), "warden ABI");
	snprintf(one.uuid_text, sizeof(one.uuid_text), "%s", from->uuid_text);
	memcpy(one.pid, from->pid, sizeof(one.pid));
	one.pid_count = from->pid_count;
	one.gpu_instance = from->gpu_instance;
	one.compute_instance = from->compute_instance;
	one.reserved_mib = (uint32_t)((from->reserved + MIB(1) - 1) / MIB(1));
	return one;
}

static struct warden_mig_kind kind_pack(const struct mig_profile *p,
					const struct instance_profile *n)
{
	struct warden_mig_kind kind = {.bytes = p->memory_bytes,
				       .sms = p->sms,
				       .slices = p->slices,
				       .limit = p->limit,
				       .flags = p->flags,
				       .starts = p->starts,
				       .id = n->id,
				       .size = p->size};

	_Static_assert(MIG_ENGINES == ARRAY_SIZE(kind.engines), "warden ABI");
	memcpy(kind.engines, p->engines, sizeof(kind.engines));
	snprintf(kind.name, sizeof(kind.name), "%s", n->name);
	return kind;
}

/* ---- the record --------------------------------------------------------------------------- */

static int gpu_name(uint32_t gpu, struct mig_made *ret)
{
	struct gpu_info info = {0};

	_Static_assert(sizeof(ret->gpu) == sizeof(info.uuid), "the record's format");
	gpus_info(driver.gpus, gpu, &info);
	if (info.unread)
		return info.unread;
	memcpy(ret->gpu, info.uuid, sizeof(ret->gpu));
	return 0;
}

static int made_name(const struct warden_mig *r, struct mig_made *ret)
{
	*ret = (struct mig_made){.profile_id = r->profile_id, .start = r->start, .size = r->size};
	return gpu_name(r->gpu, ret);
}

static bool is_at(const struct instance *list, size_t count, uint32_t profile_id, uint8_t start,
		  uint8_t size)
{
	for (size_t i = 0; i < count; i++)
		if (list[i].place.profile_id == profile_id && list[i].place.start == start &&
		    list[i].place.size == size)
			return true;
	return false;
}

/* Takes out what a whole list of these profiles does not have. */
static void record_follow(int dir_fd, const struct warden_mig_wanted *r,
			  const struct instance *list, size_t count)
{
	struct mig_record record;
	struct mig_made gpu = {0};

	if (gpu_name(r->gpu, &gpu) < 0 || mig_record_open(dir_fd, &record) < 0)
		return;
	for (uint32_t i = record.count; i-- > 0;) {
		struct mig_made made = record.made[i];
		bool asked = false;

		for (uint32_t k = 0; k < r->count; k++)
			asked |= r->id[k] == made.profile_id;
		if (asked && !memcmp(made.gpu, gpu.gpu, sizeof(gpu.gpu)) &&
		    !is_at(list, count, made.profile_id, made.start, made.size))
			(void)mig_record_remove(&record, &made);
	}
	mig_record_close(&record);
}

/* ---- operations --------------------------------------------------------------------------- */

int warden_run_mig_kinds(struct warden_place *place, const struct warden_message *request,
			 struct warden_result *ret)
{
	const struct warden_mig *r = (const void *)request->data;
	struct warden_mig_kinds *answer = (void *)ret->data;
	struct instance_kinds kinds;
	int rc = driver_open();

	_Static_assert(sizeof(*answer) <= sizeof(ret->data), "an answer has room for it");
	if (rc == 0)
		rc = instances_kinds(driver.instances, r->gpu, &kinds);
	for (uint32_t i = 0; rc == 0 && i < kinds.die.profile_count; i++)
		answer->kind[answer->count++] = kind_pack(&kinds.die.profile[i], &kinds.profile[i]);
	return rc;
}

int warden_run_mig_list(struct warden_place *place, const struct warden_message *request,
			struct warden_result *ret)
{
	const struct warden_mig_wanted *r = (const void *)request->data;
	struct warden_mig_list *answer = (void *)ret->data;
	struct instance_profile profiles[WARDEN_MIG_MOST] = {0};
	struct instance list[WARDEN_MIG_MOST];
	size_t count = 0;
	int rc = driver_open();

	_Static_assert(sizeof(*answer) <= sizeof(ret->data), "an answer has room for it");
	for (uint32_t i = 0; i < r->count; i++)
		profiles[i].id = r->id[i];
	if (rc == 0)
		rc = instances_list(driver.instances, r->gpu, profiles, r->count, list,
				    WARDEN_MIG_MOST, &count);
	if (rc < 0)
		return rc;
	if (count < WARDEN_MIG_MOST)
		record_follow(place->dir_fd, r, list, count);
	for (size_t i = 0; i < count; i++)
		answer->one[answer->count++] = one_pack(&list[i]);
	return 0;
}

int warden_run_mig_mode(struct warden_place *place, const struct warden_message *request,
			struct warden_result *ret)
{
	const struct warden_mig *r = (const void *)request->data;
	int rc = driver_open();

	return rc < 0 ? rc : instances_mode_enable(driver.instances, r->gpu, 0);
}

/* -ENOSPC where an instance of this profile is at this place, whoever made it. */
static int place_is_free(const struct warden_mig *r)
{
	struct instance_profile profile = {.id = r->profile_id};
	struct instance list[WARDEN_MIG_MOST];
	size_t count = 0;
	int rc = instances_list(driver.instances, r->gpu, &profile, 1, list, WARDEN_MIG_MOST,
				&count);

	if (rc == 0 && is_at(list, count, r->profile_id, r->start, r->size))
		rc = -ENOSPC;
	return rc;
}

static int make(struct mig_record *record, const struct warden_mig *r, const struct mig_made *made,
		struct instance *ret)
{
	const struct instance_place place = {r->profile_id, r->start, r->size};
	int rc = place_is_free(r);

	if (rc == 0)
		rc = mig_record_add(record, made);
	if (rc < 0)
		return rc;
	rc = instance_make(driver.instances, r->gpu, &place, ret);
	/* A half of it is there, to be removed later. */
	if (rc < 0 && rc != -EUCLEAN)
		(void)mig_record_remove(record, made);
	return rc;
}

/* Opens the driver and the record, and names the instance of the request as the record does. 0, or
 * -errno with nothing to close. */
static int record_begin(const struct warden_place *place, const struct warden_mig *r,
			struct mig_made *ret_made, struct mig_record *ret)
{
	int rc = driver_open();

	if (rc == 0)
		rc = made_name(r, ret_made);
	return rc < 0 ? rc : mig_record_open(place->dir_fd, ret);
}

int warden_run_mig_make(struct warden_place *place, const struct warden_message *request,
			struct warden_result *ret)
{
	const struct warden_mig *r = (const void *)request->data;
	struct warden_mig_list *answer = (void *)ret->data;
	struct mig_record record;
	struct mig_made made;
	struct instance instance;
	int rc = record_begin(place, r, &made, &record);

	if (rc < 0)
		return rc;
	rc = make(&record, r, &made, &instance);
	mig_record_close(&record);
	if (rc == 0)
		answer->one[answer->count++] = one_pack(&instance);
	return rc;
}

int warden_run_mig_remove(struct warden_place *place, const struct warden_message *request,
			  struct warden_result *ret)
{
	const struct warden_mig *r = (const void *)request->data;
	const struct instance_place at = {r->profile_id, r->start, r->size};
	struct mig_record record;
	struct mig_made made;
	int rc = record_begin(place, r, &made, &record);

	if (rc < 0)
		return rc;
	rc = mig_record_has(&record, &made) ? instance_remove(driver.instances, r->gpu, &at, 0)
					    : -EPERM;
	if (rc == 0)
		(void)mig_record_remove(&record, &made);
	mig_record_close(&record);
	return rc;
}
