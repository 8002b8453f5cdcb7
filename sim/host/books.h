/* The holders of memory: how much each has in which space. Bytes only: what backs the memory is a
 * descriptor that the books keep for importers. No I/O but closing those; one thread.
 *
 * A block of memory has references, each somebody's; it is charged to its first holder, and when
 * that one lets go, to the next. With the last reference its bytes are free. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "host/idmap.h"
#include "host/list.h"
#include "host/wire.h"

/* Memory that can be handed out: of a GPU, or of a MIG GPU instance. */
struct book_space {
	uint64_t capacity, used, peak; /* bytes */
	uint32_t gpu;
	wire_device device;
};

/* The memory of one holder in one space. */
struct book_account {
	struct list node; /* in book_holder.accounts */
	struct book_space *space;
	wire_device device; /* that it last asked for: the space's own, or a compute instance's */
	uint64_t bytes, peak;
	uint64_t kind[WIRE_MEMORY_KINDS], kind_peak[WIRE_MEMORY_KINDS];
	uint32_t blocks[WIRE_MEMORY_KINDS]; /* how many, as long as it is charged for them */
};

struct book_holder {
	void *owner;
	bool anchor; /* keeps memory alive, but is not charged: see book_holder_anchor */
	struct list refs, accounts;
};

struct book_block {
	uint64_t id;
	struct book_space *space;
	enum wire_memory kind;
	uint64_t bytes;
	struct list refs;             /* in order of age: the first one's holder is charged */
	struct book_account *account; /* NULL: only anchors hold it */
	int fd;                       /* backing, -1: never exported */
	uint8_t token[32];
	uint8_t note[64];
};

struct books {
	struct idmap blocks, refs;
	uint64_t next_id;
	/* May be NULL. After `holder` (NULL: nobody alive) was charged with, or relieved of, a
	 * block. */
	void (*changed)(void *context, const struct book_holder *holder,
			const struct book_block *block, int64_t delta);
	void *context;
};

void books_init(struct books *b);
/* All holders must be gone. */
void books_finish(struct books *b);

void book_holder_init(struct book_holder *h, void *owner);
/* Gives everything back. */
void book_holder_finish(struct books *b, struct book_holder *h);
/* NULL: never had anything there. */
const struct book_account *book_account_find(const struct book_holder *h,
					     const struct book_space *space);
/* Drops what is remembered of a space that goes away; nothing may be held there. */
void book_account_forget(struct book_holder *h, const struct book_space *space);

/* -ENOMEM: no room in the space. -EINVAL: zero bytes. *ret_id names the holder's reference. */
int books_reserve(struct books *b, struct book_holder *h, struct book_space *space,
		  enum wire_memory kind, uint64_t bytes, uint64_t *ret_id);
/* -ENOENT: not this holder's. */
int books_release(struct books *b, struct book_holder *h, uint64_t id);
/* The block behind a holder's reference; NULL: not this holder's. */
struct book_block *books_block(const struct books *b, const struct book_holder *h, uint64_t id);
/* The block with this token; NULL: none. */
struct book_block *books_block_by_token(const struct books *b, const uint8_t token[32]);
/* Another reference. h may be an anchor: a holder that is never charged. */
int books_refer(struct books *b, struct book_holder *h, struct book_block *block, uint64_t *ret_id);
/* Lets others import it: keeps fd (taken over; an earlier one stays and fd is closed) and note.
 * Makes the token on first use. 0 or -errno. */
int books_export(struct book_block *block, int fd, const uint8_t note[64]);

/* Marks a holder as anchor: it keeps memory alive, but is not charged. */
void book_holder_anchor(struct book_holder *h);
