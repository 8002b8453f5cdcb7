/* The ordered set of ranges, in libc's balanced tree: two ranges are "equal" when they overlap, so
 * looking for a one-byte range finds the one that holds it. */
#include <pthread.h>
#include <search.h>
#include <stdlib.h>

#include "cuda/memory.h"

static struct {
	pthread_rwlock_t lock;
	void *root;
	uint64_t next_id;
} ranges = {.lock = PTHREAD_RWLOCK_INITIALIZER, .next_id = 1};

static int compare(const void *a, const void *b)
{
	const struct range *x = a, *y = b;

	if (x->start + x->size <= y->start)
		return -1;
	return x->start >= y->start + y->size;
}

static struct range *find(uint64_t address)
{
	struct range key = {.start = address, .size = 1};
	struct range **node = tfind(&key, &ranges.root, compare);

	return node ? *node : NULL;
}

bool range_add(const struct range *range)
{
	struct range *entry = malloc(sizeof(*entry));

	if (!entry)
		return false;
	*entry = *range;
	pthread_rwlock_wrlock(&ranges.lock);
	entry->id = ranges.next_id++;
	struct range **node = tsearch(entry, &ranges.root, compare);
	bool added = node && *node == entry;
	pthread_rwlock_unlock(&ranges.lock);
	if (!added)
		free(entry);
	return added;
}

static void take(struct range *entry, struct range *ret)
{
	tdelete(entry, &ranges.root, compare);
	*ret = *entry;
	free(entry);
}

bool range_remove(uint64_t start, enum range_kind kind, struct range *ret)
{
	pthread_rwlock_wrlock(&ranges.lock);
	struct range *entry = find(start);
	bool found = entry && entry->start == start && (!kind || entry->kind == kind);
	if (found)
		take(entry, ret);
	pthread_rwlock_unlock(&ranges.lock);
	return found;
}

bool range_find(uint64_t address, struct range *ret)
{
	pthread_rwlock_rdlock(&ranges.lock);
	struct range *entry = find(address);
	if (entry)
		*ret = *entry;
	pthread_rwlock_unlock(&ranges.lock);
	return entry != NULL;
}

bool range_change(uint64_t address, void (*change)(struct range *, void *), void *arg)
{
	pthread_rwlock_wrlock(&ranges.lock);
	struct range *entry = find(address);
	if (entry)
		change(entry, arg);
	pthread_rwlock_unlock(&ranges.lock);
	return entry != NULL;
}

struct search {
	CUcontext ctx;
	struct range *found;
};

static void visit(const void *node, VISIT order, void *arg)
{
	struct search *search = arg;
	struct range *entry = *(struct range *const *)node;

	if ((order == preorder || order == leaf) && !search->found && entry->ctx == search->ctx)
		search->found = entry;
}

bool range_take_of(CUcontext ctx, struct range *ret)
{
	struct search search = {ctx, NULL};

	pthread_rwlock_wrlock(&ranges.lock);
	twalk_r(ranges.root, visit, &search);
	if (search.found)
		take(search.found, ret);
	pthread_rwlock_unlock(&ranges.lock);
	return search.found != NULL;
}

bool range_covers(uint64_t start, uint64_t size)
{
	uint64_t at = start;
	bool covered = true;

	if (start + size < start)
		return false;
	pthread_rwlock_rdlock(&ranges.lock);
	while (covered && at < start + size) {
		struct range *entry = find(at);

		covered = entry != NULL;
		if (entry)
			at = entry->start + entry->size;
	}
	pthread_rwlock_unlock(&ranges.lock);
	return covered;
}
