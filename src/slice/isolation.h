/* How a slice's programs are made to get carve's libraries instead of the driver's. */
#pragma once

#include <stdbool.h>

#include "proto/attach.h"

struct driver_libs;
struct error;
struct places;

enum isolation {
	/* LD_PRELOAD: any user, any host; lost where a program loses its environment. */
	ISOLATION_PRELOAD,
	/* A mount namespace in which ours lie over the driver's, too: whoever opens the driver, by
	 * whatever path, gets ours. Root's default. */
	ISOLATION_MOUNT,
};

/* In the slice's directory: the driver's own libraries, and ours. */
#define ISOLATION_OWN_CUDA "libcuda.so.1"
#define ISOLATION_OWN_NVML "libnvidia-ml.so.1"
#define ISOLATION_FRONT_DIR "front"
#define ISOLATION_FRONT_CUDA ISOLATION_FRONT_DIR "/" ISOLATION_OWN_CUDA
#define ISOLATION_FRONT_NVML ISOLATION_FRONT_DIR "/" ISOLATION_OWN_NVML

/* "preload", "mount", or NULL: this user's default. 0, or negative with *err set
 * (EXIT_CODE_USAGE). */
int isolation_parse(const char *text, enum isolation *ret, struct error *err);

/* A slice's mount namespace. */
struct isolation_mount {
	bool user;                        /* in: a user namespace will do; out: it is one */
	char top[ATTACH_SLICE_PATH_SIZE]; /* where the private file system is mounted */
	char dir[ATTACH_SLICE_PATH_SIZE]; /* the slice's directory on it */
};

/* Puts this process into a mount namespace of its own: ours over every copy of the driver's. The
 * driver's own files get private paths there, which replace those in *driver; ours in *places, too,
 * where not every user can read them.
 * For a child before exec. 0, or negative with *err set: it is to end then. */
int isolation_mount(struct isolation_mount *mount, struct places *places,
		    struct driver_libs *driver, struct error *err);
/* Leaves the slice's variables (proto/attach.h) of this process's environment in that namespace. */
int isolation_mount_environment(const struct isolation_mount *mount, struct error *err);
/* Does and drops it in a child: what `carve run` can do here. 0 with *mount as it would be, or
 * negative with *err set. */
int isolation_mount_try(struct isolation_mount *mount, const struct places *places,
			const struct driver_libs *driver, struct error *err);

/* isolation_mount(), undone where it fails; or, where that could not be undone, tried in a child
 * first. 0, or negative with *err set: this process is where it was. */
int isolation_mount_or_not(struct isolation_mount *mount, struct places *places,
			   struct driver_libs *driver, struct error *err);

/* Whether this process is in such a mount namespace already. */
bool isolation_mounted(void);
/* There: gives this process's environment back what of its slice it was started without, and names
 * our libraries by paths that every user can read. */
void isolation_rejoin(struct places *places);
/* Whether `path` is one of those. */
bool isolation_is_front(const char *path);
/* There: hides the slice from this process and its children, which go to another (simulated) host.
 * The driver's own libraries, if they are covered, are to be had again: those in the list `cuda`,
 * which ends with NULL, and `nvml`. 0, or negative with *err set. Elsewhere it does nothing. */
int isolation_leave(const char *const *cuda, const char *nvml, struct error *err);
