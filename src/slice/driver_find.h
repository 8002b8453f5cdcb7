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
