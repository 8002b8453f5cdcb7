/* The books of arrays that the driver packs into blocks as it likes: charged together.
 *
 * This stays for a reason. With a block for each array, a program with a thousand small ones would
 * be charged 2 GiB for memory of which the driver takes a block or two
 * (tests/system/slice/test_slice_arrays.py). */
#include "front/books_inside.h"

uint32_t books_arrays_extra(const struct process_arrays *arrays)
{
	uint32_t least = (uint32_t)(books_blocks(arrays->bytes) / BLOCK_BYTES);

	return arrays->blocks > least ? arrays->blocks - least : 0;
}

static void arrays_release_locked(struct process *p, uint32_t gpu, uint32_t blocks)
{
	books_lessen_locked(p, gpu, blocks * BLOCK_BYTES);
	p->gpu[gpu].arrays.blocks -= blocks;
	books_maybe_freed_tell_locked(p);
}

void books_array_drop_locked(struct process *p, const struct object *array)
{
	struct process_arrays *arrays = &p->gpu[array->gpu].arrays;

	arrays->bytes -= array->memory;
	arrays->maybe_freed = MIN(arrays->maybe_freed + 1, arrays->blocks);
	arrays->exact = false;
	if (!--arrays->count) {
		arrays_release_locked(p, array->gpu, arrays->blocks);
		arrays->maybe_freed = 0;
	}
	books_maybe_freed_tell_locked(p);
}

void books_array_packed(struct process *p, struct object *array, uint64_t bytes)
{
	struct process_arrays *arrays = &p->gpu[array->gpu].arrays;

	array->memory = bytes;
	array->bytes = 0;
	owned_lock_acquire(&p->lock);
	arrays->count++;
	arrays->blocks++;
	arrays->bytes += bytes;
	arrays->maybe_freed += arrays->blocks > 1;
	arrays->exact = false;
	books_maybe_freed_tell_locked(p);
	owned_lock_release(&p->lock);
}

void books_maybe_freed_leave(struct process *p)
{
	owned_lock_acquire(&p->lock);
	for (uint32_t gpu = 0; gpu < p->attachment.gpu_count; gpu++) {
		struct process_arrays *arrays = &p->gpu[gpu].arrays;
		uint32_t extra = books_arrays_extra(arrays);

		if (!extra)
			continue;
		arrays->blocks -= extra;
		arrays->maybe_freed = 0;
		books_leave_locked(p, gpu, extra * BLOCK_BYTES);
		/* The daemon posts the memory that they took, from now on. */
		atomic_store(&p->has_remains, true);
	}
	owned_lock_release(&p->lock);
}

uint32_t books_arrays_maybe_freed(struct process *p, uint32_t gpu)
{
	owned_lock_acquire(&p->lock);
	uint32_t maybe_freed = p->gpu[gpu].arrays.maybe_freed;
	owned_lock_release(&p->lock);
	return maybe_freed;
}

bool books_arrays_exact(struct process *p, uint32_t gpu)
{
	const struct process_arrays *arrays = &p->gpu[gpu].arrays;

	owned_lock_acquire(&p->lock);
	bool exact = !arrays->asking && (arrays->exact || !books_arrays_extra(arrays));
	owned_lock_release(&p->lock);
	return exact;
}

bool books_arrays_ask(struct process *p, uint32_t gpu)
{
	struct process_arrays *arrays = &p->gpu[gpu].arrays;

	owned_lock_acquire(&p->lock);
	bool first = !arrays->asking;
	arrays->asking = true;
	/* The answer says nothing of arrays that come while it is asked. */
	arrays->exact |= first;
	owned_lock_release(&p->lock);
	return first;
}

/* Never fewer than they fill. An answer that says nothing may be none: then it is asked again, but
 * ever less often. */
void books_arrays_asked(struct process *p, uint32_t gpu, uint64_t over, bool sure)
{
	struct process_arrays *arrays = &p->gpu[gpu].arrays;

	owned_lock_acquire(&p->lock);
	arrays_release_locked(p, gpu,
			      (uint32_t)MIN(over / BLOCK_BYTES, books_arrays_extra(arrays)));
	arrays->maybe_freed = over ? 0 : arrays->maybe_freed / 2;
	arrays->exact &= sure;
	arrays->asking = false;
	owned_lock_release(&p->lock);
}
