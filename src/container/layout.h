/* Where things of a slice are in its container: below ATTACH_SLICE_DIR.
 *
 *   front/        carve's two libraries
 *   driver/       the driver's own two, where no program finds them by their names
 *   attach/       the daemon's attach socket, as a directory that the next daemon's will be in
 *   environment   the slice's variables, for programs that were started without theirs
 *   /etc/ld.so.preload   has every program that the dynamic linker starts load carve's libraries
 *
 * Processes are known by SO_PEERCRED, so a container needs neither --pid=host nor rights. */
#pragma once

#include <jansson.h>
#include <stdbool.h>

#include "proto/attach.h"

struct error;

#define CONTAINER_FRONT_CUDA ATTACH_SLICE_DIR "/front/libcuda.so.1"
#define CONTAINER_FRONT_NVML ATTACH_SLICE_DIR "/front/libnvidia-ml.so.1"
#define CONTAINER_DRIVER_CUDA ATTACH_SLICE_DIR "/driver/libcuda.so.1"
#define CONTAINER_DRIVER_NVML ATTACH_SLICE_DIR "/driver/libnvidia-ml.so.1"
/* The name of a directory in a daemon's runtime directory: it has a second name of the attach
 * socket (daemon/host/runtime.c). */
#define CONTAINER_ATTACH_HOST "containers"
#define CONTAINER_ATTACH ATTACH_SLICE_DIR "/attach"
#define CONTAINER_SOCKET CONTAINER_ATTACH "/attach.sock"
#define CONTAINER_ENVIRONMENT ATTACH_SLICE_DIR "/" ATTACH_SLICE_FILE
#define CONTAINER_PRELOAD "/etc/ld.so.preload"
/* Where the simulated driver looks for its host if no variable names one (sim/host/wire.h): a hook
 * sets no variables. */
#define CONTAINER_SIMULATED_HOST "/run/simgpu"
#define CONTAINER_PRELOAD_TEXT CONTAINER_FRONT_CUDA "\n" CONTAINER_FRONT_NVML "\n"
/* The names of the two files that are made for a container, in a directory of the host. */
#define CONTAINER_FILE_PRELOAD "preload"
#define CONTAINER_FILE_ENVIRONMENT ATTACH_SLICE_FILE

/* A slice on this host. Paths are absolute. */
struct container_slice {
	const char *session; /* its ID */
	/* Its stamp, as the daemon's API has it (ATTACH_ENV_STAMP); NULL: not known. */
	const char *stamp;
	/* As the daemon's API lists them: PCI addresses, else UUIDs count; with gpu_instance and
	 * compute_instance where the slice is a MIG instance there. */
	const json_t *gpus;
	const char *front_cuda, *front_nvml;
	const char *cuda, *nvml; /* the driver's own */
	const char *attach;      /* the daemon's attach socket */
	/* Directory with the two files, see above; NULL: they are made in the container. */
	const char *files;
	const char *simulated_host; /* NULL, or the directory of `carve sim` */
	/* Carve's libraries lie over the driver's own paths, too: other software (NVIDIA's CDI
	 * spec) may mount the driver there. */
	bool cover_driver;
};

/* Writes the two files. 0, or negative with *err set. */
int container_files_write(const struct container_slice *slice, struct error *err);
/* All that the container gets. The caller owns *ret. 0, or negative with *err set: a file is not
 * there, or there is no driver. */
int container_slice_edits(const struct container_slice *slice, json_t **ret, struct error *err);
/* The environment file's text. `stamp`: NULL or "" for none. Returns its length. Pure. */
int container_environment_text(const char *session, const char *stamp, char *buf, size_t size);
