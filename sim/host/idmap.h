/* Numbers to pointers: a hash table that grows, for IDs that are never reused. Owns no values. */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct idmap_slot {
	uint64_t id; /* 0: free */
	void *value;
};

struct idmap {
	struct idmap_slot *slots;
	size_t size, count; /* size is 0 or a power of 2 */
};

/* id must not be 0 nor in the map. 0 or -ENOMEM. */
int idmap_put(struct idmap *m, uint64_t id, void *value);
/* NULL: not there. */
void *idmap_get(const struct idmap *m, uint64_t id);
void idmap_remove(struct idmap *m, uint64_t id);
void idmap_finish(struct idmap *m);
