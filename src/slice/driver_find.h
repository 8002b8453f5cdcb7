/* The NVIDIA driver's libraries, as a program started from here would load them. */
#pragma once

#include <limits.h>

struct error;

/* Absolute paths; empty where ld.so finds none. */
struct driver_libs {
	char cuda[PATH_MAX];
	char nvml[PATH_MAX];
};

/* Looks where ld.so would (driver_look.h). Where that does not tell, asks ld.so in a child, so that
 * this process never has a driver in it. Inside a slice, where ld.so would answer with our own
 * libraries, the slice's environment tells. 0, or negative with *err set where the child fails. */
int driver_find(struct driver_libs *ret, struct error *err);
/* Loads the driver's libraries into this process, which is to end soon without unloading them. Says
 * by which names ld.so found them: links, where the driver is installed as usual. */
void driver_links(struct driver_libs *ret);
/* The same as driver_find(), without a child, where these links lead to a driver now. They are of
 * a process that had the same search path, LD_LIBRARY_PATH. */
int driver_find_by(const struct driver_libs *links, struct driver_libs *ret, struct error *err);
