/* How a slice's programs are made to get carve's libraries instead of the driver's. */
#pragma once

#include <stdbool.h>

struct driver_libs;
struct error;
struct places;

enum isolation {
	/* LD_PRELOAD: any user, any host; lost where a program loses its environment. */
	ISOLATION_PRELOAD,
	/* A mount namespace in which ours lie over the driver's, too: whoever opens the driver, by
	 * whatever path, gets ours. Needs root. */
	ISOLATION_MOUNT,
};

/* "preload" or "mount"; NULL: the default. 0, or negative with *err set (EXIT_CODE_USAGE). */
int isolation_parse(const char *text, enum isolation *ret, struct error *err);
/* Whether this process may mount; where not, *ret_why says it. */
bool isolation_mount_possible(const char **ret_why);
/* Whether this process is in such a mount namespace already. */
bool isolation_mounted(void);
/* There: gives this process's environment back what of its slice it was started without. */
void isolation_environment_restore(void);
/* Puts this process into a mount namespace of its own: ours over the driver's, and the driver's at
 * private paths, which replace those in *driver. For a child before exec. 0, or negative with *err
 * set. */
int isolation_mount(const struct places *places, struct driver_libs *driver, struct error *err);
/* Leaves the slice's variables (proto/attach.h) of this process's environment in that namespace. */
int isolation_mount_environment(struct error *err);
