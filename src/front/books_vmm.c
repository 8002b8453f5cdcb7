/* The books of virtual memory management: what descriptors and mappings there are of memory of
 * cuMemCreate. */
#include <fcntl.h>

#include "front/books.h"
#include "proto/mark.h"

/* Shared, so that none is in another's way. */
static bool mark_set(struct process *p, const struct object *object, int fd)
{
	const struct mark mark = {
		.session = mark_session(p->attachment.ledger.limits->session),
		.slot = p->attachment.slot,
		.life = mark_life(process_slot(p)->start_time),
		.gpu = object->gpu,
		.number = (uint32_t)object->memory,
	};
	struct flock lock = {
		.l_type = F_RDLCK,
		.l_whence = SEEK_SET,
		.l_start = (off_t)mark_start(&mark),
		.l_len = (off_t)mark_length(object->bytes),
	};

	return fcntl(fd, F_OFD_SETLK, &lock) == 0;
}

bool books_describe(struct process *p, uint64_t memory, int fd)
{
	owned_lock_acquire(&p->lock);
	struct object *object = table_find(&p->objects, OBJECT_PHYSICAL, memory);
	if (object && !object->memory)
		object->memory = ++p->last_mark;
	bool marked = object && object->bytes && mark_set(p, object, fd);
	if (marked)
		object->marked = true;
	owned_lock_release(&p->lock);
	return marked;
}

uint32_t books_mappings(struct process *p)
{
	owned_lock_acquire(&p->lock);
	uint32_t latest = p->last_mapping;
	owned_lock_release(&p->lock);
	return latest;
}

void books_mapped(struct process *p, struct object *mapping, struct object *ret_old,
		  uint32_t *ret_unmaps)
{
	*ret_old = (struct object){0};
	owned_lock_acquire(&p->lock);
	mapping->count = ++p->last_mapping;
	table_put(&p->objects, mapping, ret_old);
	*ret_unmaps = p->unmaps;
	owned_lock_release(&p->lock);
}

uint32_t books_unmaps(struct process *p)
{
	owned_lock_acquire(&p->lock);
	uint32_t unmaps = p->unmaps;
	owned_lock_release(&p->lock);
	return unmaps;
}

void books_unmapped(struct process *p)
{
	owned_lock_acquire(&p->lock);
	p->unmaps++;
	owned_lock_release(&p->lock);
}

bool books_unmap(struct process *p, uint64_t address, uint32_t latest, struct object *ret)
{
	owned_lock_acquire(&p->lock);
	const struct object *mapping = table_find(&p->objects, OBJECT_MAPPING, address);
	bool found = mapping && (int32_t)(mapping->count - latest) <= 0 &&
		     table_take(&p->objects, OBJECT_MAPPING, address, ret);
	owned_lock_release(&p->lock);
	return found;
}

bool books_look_mapping(struct process *p, uint64_t address, struct object *ret)
{
	owned_lock_acquire(&p->lock);
	const struct object *object = table_find_around(&p->objects, OBJECT_MAPPING, address);
	if (object)
		*ret = *object;
	owned_lock_release(&p->lock);
	return object != NULL;
}
