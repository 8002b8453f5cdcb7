/* The register of rights: which attempts of which jobs have been let run. A warrant has a right for
 * each of its jobs (proto/warden_jobs.h), by number. The register is a file of root's beside the
 * key of warrants. It outlives the warden and the host, so a warrant that a worker kept is of no
 * use once it is spent.
 *
 * The file is sparse. Behind its head are a bit for each page of rights, and then the pages, in
 * which a right is the number of the last attempt that was let run. A page whose rights are all
 * over is a hole, and its bit says so. So rights that may still be used take a page, and 2,048
 * rights that may not take a bit.
 *
 * One process, the warden, has the file open; another one waits for its end. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* A right's attempts have numbers from 1 to this one. */
#define RIGHTS_ATTEMPTS_MAX 32766u /* WARDEN_ATTEMPTS_MAX of proto/warden_jobs.h */

/* Pages that become holes once it is on the disk that they are over. */
#define RIGHTS_OVER_MOST 1024u

struct rights {
	int fd;
	uint64_t next;      /* the number of the next right */
	uint64_t reserved;  /* on the disk: numbers below were given out, perhaps */
	uint64_t reserving; /* the same, as the file has it */
	bool dirty;         /* there are changes for which no sync has begun */
	off_t over[RIGHTS_OVER_MOST];
	unsigned over_count;
	/* As of rights_syncing(). */
	unsigned over_syncing;
	uint64_t reserving_syncing;
};

/* Opens the register in a directory of root's. *ret_fresh: there was none, and what was spent
 * before is not known. 0 or -errno. -EPERM: somebody else may have written it. -EWOULDBLOCK:
 * another process has it open, and does not end. */
int rights_open(struct rights *rights, int dir_fd, bool *ret_fresh);
/* Puts it there again where somebody removed it. 0 or -errno. */
int rights_keep(struct rights *rights, int dir_fd);
/* Numbers of `count` rights that nobody has, one after the other. 0 or -errno. -EAGAIN: the disk
 * has not noted yet that they are given out. */
int rights_issue(struct rights *rights, uint32_t count, uint64_t *ret_first);
/* Whether this attempt may be let run: 0; -EKEYEXPIRED: it was, or a later one, or all is over; or
 * -errno. `again`: the last one that was let run may be once more. */
int rights_check(const struct rights *rights, uint64_t number, uint32_t attempt, bool again);
/* Notes that it is to be let run: after a sync that begins later, and rights_let(), which both have
 * to return 0. If this process ends before rights_let() the attempt is not spent, unless the
 * machine went down meanwhile. 0 or -errno. */
int rights_spend(struct rights *rights, uint64_t number, uint32_t attempt);
int rights_let(struct rights *rights, uint64_t number, uint32_t attempt);
/* No attempt of it is let run any more. */
int rights_end(struct rights *rights, uint64_t number);
/* A sync of the file (fdatasync) begins now, one at a time, in another process. */
void rights_syncing(struct rights *rights);
/* The sync has ended with this result: 0 or -errno. */
void rights_synced(struct rights *rights, int rc);
