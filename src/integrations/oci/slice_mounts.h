/* The mounts by which a container is in a slice already: `carve docker run`, a CDI device of a
 * session and Kubernetes' claims give them to the runtime (container/layout.h).
 *
 * An image and a pod's author choose where volumes go (VOLUME, emptyDir), so a destination proves
 * nothing. A mount counts by its source. Device and inode tell carve's own two
 * libraries, name and owner the daemon's directory, and their text the two files of a slice. Only
 * all of these mounts together make a slice. Any other mount at carve's places is an error, as it
 * would hide what carve mounts, or pass for it. */
#pragma once

#include <jansson.h>
#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "container/wanted.h"
#include "proto/attach.h"

struct error;
struct oci_container;

/* Which of the mounts prove something; the driver's two do not. */
enum oci_slice_part {
	OCI_SLICE_FRONT_CUDA,
	OCI_SLICE_FRONT_NVML,
	OCI_SLICE_ATTACH,
	OCI_SLICE_ENVIRONMENT,
	OCI_SLICE_PRELOAD,
	OCI_SLICE_PARTS,
};

struct oci_slice {
	/* The file of variables names it. "": the container has none of carve's mounts. */
	char session[CONTAINER_LABEL_MAX + 1];
	/* The stamp (ATTACH_ENV_STAMP) in that file. "": the file has none. */
	char stamp[ATTACH_STAMP_SIZE];
	/* The source of the attach socket, or of its directory. */
	char attach[PATH_MAX];
	/* The files that are mounted. */
	struct {
		dev_t dev;
		ino_t ino;
	} source[OCI_SLICE_PARTS];
};

/* An absolute path without "//", "/./" and "/..". False: it is none, or too long. Pure. */
bool oci_path_clean(const char *path, char *buf, size_t size);
/* Whether this is the text of a slice's file of variables, of which session, and with which stamp.
 * Pure. */
bool oci_slice_text_session(const char *text, char ret[static CONTAINER_LABEL_MAX + 1],
			    char stamp[static ATTACH_STAMP_SIZE]);
/* Looks for mounts at carve's places. `is_pods`: a pod's author may name files of the host's, so
 * the slice's files have to be root's. Returns 0, or negative with *err set: a mount there is not
 * carve's, or some are missing. */
int oci_slice_find(const json_t *config, bool is_pods, struct oci_slice *ret, struct error *err);
/* Checks that the container's programs see these files at carve's places. A link in the image can
 * lead a later mount over them. oci_process_check() has looked at the process. 0, or negative with
 * *err set. */
int oci_slice_check(const struct oci_slice *slice, const struct oci_container *container,
		    struct error *err);
