#include "host/idmap.h"

#include <errno.h>
#include <stdlib.h>

static size_t idmap_home(const struct idmap *m, uint64_t id)
{
	return (size_t)((id * 0x9e3779b97f4a7c15ull) >> 20) & (m->size - 1);
}

/* The slot that holds id, or the free one where it belongs. */
static struct idmap_slot *idmap_find(const struct idmap *m, uint64_t id)
{
	size_t i = idmap_home(m, id);

	while (m->slots[i].id && m->slots[i].id != id)
		i = (i + 1) & (m->size - 1);
	return &m->slots[i];
}

static int idmap_grow(struct idmap *m)
{
	struct idmap bigger = {.size = m->size ? m->size * 2 : 64, .count = m->count};

	bigger.slots = calloc(bigger.size, sizeof(*bigger.slots));
	if (!bigger.slots)
		return -ENOMEM;
	for (size_t i = 0; i < m->size; i++) {
		if (m->slots[i].id)
			*idmap_find(&bigger, m->slots[i].id) = m->slots[i];
	}
	free(m->slots);
	*m = bigger;
	return 0;
}

int idmap_put(struct idmap *m, uint64_t id, void *value)
{
	if (m->count + 1 > m->size / 2) {
		int status = idmap_grow(m);
		if (status < 0)
			return status;
	}
	*idmap_find(m, id) = (struct idmap_slot){.id = id, .value = value};
	m->count++;
	return 0;
}

void *idmap_get(const struct idmap *m, uint64_t id)
{
	return m->size && id ? idmap_find(m, id)->value : NULL;
}

void idmap_remove(struct idmap *m, uint64_t id)
{
	if (!m->size || !id)
		return;
	struct idmap_slot *slot = idmap_find(m, id);
	if (!slot->id)
		return;
	*slot = (struct idmap_slot){0};
	m->count--;
	/* Those behind it may have been pushed past it: put each where it belongs now. */
	for (size_t i = (size_t)(slot - m->slots + 1) & (m->size - 1); m->slots[i].id;
	     i = (i + 1) & (m->size - 1)) {
		struct idmap_slot moved = m->slots[i];

		m->slots[i] = (struct idmap_slot){0};
		*idmap_find(m, moved.id) = moved;
	}
}

void idmap_finish(struct idmap *m)
{
	free(m->slots);
	*m = (struct idmap){0};
}
