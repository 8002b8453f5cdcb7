#include "daemon/store/rate.h"

#include <stdlib.h>

#include "base/array.h"

#define MINUTE_NS 60000000000ull

struct rate_user {
	uid_t owner;
	uint32_t had;
	uint64_t began_ns;
};

/* Those whose minute is over are nobody's to remember. */
static void forget_old(struct rate *r, uint64_t now_ns)
{
	for (size_t i = 0; i < r->count;)
		if (now_ns - r->users[i].began_ns >= MINUTE_NS)
			r->users[i] = r->users[--r->count];
		else
			i++;
}

static struct rate_user *user_get(struct rate *r, uid_t owner, uint64_t now_ns)
{
	forget_old(r, now_ns);
	for (size_t i = 0; i < r->count; i++)
		if (r->users[i].owner == owner)
			return &r->users[i];
	struct rate_user *users = array_grown(r->users, r->count, &r->room, sizeof(*users));
	if (!users)
		return NULL;
	r->users = users;
	r->users[r->count] = (struct rate_user){.owner = owner, .began_ns = now_ns};
	return &r->users[r->count++];
}

enum rate_verdict rate_note(struct rate *r, uid_t owner, uint64_t now_ns)
{
	struct rate_user *user = user_get(r, owner, now_ns);

	if (!user || user->had < r->most) {
		if (user)
			user->had++;
		return RATE_WITHIN;
	}
	if (user->had == UINT32_MAX || user->had++ > r->most)
		return RATE_BEYOND;
	return RATE_FIRST_BEYOND;
}

void rate_free(struct rate *r)
{
	free(r->users);
	*r = (struct rate){.most = r->most};
}
