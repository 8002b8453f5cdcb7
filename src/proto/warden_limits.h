/* The warden's operations on the driver's limits of cgroups (proto/warden.h). A cgroup is named by
 * the kernel's number, which no other cgroup has again: st_ino of its directory. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#define LIMITS_PATH_SIZE 1024u
/* "s-" and letters and digits, and zeros behind them. */
#define LIMITS_SESSION_SIZE 16u

/* WARDEN_LIMIT_PROBE takes nothing: whether the driver has such limits, and permits them. */

/* WARDEN_LIMIT_PUT: `bytes` of a GPU for a cgroup; UINT64_MAX: no limit. */
struct warden_limit {
	uint64_t cgroup;
	uint64_t bytes;
	uint32_t gpu; /* NVML's index */
	uint32_t reserved;
};

/* WARDEN_LIMIT_ENTER: makes the session's cgroup below the one that the process is in, where there
 * is none, and puts the process there. */
struct warden_limit_entry {
	uint64_t birth;
	int32_t pid;
	uint32_t reserved;
	char session[LIMITS_SESSION_SIZE];
};

/* WARDEN_LIMIT_LEAVE: removes a cgroup that is called as a session's, and has no processes. */
struct warden_limit_leave {
	uint64_t cgroup;
};

_Static_assert(sizeof(struct warden_limit) == 24, "warden ABI");
_Static_assert(sizeof(struct warden_limit_entry) == 32, "warden ABI");
_Static_assert(sizeof(struct warden_limit_leave) == 8, "warden ABI");

bool warden_limit_fits(const void *request);
bool warden_limit_entry_fits(const void *request);
