/* carve-hook as a runtime of an engine that runs no hooks of its own, as docker. It adds itself as
 * a hook to each new container's config.json, and becomes the runtime proper. */
#pragma once

#define OCI_RUNTIME_OPTION "--runtime"

/* The whole of `carve-hook --runtime RUNC [--default NAME] [--env NAME=VALUE]... -- ARGUMENT...`;
 * returns only where that fails, with the status to end with. */
int oci_runtime(int argc, char **argv);
