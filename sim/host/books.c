#include "host/books.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/file.h"
#include "base/macros.h"

struct book_ref {
	uint64_t id;
	struct book_holder *holder;
	struct book_block *block;
	struct list in_holder, in_block;
};

void books_init(struct books *b)
{
	*b = (struct books){.next_id = 1};
}

void books_finish(struct books *b)
{
	idmap_finish(&b->blocks);
	idmap_finish(&b->refs);
}

void book_holder_init(struct book_holder *h, void *owner)
{
	*h = (struct book_holder){.owner = owner};
	list_init(&h->refs);
	list_init(&h->accounts);
}

void book_holder_anchor(struct book_holder *h)
{
	h->anchor = true;
}

static struct book_account *account_get(struct book_holder *h, struct book_space *space)
{
	struct book_account *a = (struct book_account *)book_account_find(h, space);

	if (a)
		return a;
	a = calloc(1, sizeof(*a));
	if (!a)
		return NULL;
	a->space = space;
	a->device = space->device;
	list_append(&h->accounts, &a->node);
	return a;
}

const struct book_account *book_account_find(const struct book_holder *h,
					     const struct book_space *space)
{
	list_for_each (node, &h->accounts) {
		struct book_account *a = list_entry(node, struct book_account, node);
		if (a->space == space)
			return a;
	}
	return NULL;
}

void book_account_forget(struct book_holder *h, const struct book_space *space)
{
	struct book_account *a = (struct book_account *)book_account_find(h, space);

	if (!a)
		return;
	list_remove(&a->node);
	free(a);
}

static void account_charge(struct book_account *a, const struct book_block *block)
{
	a->bytes += block->bytes;
	a->peak = MAX(a->peak, a->bytes);
	a->kind[block->kind] += block->bytes;
	a->kind_peak[block->kind] = MAX(a->kind_peak[block->kind], a->kind[block->kind]);
	a->blocks[block->kind]++;
}

static void account_relieve(struct book_account *a, const struct book_block *block)
{
	a->bytes -= block->bytes;
	a->kind[block->kind] -= block->bytes;
	a->blocks[block->kind]--;
}

static void changed(struct books *b, const struct book_holder *h, const struct book_block *block,
		    int64_t delta)
{
	if (b->changed)
		b->changed(b->context, h, block, delta);
}

/* Charges the block to the oldest reference whose holder is not an anchor. */
static void block_settle(struct books *b, struct book_block *block)
{
	block->account = NULL;
	list_for_each (node, &block->refs) {
		struct book_ref *ref = list_entry(node, struct book_ref, in_block);

		if (ref->holder->anchor)
			continue;
		block->account = account_get(ref->holder, block->space);
		if (!block->account)
			continue;
		account_charge(block->account, block);
		changed(b, ref->holder, block, (int64_t)block->bytes);
		return;
	}
	changed(b, NULL, block, (int64_t)block->bytes);
}

static void block_free(struct books *b, struct book_block *block)
{
	idmap_remove(&b->blocks, block->id);
	close_fd(&block->fd);
	free(block);
}

static void ref_drop(struct books *b, struct book_ref *ref)
{
	struct book_block *block = ref->block;
	struct book_holder *h = ref->holder;
	bool first = block->account && block->account == book_account_find(h, block->space);

	idmap_remove(&b->refs, ref->id);
	list_remove(&ref->in_holder);
	list_remove(&ref->in_block);
	free(ref);
	bool last = list_empty(&block->refs);
	/* Before anybody is told, who would read it. */
	if (last)
		block->space->used -= block->bytes;
	if (first) {
		account_relieve(block->account, block);
		changed(b, h, block, -(int64_t)block->bytes);
	} else if (last) {
		changed(b, NULL, block, -(int64_t)block->bytes);
	}
	if (last)
		block_free(b, block);
	else if (first)
		block_settle(b, block);
}

void book_holder_finish(struct books *b, struct book_holder *h)
{
	list_for_each_safe (node, &h->refs)
		ref_drop(b, list_entry(node, struct book_ref, in_holder));
	list_for_each_safe (node, &h->accounts) {
		list_remove(node);
		free(list_entry(node, struct book_account, node));
	}
}

int books_refer(struct books *b, struct book_holder *h, struct book_block *block, uint64_t *ret_id)
{
	struct book_ref *ref = calloc(1, sizeof(*ref));

	if (!ref)
		return -ENOMEM;
	*ref = (struct book_ref){.id = b->next_id++, .holder = h, .block = block};
	int status = idmap_put(&b->refs, ref->id, ref);
	if (status < 0) {
		free(ref);
		return status;
	}
	bool nobodys = !block->account && !list_empty(&block->refs);
	list_append(&h->refs, &ref->in_holder);
	list_append(&block->refs, &ref->in_block);
	if (nobodys && !h->anchor) {
		changed(b, NULL, block, -(int64_t)block->bytes);
		block_settle(b, block);
	}
	*ret_id = ref->id;
	return 0;
}

int books_reserve(struct books *b, struct book_holder *h, struct book_space *space,
		  enum wire_memory kind, uint64_t bytes, uint64_t *ret_id)
{
	if (!bytes)
		return -EINVAL;
	if (bytes > space->capacity || space->used > space->capacity - bytes)
		return -ENOMEM;
	struct book_block *block = calloc(1, sizeof(*block));
	if (!block || !account_get(h, space)) {
		free(block);
		return -ENOMEM;
	}
	*block = (struct book_block){
		.id = b->next_id++, .space = space, .kind = kind, .bytes = bytes, .fd = -1};
	list_init(&block->refs);
	int status = idmap_put(&b->blocks, block->id, block);
	if (status < 0) {
		free(block);
		return status;
	}
	status = books_refer(b, h, block, ret_id);
	if (status < 0) {
		idmap_remove(&b->blocks, block->id);
		free(block);
		return status;
	}
	space->used += bytes;
	space->peak = MAX(space->peak, space->used);
	block_settle(b, block);
	return 0;
}

static struct book_ref *ref_find(const struct books *b, const struct book_holder *h, uint64_t id)
{
	struct book_ref *ref = idmap_get(&b->refs, id);

	return ref && ref->holder == h ? ref : NULL;
}

int books_release(struct books *b, struct book_holder *h, uint64_t id)
{
	struct book_ref *ref = ref_find(b, h, id);

	if (!ref)
		return -ENOENT;
	ref_drop(b, ref);
	return 0;
}

struct book_block *books_block(const struct books *b, const struct book_holder *h, uint64_t id)
{
	struct book_ref *ref = ref_find(b, h, id);

	return ref ? ref->block : NULL;
}

/* A token is the block's ID and 24 random bytes, so that nobody imports by guessing. */
struct book_block *books_block_by_token(const struct books *b, const uint8_t token[32])
{
	uint64_t id;

	memcpy(&id, token, sizeof(id));
	struct book_block *block = idmap_get(&b->blocks, id);
	return block && block->fd >= 0 && !memcmp(block->token, token, sizeof(block->token)) ? block
											     : NULL;
}

int books_export(struct book_block *block, int fd, const uint8_t note[64])
{
	memcpy(block->note, note, sizeof(block->note));
	if (block->fd >= 0) {
		close(fd);
		return 0;
	}
	memcpy(block->token, &block->id, sizeof(block->id));
	if (getrandom(block->token + sizeof(block->id), sizeof(block->token) - sizeof(block->id),
		      0) < 0) {
		close(fd);
		return -errno;
	}
	block->fd = fd;
	return 0;
}
