/* Where the driver's libraries lie, beside what ld.so's own configuration names. */
#pragma once

#define DRIVER_CUDA_NAME "libcuda.so"
#define DRIVER_NVML_NAME "libnvidia-ml.so"

/* Directories, for an array's initialiser: the distributions', those of NVIDIA's container images,
 * and those of other systems. */
#define DRIVER_DIRECTORIES                                                                        \
	"/usr/lib/x86_64-linux-gnu", "/lib/x86_64-linux-gnu", "/usr/lib64", "/lib64", "/usr/lib", \
		"/lib", "/usr/lib/wsl/lib", "/usr/local/nvidia/lib64", "/usr/local/lib",          \
		"/run/opengl-driver/lib"
