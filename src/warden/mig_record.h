/* Which MIG instances the warden made: a file of root's in the runtime directory, which outlives
 * the warden, and the worker can neither write nor read. An instance is named by its GPU's UUID,
 * its profile and its place, as the driver's own numbers and UUIDs come back. The record is one
 * boot's: a reboot takes all instances away. One process at a time uses it, by a lock. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#define MIG_RECORD_FILE "instances"
#define MIG_RECORD_MAX 1024u

struct mig_made {
	uint8_t gpu[16]; /* the GPU's UUID */
	uint32_t profile_id;
	uint8_t start, size;
	uint16_t reserved;
};

struct mig_record {
	int dir_fd;  /* the caller's */
	int lock_fd; /* held */
	uint32_t count;
	struct mig_made made[MIG_RECORD_MAX];
};

/* Reads the record in that directory; it is empty where there is none, or one of before the last
 * reboot. Waits for whoever uses it. 0 or -errno. */
int mig_record_open(int dir_fd, struct mig_record *ret);
void mig_record_close(struct mig_record *record);
bool mig_record_has(const struct mig_record *record, const struct mig_made *made);
/* Adds it, or takes it out. The record is written when this returns 0. Else -errno, and it says
 * what it said before. */
int mig_record_add(struct mig_record *record, const struct mig_made *made);
int mig_record_remove(struct mig_record *record, const struct mig_made *made);
