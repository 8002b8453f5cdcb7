/* The driver's device nodes of this host. Root's processes also give each that is added its name in
 * /dev/char, by which runtimes tell systemd of it. */
#pragma once

#include <jansson.h>

/* Adds to the edits those that all GPUs share, as far as they are there. */
void container_nodes_common(json_t *edits);
/* Adds the node of the GPU with this UUID, or PCI address ("00000000:41:00.0", any case). A GPU
 * that the kernel module does not list, as a simulated one, has none. */
void container_nodes_gpu_uuid(json_t *edits, const char *uuid);
/* Likewise those that let a container use one MIG instance of that GPU: the capabilities of the GPU
 * instance and of the compute instance with these IDs. */
void container_nodes_instance(json_t *edits, const char *address, unsigned gpu_instance,
			      unsigned compute_instance);
void container_nodes_gpu_pci(json_t *edits, const char *address);
