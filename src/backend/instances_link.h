/* The calls of instances.c where the warden makes those of the driver. Each waits for the answer,
 * and is made by a thread that is not the loop's. */
#pragma once

#include "backend/instances.h"

int instances_link_kinds(const struct instances_asking *link, uint32_t gpu,
			 struct instance_kinds *ret);
int instances_link_list(const struct instances_asking *link, uint32_t gpu,
			const struct instance_profile *profiles, size_t profile_count,
			struct instance *list, size_t max, size_t *ret_count);
int instances_link_mode(const struct instances_asking *link, uint32_t gpu);
int instances_link_make(const struct instances_asking *link, uint32_t gpu,
			const struct instance_place *place, struct instance *ret);
int instances_link_remove(const struct instances_asking *link, uint32_t gpu,
			  const struct instance_place *place);
