#include "base/array.h"

#include <stdlib.h>

/* The fewest elements that memory is taken for. */
#define ROOM_LEAST 16u

void *array_grown(void *list, size_t count, size_t *room, size_t size)
{
	size_t more = *room ? 2 * *room : ROOM_LEAST;

	if (count < *room)
		return list;
	void *grown = reallocarray(list, more, size);
	if (grown)
		*room = more;
	return grown;
}
