/* Things of the program's that graphs keep alive: reference-counted, destroyed by a function. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/cuda_abi.h"

struct graph_user_object;

/* Appends a reference to each object of `from` to the list *to; false: no memory. */
bool user_objects_share(const struct graph_user_object *from, size_t count,
			struct graph_user_object **to, size_t *to_count);
/* Drops the references of a list. */
void user_objects_release(struct graph_user_object *list, size_t count);
/* Drops references; the last one calls the destructor. */
void user_object_release(CUuserObject object, unsigned int count);
