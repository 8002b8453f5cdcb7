#include "core/sign_in.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>

void sign_in_begin(struct sign_in_table *table, unsigned most, uint64_t lasts_ns)
{
	*table = (struct sign_in_table){.most = most, .lasts_ns = lasts_ns};
}

static bool is_alive(const struct sign_in_entry *entry, uint64_t now)
{
	return entry->ends_ns > now;
}

/* A place for one more of this user: that of the user's oldest, where the user has all that it may
 * have; else a free one. */
static int place_find(const struct sign_in_table *table, uid_t owner, uint64_t now)
{
	int oldest = -1, unused = -1;
	unsigned count = 0;

	for (int i = 0; i < (int)SIGN_IN_ROOM; i++) {
		const struct sign_in_entry *entry = &table->entry[i];

		if (!is_alive(entry, now)) {
			unused = i;
		} else if (entry->owner == owner) {
			count++;
			if (oldest < 0 || entry->number < table->entry[oldest].number)
				oldest = i;
		}
	}
	return count >= table->most || unused < 0 ? oldest : unused;
}

int sign_in_add(struct sign_in_table *table, const unsigned char digest[SIGN_IN_DIGEST_SIZE],
		uid_t uid, uid_t owner, uint64_t now)
{
	int place = place_find(table, owner, now);

	if (place < 0)
		return -ENOSPC;
	struct sign_in_entry *entry = &table->entry[place];
	*entry = (struct sign_in_entry){.uid = uid,
					.owner = owner,
					.ends_ns = now + table->lasts_ns,
					.number = ++table->numbers};
	memcpy(entry->digest, digest, sizeof(entry->digest));
	return place;
}

static bool is_same(const unsigned char *a, const unsigned char *b)
{
	unsigned differs = 0;

	for (unsigned i = 0; i < SIGN_IN_DIGEST_SIZE; i++)
		differs |= a[i] ^ b[i];
	return !differs;
}

int sign_in_find(const struct sign_in_table *table, const unsigned char digest[SIGN_IN_DIGEST_SIZE],
		 uint64_t now)
{
	int place = -ENOENT;

	for (int i = 0; i < (int)SIGN_IN_ROOM; i++)
		if (is_alive(&table->entry[i], now) && is_same(table->entry[i].digest, digest))
			place = i;
	return place;
}

void sign_in_remove(struct sign_in_table *table, int place)
{
	table->entry[place] = (struct sign_in_entry){0};
}

unsigned sign_in_remove_user(struct sign_in_table *table, uid_t uid, uint64_t now)
{
	unsigned count = 0;

	for (unsigned i = 0; i < SIGN_IN_ROOM; i++) {
		struct sign_in_entry *entry = &table->entry[i];

		if (!entry->ends_ns || entry->uid != uid)
			continue;
		count += is_alive(entry, now);
		*entry = (struct sign_in_entry){0};
	}
	return count;
}
