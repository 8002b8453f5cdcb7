/* Secrets by which a user is known: links that sign a browser in once, and cookies of browsers that
 * are signed in. A table has the digests of such secrets and never the secrets, and each has its
 * user and its end. Pure: the caller draws the secrets, makes the digests and tells the time.
 *
 * A user has `most` of them; one more takes the place of the user's oldest. The room of a table is
 * fixed, and a user without a secret is refused where it is full of those of others. Users with
 * subordinate user IDs count as one (`owner`). */
#pragma once

#include <stdint.h>
#include <sys/types.h>

#define SIGN_IN_DIGEST_SIZE 32u
/* Secrets in a table, of 256 users that have all they may have. */
#define SIGN_IN_ROOM 1024u

struct sign_in_entry {
	unsigned char digest[SIGN_IN_DIGEST_SIZE];
	uid_t uid, owner;
	uint64_t ends_ns; /* 0: the place is free */
	uint64_t number;  /* a later one has a higher one */
};

struct sign_in_table {
	unsigned most;     /* secrets that one user may have */
	uint64_t lasts_ns; /* the life of a secret */
	uint64_t numbers;
	struct sign_in_entry entry[SIGN_IN_ROOM];
};

void sign_in_begin(struct sign_in_table *table, unsigned most, uint64_t lasts_ns);
/* Returns the place of the new secret, or -ENOSPC. The secret that had the place before is
 * known no more. */
int sign_in_add(struct sign_in_table *table, const unsigned char digest[SIGN_IN_DIGEST_SIZE],
		uid_t uid, uid_t owner, uint64_t now);
/* The place of a secret that has not ended, or -ENOENT. How long it takes does not depend on how
 * much of a digest is right. */
int sign_in_find(const struct sign_in_table *table, const unsigned char digest[SIGN_IN_DIGEST_SIZE],
		 uint64_t now);
void sign_in_remove(struct sign_in_table *table, int place);
/* Removes all secrets of a user. Returns how many of them had not ended. */
unsigned sign_in_remove_user(struct sign_in_table *table, uid_t uid, uint64_t now);
