/* Arrays that grow. Not for several threads at once. */
#pragma once

#include <stddef.h>

/* The list with room for one more than `count` elements of `size` bytes, moved where it has to be,
 * and `*room` with it. The caller owns it and puts it in place of the old one. NULL: no memory; the
 * old one is as it was. */
void *array_grown(void *list, size_t count, size_t *room, size_t size);
