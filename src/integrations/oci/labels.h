/* Labels of the image that a container was made of, as its engine keeps them on the host. */
#pragma once

#include <jansson.h>

#include "integrations/oci/state.h"

struct error;

/* podman's storage, above the bundle; CRI-O's, above the root file system; docker's, beside the
 * container's host name; or containerd is asked. 0 with *ret (owned by the caller), NULL: there are
 * none, or the engine keeps them elsewhere. Negative with *err: the engine does not say. */
int oci_labels_find(const struct oci_container *container, const json_t *config, json_t **ret,
		    struct error *err);
/* The name of the file in which podman's storage has an image's configuration. Pure. False: it is
 * no image's ID. */
bool oci_labels_file(const char *image, char *buf, size_t size);
/* Reads a file of JSON of at most that many bytes. NULL: there is none. */
json_t *oci_json_read(const char *path, size_t max);
