/* Mounts a slice into a container that its runtime has made but not started. */
#pragma once

#include <jansson.h>

#include "integrations/oci/state.h"

struct error;

/* Checks that the state's process can be the container's. It is no ancestor of the calling process,
 * has a mount namespace of its own, and has the container's root file system in it. Nothing else
 * may become a process of a slice by a state, which anybody can write. Notes its birth: the PID may
 * be another's a moment later. 0, or negative with *err. */
int oci_process_check(struct oci_container *container, struct error *err);
/* Brings the edits' mounts and device nodes (container/edits.h) into the container's mount
 * namespace. Makes there what stands in the slice's own directory: `environment`, and a list of
 * libraries to preload that the image's own list follows. No path of the container's is followed
 * out of its root. The calling process, which has one thread, is in its own namespace again
 * afterwards. 0, or negative with *err set. */
int oci_enter(const struct oci_container *container, const json_t *edits, const char *environment,
	      struct error *err);
