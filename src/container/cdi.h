/* CDI specs (Container Device Interface, spec version 0.5.0, which podman 4.3 and containerd 1.7
 * read): JSON files in a directory, each with devices of one kind. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

struct error;

/* Devices carve.dev/slice=ID. */
#define CDI_SLICE_KIND "carve.dev/slice"
#define CDI_SLICE_FILE "carve.dev-slice_" /* and ID, ".json" */
/* Devices carve.dev/slice=8gib: a slice is made when a container is. */
#define CDI_NAMED_FILE "carve.dev-slice-"
#define CDI_DIR_DYNAMIC "/var/run/cdi"
#define CDI_NAME_MAX 63

/* Whether it may be a device's name, and a part of a file's: letters, digits, and inside also
 * '_', '-', '.'. Pure. */
bool cdi_name_valid(const char *name);
/* A spec of `devices` (array, see cdi_device()); `edits` go for all of them, NULL: none. Both are
 * taken over. The caller owns the result; NULL: out of memory. Pure. */
json_t *cdi_spec(const char *kind, json_t *devices, json_t *edits);
/* A device; its edits are taken over. Pure. */
json_t *cdi_device(const char *name, json_t *edits);

/* Reads the device's name from a name of a file that carve wrote, for a session or for a size.
 * False: it is another's. Pure. */
bool cdi_file_session(const char *file, char ret[static CDI_NAME_MAX + 1]);
bool cdi_file_named(const char *file, char ret[static CDI_NAME_MAX + 1]);
