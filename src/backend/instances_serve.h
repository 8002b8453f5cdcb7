/* Both ends of proto/instances.h: a process with rights serves what instances.h offers to one that
 * has none. */
#pragma once

#include "backend/instances.h"

/* Answers on a link until the other side hangs up. NVML is opened when it is first needed. */
void instances_serve(int link_fd);

/* The other side, as instances.c calls it where there is a link. Any thread; each waits for the
 * answer. */
struct instances_link;
int instances_link_open(int link_fd, struct instances_link **ret);
void instances_link_close(struct instances_link *link);
int instances_link_kinds(struct instances_link *link, uint32_t gpu, struct instance_kinds *ret);
int instances_link_list(struct instances_link *link, uint32_t gpu,
			const struct instance_profile *profiles, size_t profile_count,
			struct instance *list, size_t max, size_t *ret_count);
int instances_link_mode(struct instances_link *link, uint32_t gpu);
int instances_link_make(struct instances_link *link, uint32_t gpu,
			const struct instance_place *place, struct instance *ret);
int instances_link_remove(struct instances_link *link, uint32_t gpu,
			  const struct instance_place *place);
