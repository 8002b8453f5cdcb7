/* Names, descriptors and rights of the warden's processes. It needs libc only. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* The first descriptor that warden_process_keep() gives; those after it follow. */
#define WARDEN_FIRST_FD 3
#define WARDEN_KEPT_MAX 4

/* Gives this process a name, and lets nobody look into it. */
void warden_process_name(const char *name);
/* Only these descriptors stay open, besides the standard ones, and have the numbers from
 * WARDEN_FIRST_FD on. 0 or -errno. */
int warden_process_keep(int *const *fds, unsigned count);
/* Gives up all rights but these capabilities (a bit each), of those that the process has. 0 or
 * -errno. */
int warden_rights_keep(uint32_t capabilities);
