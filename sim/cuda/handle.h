/* The set of handles that are alive, so that a stale or foreign one is told from a good one without
 * touching what it points to. Thread-safe; constant time. */
#pragma once

#include <stdbool.h>

enum handle_type {
	HANDLE_NONE,
	HANDLE_CONTEXT,
	HANDLE_MODULE,
	HANDLE_FUNCTION,
	HANDLE_LIBRARY,
	HANDLE_KERNEL,
	HANDLE_STREAM,
	HANDLE_EVENT,
	HANDLE_POOL,
	HANDLE_ARRAY,
	HANDLE_MIPMAP,
	HANDLE_GRAPH,
	HANDLE_NODE,
	HANDLE_GRAPH_EXEC,
	HANDLE_LINK,
	HANDLE_PHYSICAL,
	HANDLE_USER_OBJECT,
	HANDLE_EXTERNAL_MEMORY,
};

/* False: no memory. */
bool handle_add(const void *handle, enum handle_type type);
void handle_remove(const void *handle);
/* HANDLE_NONE: not alive. */
enum handle_type handle_type_of(const void *handle);

static inline bool handle_is(const void *handle, enum handle_type type)
{
	return handle && handle_type_of(handle) == type;
}
