#include "front/cuda/charge/piece.h"

#include <sys/mman.h>

#include "front/books.h"
#include "front/cuda/hooks.h"

/* The unit in whose multiples the driver hands pieces out. */
#define PIECE_UNIT 512ull

void piece_note(struct process *p, CUmemoryPool pool, CUdeviceptr ptr)
{
	struct object object = {
		.kind = OBJECT_LINEAR, .handle = ptr, .memory = (uintptr_t)pool, .count = 1};

	books_note(p, &object);
}

struct list {
	uint64_t *at;
	size_t count, mapped;
};

static bool list_make(struct list *list, struct process *p, CUmemoryPool pool)
{
	size_t room = books_list(p, OBJECT_LINEAR, (uintptr_t)pool, NULL, 0);

	if (!room)
		return false;
	list->mapped = room * sizeof(*list->at);
	list->at = mmap(NULL, list->mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
			0);
	if (list->at == MAP_FAILED)
		return false;
	list->count = MIN(books_list(p, OBJECT_LINEAR, (uintptr_t)pool, list->at, room), room);
	return true;
}

/* A heap's way, as the C library's takes memory. */
static void sift(uint64_t *at, size_t root, size_t count)
{
	for (size_t child = 2 * root + 1; child < count; child = 2 * root + 1) {
		child += child + 1 < count && at[child] < at[child + 1];
		if (at[root] >= at[child])
			return;
		uint64_t swapped = at[root];
		at[root] = at[child];
		at[child] = swapped;
		root = child;
	}
}

static void sort(uint64_t *at, size_t count)
{
	for (size_t i = count / 2; i-- > 0;)
		sift(at, i, count);
	for (size_t end = count; end-- > 1;) {
		uint64_t swapped = at[0];
		at[0] = at[end];
		at[end] = swapped;
		sift(at, 0, end);
	}
}

struct span {
	uint64_t start, end;
};

/* The memory of the pool around an allocation. */
static bool segment_of(struct span *ret, CUmemoryPool pool, CUdeviceptr ptr)
{
	CUmemoryPool owner = NULL;
	CUdeviceptr base = 0;
	size_t size = 0;

	if (real_cuPointerGetAttribute(&owner, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, ptr) ||
	    real_cuPointerGetAttribute(&base, CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR, ptr) ||
	    real_cuPointerGetAttribute(&size, CU_POINTER_ATTRIBUTE_MAPPING_SIZE, ptr))
		return false;
	*ret = (struct span){base, base + size};
	return owner == pool && base <= ptr && ptr - base < size;
}

/* Whether one of the gaps between the allocations, in the order of their addresses, is as long. */
static bool has_gap(const struct list *list, CUmemoryPool pool, uint64_t bytes)
{
	struct span segment = {0};
	uint64_t seen = 0; /* up to where the segment has been looked at */
	CUdeviceptr start;
	size_t size;

	for (size_t i = 0; i < list->count; i++) {
		if (list->at[i] >= segment.end) {
			if (segment.end - seen >= bytes)
				return true;
			if (!segment_of(&segment, pool, list->at[i]))
				return false;
			seen = segment.start;
		}
		if (real_cuMemGetAddressRange_v2(&start, &size, list->at[i]))
			return false;
		if (start > seen && start - seen >= bytes)
			return true;
		seen = MAX(seen, MIN(start + size, segment.end));
	}
	return segment.end - seen >= bytes;
}

bool piece_fits(struct process *p, CUmemoryPool pool, uint64_t bytes)
{
	struct list list;

	if (!bytes || bytes > BOOKS_MOST || !list_make(&list, p, pool))
		return false;
	sort(list.at, list.count);
	bool fits = has_gap(&list, pool, ALIGN_UP(bytes, PIECE_UNIT));
	munmap(list.at, list.mapped);
	return fits;
}
