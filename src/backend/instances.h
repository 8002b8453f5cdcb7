/* MIG instances through NVML: which kinds a GPU can have, which there are, making and removing
 * them. Every call may block for seconds, so none is made on the daemon's loop; changes of one GPU
 * are made by one thread at a time. An instance here is a GPU instance with one compute instance
 * over all of it; it is found by its profile and placement, as numbers and UUIDs come back. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/mig.h"

#define INSTANCE_NAME_SIZE 32
#define INSTANCE_UUID_SIZE 48
#define INSTANCE_PIDS_MAX 4u

struct gpus;
struct instances;

/* The driver's name for a profile; beside struct mig_profile. */
struct instance_profile {
	uint32_t id;
	char name[INSTANCE_NAME_SIZE]; /* "2g.20gb" */
};

/* The name of a die's `profile`. */
struct instance_kinds {
	struct mig_die die;
	struct instance_profile profile[MIG_PROFILES_MAX];
};

struct instance_place {
	uint32_t profile_id;
	uint8_t start, size;
};

struct instance {
	struct instance_place place;
	/* The UUID of its compute instance; "": there is none, or more than one, or one of a
	 * part. */
	char uuid_text[INSTANCE_UUID_SIZE];
	uint8_t gpu_instance, compute_instance; /* the driver's IDs plus 1; 0: not known */
	uint64_t bytes;                         /* 0: not known */
	uint64_t reserved;                      /* the driver's part of it; 0: not known */
	/* Processes that the driver lists in it, the first of them. */
	uint32_t pid[INSTANCE_PIDS_MAX];
	uint32_t pid_count;
};

/* 0; -ENOTSUP: this driver has no MIG; -ENOMEM. The GPUs stay open for as long as this is. */
int instances_open(const struct gpus *gpus, struct instances **ret);
/* Asks the warden (proto/warden_mig.h), from any thread, and waits for its answer. 0 or -errno. */
struct instances_asking {
	int (*ask)(void *context, uint16_t operation, const void *request, size_t size,
		   void *answer, size_t answer_size);
	void *context;
};
/* Through the warden: the driver tells others nothing and lets them change nothing. */
int instances_open_link(const struct instances_asking *asking, struct instances **ret);
void instances_close(struct instances *instances);

/* The profiles that a GPU can have, in the order of their size. 0 or -errno. */
int instances_kinds(const struct instances *instances, uint32_t gpu, struct instance_kinds *ret);
/* Switches MIG mode on. 0; -EBUSY: something has the GPU open, and did so for `patience_ms`; then
 * nothing is pending. -EAGAIN: it is pending, and takes a reset. -EACCES; -ENOTSUP. */
int instances_mode_enable(const struct instances *instances, uint32_t gpu, unsigned patience_ms);
/* All GPU instances of these profiles. 0 or -errno. */
int instances_list(const struct instances *instances, uint32_t gpu,
		   const struct instance_profile *profiles, size_t profile_count,
		   struct instance *list, size_t max, size_t *ret_count);
/* Returns 0 or an error. No room at this place is -ENOSPC, a GPU in use -EBUSY, a process that may
 * not -EACCES. If a part was made and could not be removed again, it is -EUCLEAN; anything else is
 * -EIO. */
int instance_make(const struct instances *instances, uint32_t gpu,
		  const struct instance_place *place, struct instance *ret);
/* 0, also where there is none; -EBUSY: somebody holds it, and did so for `patience_ms`; -EACCES;
 * -EIO. */
int instance_remove(const struct instances *instances, uint32_t gpu,
		    const struct instance_place *place, unsigned patience_ms);
