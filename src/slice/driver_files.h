/* Every copy of the driver's two libraries that a program of this host may load by their names.
 * These are what ld.so's cache names, what LD_LIBRARY_PATH and the usual directories hold, and
 * those given. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#define DRIVER_FILES_MAX 32

struct driver_libs;
struct error;
struct places;

struct driver_file {
	char *path; /* without symbolic links; owned */
	dev_t device;
	ino_t inode;
	bool nvml; /* else libcuda */
};

/* Each file once. Zeroed: none. */
struct driver_files {
	struct driver_file file[DRIVER_FILES_MAX];
	size_t count;
};

/* Finds them. Files that are no ELF library of the front's own machine (32-bit ones), and the front
 * itself, are left out. Returns 0, or negative with *err set: carve's own libraries cannot be read,
 * or there are too many files. */
int driver_files_find(struct driver_files *ret, const struct driver_libs *driver,
		      const struct places *places, struct error *err);
void driver_files_clear(struct driver_files *files);
