/* The worker's side of proto/warden_mig.h. */
#include "backend/instances_link.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/macros.h"
#include "proto/warden.h"
#include "proto/warden_mig.h"

static struct instance one_unpack(const struct warden_mig_one *from)
{
	struct instance one = {.place = {from->profile_id, from->start, from->size},
			       .bytes = from->bytes};

	snprintf(one.uuid_text, sizeof(one.uuid_text), "%.*s", (int)sizeof(from->uuid_text) - 1,
		 from->uuid_text);
	memcpy(one.pid, from->pid, sizeof(one.pid));
	one.reserved = MIB((uint64_t)from->reserved_mib);
	one.gpu_instance = from->gpu_instance;
	one.compute_instance = from->compute_instance;
	one.pid_count = MIN(from->pid_count, INSTANCE_PIDS_MAX);
	return one;
}

static void kind_unpack(const struct warden_mig_kind *from, struct mig_profile *p,
			struct instance_profile *n)
{
	*p = (struct mig_profile){.memory_bytes = from->bytes,
				  .sms = from->sms,
				  .slices = from->slices,
				  .limit = from->limit,
				  .flags = from->flags,
				  .starts = from->starts,
				  .size = from->size};
	memcpy(p->engines, from->engines, sizeof(p->engines));
	n->id = from->id;
	snprintf(n->name, sizeof(n->name), "%.*s", (int)sizeof(from->name) - 1, from->name);
}

int instances_link_kinds(const struct instances_asking *link, uint32_t gpu,
			 struct instance_kinds *ret)
{
	const struct warden_mig request = {.gpu = gpu};
	struct warden_mig_kinds answer;
	int rc = link->ask(link->context, WARDEN_MIG_KINDS, &request, sizeof(request), &answer,
			   sizeof(answer));

	if (rc < 0)
		return rc;
	memset(ret, 0, sizeof(*ret));
	for (uint32_t i = 0; i < MIN(answer.count, MIG_PROFILES_MAX); i++, ret->die.profile_count++)
		kind_unpack(&answer.kind[i], &ret->die.profile[i], &ret->profile[i]);
	return mig_die_init(&ret->die);
}

int instances_link_mode(const struct instances_asking *link, uint32_t gpu)
{
	const struct warden_mig request = {.gpu = gpu};

	return link->ask(link->context, WARDEN_MIG_MODE, &request, sizeof(request), NULL, 0);
}

int instances_link_list(const struct instances_asking *link, uint32_t gpu,
			const struct instance_profile *profiles, size_t profile_count,
			struct instance *list, size_t max, size_t *ret_count)
{
	struct warden_mig_wanted request = {.gpu = gpu};
	struct warden_mig_list answer;

	for (size_t i = 0; i < MIN(profile_count, WARDEN_MIG_MOST); i++)
		request.id[request.count++] = profiles[i].id;
	int rc = link->ask(link->context, WARDEN_MIG_LIST, &request, sizeof(request), &answer,
			   sizeof(answer));
	if (rc < 0)
		return rc;
	*ret_count = MIN(MIN(answer.count, WARDEN_MIG_MOST), max);
	for (size_t i = 0; i < *ret_count; i++)
		list[i] = one_unpack(&answer.one[i]);
	return 0;
}

static struct warden_mig place_of(uint32_t gpu, const struct instance_place *place)
{
	return (struct warden_mig){.gpu = gpu,
				   .profile_id = place->profile_id,
				   .start = place->start,
				   .size = place->size};
}

int instances_link_make(const struct instances_asking *link, uint32_t gpu,
			const struct instance_place *place, struct instance *ret)
{
	const struct warden_mig request = place_of(gpu, place);
	struct warden_mig_list answer;
	int rc = link->ask(link->context, WARDEN_MIG_MAKE, &request, sizeof(request), &answer,
			   sizeof(answer));

	if (rc == 0)
		*ret = one_unpack(&answer.one[0]);
	return rc;
}

int instances_link_remove(const struct instances_asking *link, uint32_t gpu,
			  const struct instance_place *place)
{
	const struct warden_mig request = place_of(gpu, place);

	return link->ask(link->context, WARDEN_MIG_REMOVE, &request, sizeof(request), NULL, 0);
}
