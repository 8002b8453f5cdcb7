/* The accounts of leases in a memfd that outlives the daemon (host/keep.h), so that after kill -9
 * turns go on as after an upgrade. The file has one entry for each GPU that is time-sliced, by
 * UUID, and one for each session, by ID. An entry holds a list of numbers of core/lease_left.h.
 *
 * The lease thread writes an entry by plain stores at the beginning and at the end of a turn, and
 * each second. `sequence` is odd meanwhile. So an entry that a killed daemon left half written is
 * recognised, and that session or GPU begins anew. Nobody else has the file; a daemon that takes
 * it checks its size and head all the same, and core/lease_left.c takes any numbers.
 *
 * The layout is an ABI between versions of the daemon: a file of another version is not taken.
 * Called with the lock of leases held. */
#pragma once

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "core/lease_left.h"

#define LEASE_ACCOUNTS_MAGIC 0x5341454cu /* "LEAS" */
#define LEASE_ACCOUNTS_VERSION 2u
#define LEASE_ACCOUNTS_SESSIONS 4096u
#define LEASE_ACCOUNTS_NAME 48u

struct lease_entry {
	_Atomic uint64_t sequence;
	char name[LEASE_ACCOUNTS_NAME]; /* "": it is free */
	uint64_t count;                 /* that many numbers follow */
	uint64_t stalls, reopened;      /* a session's, for showing */
	int64_t counted_from;           /* a session's: as in struct lease_joining */
	int64_t numbers[LEASE_LEFT_MAX];
};

struct lease_accounts_head {
	uint32_t magic, version;
	uint64_t entry_size;
	uint64_t reserved[6];
};

/* 17 MB, of which a page or two are used for each entry that was ever written. */
struct lease_accounts {
	struct lease_accounts_head head;
	struct lease_entry gpu[LEASE_GPUS_MAX];
	struct lease_entry session[LEASE_ACCOUNTS_SESSIONS];
};

_Static_assert(sizeof(struct lease_entry) == 88 + 8 * LEASE_LEFT_MAX, "account ABI");
_Static_assert(LEASE_LEFT_MAX == 512 && LEASE_GPUS_MAX == 64, "account ABI");
_Static_assert(offsetof(struct lease_entry, count) == 56, "account ABI");
_Static_assert(offsetof(struct lease_entry, numbers) == 88, "account ABI");
_Static_assert(offsetof(struct lease_accounts, gpu) == 64, "account ABI");
_Static_assert(offsetof(struct lease_accounts, session) ==
		       64 + LEASE_GPUS_MAX * sizeof(struct lease_entry),
	       "account ABI");

/* A new file, without entries. The descriptor or -errno. */
int lease_accounts_new(void);
/* Maps the file for as long as the process lives. 0 or -errno; -EPROTO: it is none of this version.
 * The descriptor stays the caller's. */
int lease_accounts_map(int fd, struct lease_accounts **ret);

/* The entry of that name; NULL: there is none, or it was left half written. */
struct lease_entry *lease_entry_find(struct lease_entry *entries, uint32_t count, const char *name);
/* A free entry, or one that was left half written; NULL: there is none. It stays free until it is
 * written. */
struct lease_entry *lease_entry_free(struct lease_entry *entries, uint32_t count);
/* All of the entry is new but the numbers, which the caller writes between begin and end. */
void lease_entry_begin(struct lease_entry *entry);
void lease_entry_end(struct lease_entry *entry);
/* Takes NULL. */
void lease_entry_drop(struct lease_entry *entry);
