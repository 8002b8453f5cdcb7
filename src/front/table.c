/* Linear probing over places of 8 bytes; removal moves later ones of the run back, so there are no
 * marks of removed ones that look-ups would have to cross. The objects themselves stay where they
 * are, and the one given up last is the next one used. So what a call touches at random is small
 * and stays in a near cache with many objects, too. Grown when half full. */
#include "front/table.h"

#include <errno.h>
#include <sys/mman.h>

#include "base/macros.h"

#define TABLE_FIRST_SIZE 1024u

/* A place holds an object's number, counted from 1, and what its handle hashes to; 0: empty. */
static uint64_t place_make(uint32_t hash, uint32_t number)
{
	return (uint64_t)hash << 32 | number;
}

static uint32_t place_hash(uint64_t place)
{
	return (uint32_t)(place >> 32);
}

static struct object *place_object(const struct table *t, uint64_t place)
{
	return &t->objects[(uint32_t)place - 1];
}

/* Addresses that follow one another, in blocks or within one, have their places in the same line of
 * the cache, eight by eight. So memory that is allocated one after the other is found there. */
static inline uint32_t hash_of(uint32_t kind, uint64_t handle)
{
	uint32_t shift = handle % MIB(2) == 0 ? 21 : handle % 512 == 0 ? 9 : 4;
	uint64_t line = handle >> (shift + 3) ^ handle % 16 << 40 ^ (uint64_t)kind << 56;

	return ((uint32_t)(line * 0x9e3779b97f4a7c15ull >> 32) & ~7u) |
	       (uint32_t)(handle >> shift & 7);
}

/* Where the object is, or the empty place where it would be put. */
static inline size_t find_place(const struct table *t, uint32_t hash, uint32_t kind,
				uint64_t handle)
{
	size_t mask = t->size - 1, at = hash & mask;

	for (uint64_t place; (place = t->places[at]); at = (at + 1) & mask) {
		const struct object *object = place_object(t, place);

		if (place_hash(place) == hash && object->handle == handle && object->kind == kind)
			break;
	}
	return at;
}

static size_t capacity(size_t size)
{
	return size / 2;
}

static void *map(size_t size)
{
	void *at = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	return at == MAP_FAILED ? NULL : at;
}

static bool grow_objects(struct table *t, size_t size)
{
	size_t before = capacity(t->size) * sizeof(*t->objects);
	size_t after = capacity(size) * sizeof(*t->objects);
	void *at = t->objects ? mremap(t->objects, before, after, MREMAP_MAYMOVE) : map(after);

	if (!at || at == MAP_FAILED)
		return false;
	t->objects = at;
	return true;
}

static __attribute__((noinline)) int grow(struct table *t)
{
	size_t size = t->size ? t->size * 2 : TABLE_FIRST_SIZE;
	uint64_t *places = map(size * sizeof(*places));

	if (!places)
		return -ENOMEM;
	if (!grow_objects(t, size)) {
		munmap(places, size * sizeof(*places));
		return -ENOMEM;
	}
	for (size_t i = 0; i < t->size; i++) {
		size_t at = place_hash(t->places[i]) & (size - 1);

		if (!t->places[i])
			continue;
		while (places[at])
			at = (at + 1) & (size - 1);
		places[at] = t->places[i];
	}
	if (t->places)
		munmap(t->places, t->size * sizeof(*t->places));
	t->places = places;
	t->size = size;
	return 0;
}

/* Unused objects are chained by their handles. */
static uint32_t number_take(struct table *t)
{
	uint32_t number = t->unused;

	if (!number)
		return ++t->numbers;
	t->unused = (uint32_t)t->objects[number - 1].handle;
	return number;
}

static void number_give(struct table *t, uint32_t number)
{
	t->objects[number - 1].kind = OBJECT_NONE;
	t->objects[number - 1].handle = t->unused;
	t->unused = number;
}

/* Field by field: what was written as fields just before is not in memory yet, and could not be
 * read as anything wider without waiting for that. All fields. */
static inline void object_copy(struct object *to, const struct object *from)
{
	to->handle = from->handle;
	to->bytes = from->bytes;
	to->context = from->context;
	to->memory = from->memory;
	to->small = from->small;
	to->count = from->count;
	to->kind = from->kind;
	to->gpu = from->gpu;
	to->exported = from->exported;
	to->marked = from->marked;
	to->managed = from->managed;
	to->unlisted = from->unlisted;
}

int table_put(struct table *t, const struct object *object, struct object *ret_old)
{
	if (ret_old)
		ret_old->kind = OBJECT_NONE;
	if (t->used >= capacity(t->size) && grow(t) < 0)
		return -ENOMEM;
	uint32_t hash = hash_of(object->kind, object->handle);
	size_t at = find_place(t, hash, object->kind, object->handle);
	uint32_t number = (uint32_t)t->places[at];

	if (!number) {
		number = number_take(t);
		t->places[at] = place_make(hash, number);
		t->used++;
	} else if (ret_old) {
		*ret_old = t->objects[number - 1];
	}
	object_copy(&t->objects[number - 1], object);
	return 0;
}

struct object *table_find(const struct table *t, enum object_kind kind, uint64_t handle)
{
	if (!t->size)
		return NULL;
	uint64_t place = t->places[find_place(t, hash_of(kind, handle), kind, handle)];

	return place ? place_object(t, place) : NULL;
}

struct object *table_find_anew(const struct table *t, enum object_kind kind, uint64_t handle,
			       uint32_t *ret_number)
{
	struct object *object = table_find(t, kind, handle);

	if (object)
		*ret_number = (uint32_t)(object - t->objects) + 1;
	return object;
}

struct object *table_find_around(const struct table *t, enum object_kind kind, uint64_t at)
{
	for (uint32_t i = 0; i < t->numbers; i++) {
		struct object *object = &t->objects[i];

		if (object->kind == kind && at - object->handle < object->bytes)
			return object;
	}
	return NULL;
}

size_t table_list(const struct table *t, enum object_kind kind, uint64_t memory, uint64_t *handles,
		  size_t room)
{
	size_t count = 0;

	for (uint32_t i = 0; i < t->numbers; i++) {
		const struct object *object = &t->objects[i];

		if (object->kind != kind || object->memory != memory)
			continue;
		if (count < room)
			handles[count] = object->handle;
		count++;
	}
	return count;
}

/* Empties a place and closes the gap: an object further on moves into it if its home is not
 * between. */
static void remove_at(struct table *t, size_t gap)
{
	size_t mask = t->size - 1, at = gap;

	t->used--;
	number_give(t, (uint32_t)t->places[gap]);
	for (;;) {
		t->places[gap] = 0;
		do {
			at = (at + 1) & mask;
			if (!t->places[at])
				return;
		} while (((at - place_hash(t->places[at])) & mask) < ((at - gap) & mask));
		t->places[gap] = t->places[at];
		gap = at;
	}
}

bool table_take(struct table *t, enum object_kind kind, uint64_t handle, struct object *ret)
{
	if (!t->size)
		return false;
	size_t at = find_place(t, hash_of(kind, handle), kind, handle);

	if (!t->places[at])
		return false;
	object_copy(ret, place_object(t, t->places[at]));
	remove_at(t, at);
	return true;
}

bool table_take_of_context(struct table *t, uint64_t context, size_t *cursor, struct object *ret)
{
	while (*cursor < t->numbers) {
		const struct object *object = &t->objects[(*cursor)++];

		if (object->kind != OBJECT_NONE && object->context == context)
			return table_take(t, object->kind, object->handle, ret);
	}
	return false;
}
