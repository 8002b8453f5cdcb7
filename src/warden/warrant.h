/* Warrants (proto/warden_jobs.h): codes that show that the launcher itself saw who enqueued a job.
 * A code is SipHash-2-4 with 128 bits, a keyed function, over the warrant's fields and the text. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/warden_jobs.h"

struct warrant_key {
	uint64_t word[2];
};

/* SipHash-2-4, 128 bits. */
void siphash(const struct warrant_key *key, const void *data, size_t size, uint64_t ret[2]);

/* Sets the code of a warrant whose other fields are set. 0 or -ENOMEM. */
int warrant_sign(const struct warrant_key *key, struct warrant *warrant, const void *text,
		 size_t size);
/* 0; -EPERM: the launcher gave none out for this text of this kind; or -ENOMEM. */
int warrant_check(const struct warrant_key *key, const struct warrant *warrant,
		  enum warrant_kind kind, const void *text, size_t size);
/* The key in a directory of root's, by its descriptor; made where there is none. 0 or -errno;
 * -EPERM: somebody else may have written it. */
int warrant_key_get(int dir_fd, struct warrant_key *ret);
/* Removes the key that is there. 0 or -errno. */
int warrant_key_forget(int dir_fd);
/* Puts that key there, where somebody removed it: jobs that wait have warrants by it. 0 or -errno.
 */
int warrant_key_keep(int dir_fd, const struct warrant_key *key);
