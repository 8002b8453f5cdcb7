/* Linear probing; removal moves later objects of the run back, so there are no marks of removed
 * ones that look-ups would have to cross. Grown when 3/4 full. */
#include "front/table.h"

#include <errno.h>
#include <sys/mman.h>

#define TABLE_FIRST_SIZE 1024u
#define LARGE_PAGE_BYTES (2ul << 20)

static size_t home_of(const struct table *t, enum object_kind kind, uint64_t handle)
{
	uint64_t mixed = (handle ^ (uint64_t)kind << 56) * 0x9e3779b97f4a7c15ull;

	return (mixed >> 32) & (t->size - 1);
}

static struct object *place_of(const struct table *t, enum object_kind kind, uint64_t handle)
{
	size_t at = home_of(t, kind, handle);

	while (t->places[at].kind != OBJECT_NONE &&
	       (t->places[at].kind != kind || t->places[at].handle != handle))
		at = (at + 1) & (t->size - 1);
	return &t->places[at];
}

/* Places for `size` objects. Large tables lie in large pages, where there are any: look-ups are
 * spread over them evenly. NULL: no memory. */
static struct object *places_map(size_t size)
{
	size_t bytes = size * sizeof(struct object);
	void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (at == MAP_FAILED)
		return NULL;
	if (bytes >= LARGE_PAGE_BYTES)
		(void)madvise(at, bytes, MADV_HUGEPAGE);
	return at;
}

static int grow(struct table *t)
{
	struct table bigger = {.size = t->size ? t->size * 2 : TABLE_FIRST_SIZE, .used = t->used};

	bigger.places = places_map(bigger.size);
	if (!bigger.places)
		return -ENOMEM;
	for (size_t i = 0; i < t->size; i++) {
		const struct object *object = &t->places[i];

		if (object->kind != OBJECT_NONE)
			*place_of(&bigger, object->kind, object->handle) = *object;
	}
	if (t->places)
		munmap(t->places, t->size * sizeof(*t->places));
	*t = bigger;
	return 0;
}

int table_put(struct table *t, const struct object *object, struct object *ret_old)
{
	if (t->used >= t->size / 4 * 3 && grow(t) < 0)
		return -ENOMEM;
	struct object *place = place_of(t, object->kind, object->handle);

	if (ret_old)
		*ret_old = *place;
	t->used += place->kind == OBJECT_NONE;
	*place = *object;
	return 0;
}

struct object *table_find(const struct table *t, enum object_kind kind, uint64_t handle)
{
	if (!t->size)
		return NULL;
	struct object *place = place_of(t, kind, handle);

	return place->kind == OBJECT_NONE ? NULL : place;
}

struct object *table_find_around(const struct table *t, enum object_kind kind, uint64_t at)
{
	for (size_t i = 0; i < t->size; i++) {
		struct object *object = &t->places[i];

		if (object->kind == kind && at - object->handle < object->bytes)
			return object;
	}
	return NULL;
}

/* Empties a place and closes the gap: an object further on moves into it if its home is not
 * between. */
static void remove_at(struct table *t, size_t gap)
{
	size_t mask = t->size - 1, at = gap;

	t->used--;
	for (;;) {
		t->places[gap].kind = OBJECT_NONE;
		do {
			at = (at + 1) & mask;
			if (t->places[at].kind == OBJECT_NONE)
				return;
		} while (((at - home_of(t, t->places[at].kind, t->places[at].handle)) & mask) <
			 ((at - gap) & mask));
		t->places[gap] = t->places[at];
		gap = at;
	}
}

bool table_take(struct table *t, enum object_kind kind, uint64_t handle, struct object *ret)
{
	struct object *place = table_find(t, kind, handle);

	if (!place)
		return false;
	*ret = *place;
	remove_at(t, (size_t)(place - t->places));
	return true;
}

bool table_take_of_context(struct table *t, uint64_t context, struct object *ret)
{
	for (size_t at = 0; at < t->size; at++) {
		if (t->places[at].kind == OBJECT_NONE || t->places[at].context != context)
			continue;
		*ret = t->places[at];
		remove_at(t, at);
		return true;
	}
	return false;
}
