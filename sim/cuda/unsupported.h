/* The public functions that are not simulated. No header of the API is included with this one: a
 * stub takes nothing, whatever its function takes, and says no. */
#pragma once

/* Counts the call at the host; CUDA_ERROR_NOT_SUPPORTED, or CUDA_ERROR_NOT_INITIALIZED. */
int unsupported(const char *name);

#define UNSUPPORTED(name)                                      \
	__attribute__((visibility("default"))) int name(void); \
	int name(void)                                         \
	{                                                      \
		return unsupported(#name);                     \
	}
