#include "cuda/handle.h"

#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>

struct slot {
	const void *handle; /* NULL: free; TOMBSTONE: was taken, keep probing */
	enum handle_type type;
};

#define TOMBSTONE ((const void *)1)

static struct {
	pthread_rwlock_t lock;
	struct slot *slots;
	size_t size; /* a power of two */
	size_t used; /* tombstones included */
	size_t live;
} table = {.lock = PTHREAD_RWLOCK_INITIALIZER};

static size_t hash(const void *handle)
{
	return (size_t)(((uint64_t)(uintptr_t)handle >> 4) * 0x9e3779b97f4a7c15ull >> 20);
}

static struct slot *find(const void *handle)
{
	if (!table.size)
		return NULL;
	for (size_t i = hash(handle);; i++) {
		struct slot *s = &table.slots[i & (table.size - 1)];

		if (s->handle == handle)
			return s;
		if (!s->handle)
			return NULL;
	}
}

static void insert(const void *handle, enum handle_type type)
{
	size_t i = hash(handle) & (table.size - 1);

	while (table.slots[i].handle)
		i = (i + 1) & (table.size - 1);
	table.slots[i] = (struct slot){handle, type};
	table.used++;
	table.live++;
}

static bool grow(void)
{
	size_t old_size = table.size;
	struct slot *old = table.slots;
	size_t size = 256;

	while (size < (table.live + 1) * 4)
		size *= 2;
	struct slot *slots = calloc(size, sizeof(*slots));
	if (!slots)
		return false;
	table.slots = slots;
	table.size = size;
	table.used = table.live = 0;
	for (size_t i = 0; i < old_size; i++)
		if (old[i].handle && old[i].handle != TOMBSTONE)
			insert(old[i].handle, old[i].type);
	free(old);
	return true;
}

bool handle_add(const void *handle, enum handle_type type)
{
	bool ok = true;

	pthread_rwlock_wrlock(&table.lock);
	if ((table.used + 1) * 2 > table.size)
		ok = grow();
	if (ok)
		insert(handle, type);
	pthread_rwlock_unlock(&table.lock);
	return ok;
}

void handle_remove(const void *handle)
{
	pthread_rwlock_wrlock(&table.lock);
	struct slot *s = handle ? find(handle) : NULL;
	if (s) {
		*s = (struct slot){TOMBSTONE, HANDLE_NONE};
		table.live--;
	}
	pthread_rwlock_unlock(&table.lock);
}

enum handle_type handle_type_of(const void *handle)
{
	enum handle_type type = HANDLE_NONE;

	if (handle == TOMBSTONE)
		return HANDLE_NONE;
	pthread_rwlock_rdlock(&table.lock);
	struct slot *s = find(handle);
	if (s)
		type = s->type;
	pthread_rwlock_unlock(&table.lock);
	return type;
}
