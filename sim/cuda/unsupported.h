/* The public functions that are not simulated. No header of the API is included with this one: a
 * stub takes nothing, whatever its function takes, and says no. */
#pragma once

/* Counts the call at the host; CUDA_ERROR_NOT_SUPPORTED, or CUDA_ERROR_NOT_INITIALIZED. */
int unsupported(const char *name);

/* A function of CUDA 3.1 and older whose device pointers have 32 bits: no context of this driver is
 * that old. CUDA_ERROR_INVALID_CONTEXT. */
int older_api(const char *name);

#define OLDER_API(name)                                        \
	__attribute__((visibility("default"))) int name(void); \
	int name(void)                                         \
	{                                                      \
		return older_api(#name);                       \
	}

#define UNSUPPORTED(name)                                      \
	__attribute__((visibility("default"))) int name(void); \
	int name(void)                                         \
	{                                                      \
		return unsupported(#name);                     \
	}
