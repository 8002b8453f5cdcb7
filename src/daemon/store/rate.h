/* How many of something each user has had within a minute. Pure: it is told the time. */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct rate_user;

struct rate {
	uint32_t most;           /* the most of one user, within a minute */
	struct rate_user *users; /* those who had one within the last minute */
	size_t count, room;
};

enum rate_verdict {
	RATE_WITHIN,
	RATE_FIRST_BEYOND, /* the first one beyond it in this minute */
	RATE_BEYOND,
};

/* One more of this user's. A user's minute begins with its first one after the last minute. */
enum rate_verdict rate_note(struct rate *rate, uid_t owner, uint64_t now_ns);
void rate_free(struct rate *rate);
