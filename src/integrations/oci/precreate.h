/* carve-hook as a hook of podman's own stage precreate. It reads a container's configuration from
 * standard input, and writes the one that is to be, with the device nodes of the slice. */
#pragma once

#define OCI_PRECREATE_OPTION "--precreate"

/* The whole of `carve-hook --precreate`; returns the status to end with. A step that fails is
 * left to the hook that runs when the container is made, whose words podman shows. */
int oci_precreate(void);
