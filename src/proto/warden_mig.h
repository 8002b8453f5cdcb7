/* The warden's operations on MIG instances, which the driver tells and changes for privileged users
 * alone (proto/warden.h). GPUs are named by NVML's index, profiles by the driver's number. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#define WARDEN_MIG_MOST 32u

/* All of them take a struct warden_mig, but for the list. */
struct warden_mig {
	uint32_t gpu;
	uint32_t profile_id; /* the last three are 0 where the operation is about no place */
	uint8_t start, size;
	uint16_t reserved; /* 0 */
	uint32_t more;     /* 0 */
};

/* WARDEN_MIG_LIST: the instances of `count` profiles, id[]. */
struct warden_mig_wanted {
	uint32_t gpu, count;
	uint32_t id[WARDEN_MIG_MOST]; /* 0 beyond `count` */
};

struct warden_mig_one {
	uint64_t bytes;
	uint32_t profile_id;
	uint8_t start, size;
	uint8_t gpu_instance, compute_instance; /* IDs plus 1; 0: not told */
	char uuid_text[48];
	uint32_t pid[4];
	uint32_t pid_count, reserved_mib;
};
/* The answer of WARDEN_MIG_LIST; WARDEN_MIG_MAKE has one in it. */
struct warden_mig_list {
	uint32_t count, reserved;
	struct warden_mig_one one[WARDEN_MIG_MOST];
};

struct warden_mig_kind {
	uint64_t bytes;
	uint32_t sms, slices, limit, flags, starts, id;
	uint16_t engines[4];
	uint8_t size, reserved[7];
	char name[32];
};
/* The answer of WARDEN_MIG_KINDS. */
struct warden_mig_kinds {
	uint32_t count, reserved;
	struct warden_mig_kind kind[WARDEN_MIG_MOST];
};

_Static_assert(sizeof(struct warden_mig) == 16, "warden ABI");
_Static_assert(sizeof(struct warden_mig_wanted) == 136, "warden ABI");
_Static_assert(sizeof(struct warden_mig_one) == 88, "warden ABI");
_Static_assert(sizeof(struct warden_mig_list) == 2824, "warden ABI");
_Static_assert(sizeof(struct warden_mig_kind) == 80, "warden ABI");
_Static_assert(sizeof(struct warden_mig_kinds) == 2568, "warden ABI");

/* A GPU, and nothing else. */
bool warden_mig_names_gpu(const void *request);
/* A place within a GPU. */
bool warden_mig_names_place(const void *request);
bool warden_mig_wanted_fits(const void *request);
