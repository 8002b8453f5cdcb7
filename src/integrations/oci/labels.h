/* Labels of the image that a container was made of, as its engine keeps them on the host. */
#pragma once

#include <jansson.h>
#include <stdbool.h>

#include "integrations/oci/state.h"

struct error;

struct oci_labels {
	json_t *all; /* object; owned, NULL: there are none, or the engine keeps them elsewhere */
	/* Those of them that are the image's own, and not of whoever starts the container; object;
	 * owned, NULL: the engine does not tell them apart. */
	json_t *image;
	/* The annotations of the image, which podman gives the container, too; object; owned, NULL:
	 * none. */
	json_t *annotations;
};

/* Reads podman's storage, above the bundle; CRI-O's and docker's, above the root file system; or
 * asks containerd. Returns 0 with *ret, or negative with *err: the
 * engine does not say. */
int oci_labels_find(const struct oci_container *container, struct oci_labels *ret,
		    struct error *err);
void oci_labels_clear(struct oci_labels *labels);
/* Whether it may be the image that names a session: its author chooses none for whoever starts it.
 * `annotations`: the container's. Pure. */
bool oci_labels_image_joins(const struct oci_labels *labels, const json_t *annotations);
/* The name of the file in which podman's storage has an image's configuration. Pure. False: it is
 * no image's ID. */
bool oci_labels_file(const char *image, char *buf, size_t size);
/* Opens a regular file of at most that many bytes, and no link, for reading. The descriptor, and
 * its size in *ret_size, or -1. */
int oci_file_open(const char *path, size_t max, size_t *ret_size);
/* Reads a file of JSON of at most that many bytes. NULL: there is none. */
json_t *oci_json_read(const char *path, size_t max);
