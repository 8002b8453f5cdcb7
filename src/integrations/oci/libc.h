/* The C library of a container's image. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

struct error;

/* The oldest one that carve's libraries can be loaded with. */
#define OCI_GLIBC_OLDEST "2.28"

/* Refuses a root file system whose GNU C library is older: no program of it would start, as each
 * loads carve's libraries. One without such a library passes. No path is followed out of the root.
 * 0, or negative with *err set. */
int oci_libc_check(const char *root, struct error *err);
