#include "cuda/gap.h"

#include <stdlib.h>

bool gap_take(struct gap **list, uint64_t size, uint64_t *ret_offset)
{
	for (struct gap **link = list; *link; link = &(*link)->next) {
		struct gap *gap = *link;

		if (gap->size < size)
			continue;
		*ret_offset = gap->offset;
		gap->offset += size;
		gap->size -= size;
		if (!gap->size) {
			*link = gap->next;
			free(gap);
		}
		return true;
	}
	return false;
}

void gap_give(struct gap **list, uint64_t offset, uint64_t size)
{
	struct gap **link = list, *before = NULL;

	while (*link && (*link)->offset < offset) {
		before = *link;
		link = &before->next;
	}
	struct gap *after = *link;
	if (before && before->offset + before->size == offset) {
		before->size += size;
		if (after && before->offset + before->size == after->offset) {
			before->size += after->size;
			before->next = after->next;
			free(after);
		}
	} else if (after && offset + size == after->offset) {
		after->offset = offset;
		after->size += size;
	} else {
		struct gap *gap = malloc(sizeof(*gap));

		/* Without memory for its name the stretch of addresses is lost, nothing more. */
		if (!gap)
			return;
		*gap = (struct gap){after, offset, size};
		*link = gap;
	}
}
