#include "daemon/host/budget.h"

#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/array.h"
#include "base/macros.h"
#include "daemon/host/bounded_root.h"
#include "daemon/host/limited.h"
#include "daemon/host/owner.h"

struct budget_user {
	uid_t uid;
	unsigned has;
};

static struct budget_user *find(const struct budget *c, uid_t uid)
{
	for (size_t i = 0; i < c->count; i++)
		if (c->users[i].uid == uid)
			return &c->users[i];
	return NULL;
}

static struct budget_user *find_or_add(struct budget *c, uid_t uid)
{
	struct budget_user *user = find(c, uid);

	if (user)
		return user;
	struct budget_user *users = array_grown(c->users, c->count, &c->room, sizeof(*users));
	if (!users)
		return NULL;
	c->users = users;
	c->users[c->count] = (struct budget_user){.uid = uid};
	return &c->users[c->count++];
}

/* Root's subordinate users are in containers, too, and no part of root's budget is theirs. All of
 * them are one user here: there may be many thousands of them. */
static uid_t user_of(uid_t uid)
{
	uid_t owner = owner_of(uid);

	return owner == 0 && uid != 0 ? BOUNDED_ROOT_LAST : owner;
}

static unsigned bounded_roots_have(const struct budget *c)
{
	unsigned sum = 0;

	for (size_t i = 0; i < c->count; i++)
		sum += uid_is_bounded_root(c->users[i].uid) ? c->users[i].has : 0;
	return sum;
}

static bool fits(const struct budget *c, const struct budget_user *user, unsigned count)
{
	unsigned others = c->total - user->has;
	unsigned left = c->most > others ? c->most - others : 0;
	unsigned but_last = c->most - c->most / 4;

	/* budget_add() goes beyond it, and so does a setting that was lowered. */
	if (c->total > c->most || count > c->most - c->total)
		return false;
	if (uid_is_bounded_root(user->uid) && bounded_roots_have(c) + count > but_last)
		return false;
	if (user->has + count <= left / 2)
		return true;
	return user->uid == 0 ? c->total + count <= but_last : user->uid == geteuid();
}

unsigned budget_share(const struct budget *c, uid_t uid, unsigned *ret_has)
{
	const struct budget_user *user = find(c, user_of(uid));
	unsigned has = user ? user->has : 0, others = c->total - has;
	unsigned left = c->most > others ? c->most - others : 0;
	unsigned but_last = c->most - c->most / 4;

	*ret_has = has;
	if (uid != 0)
		return uid == geteuid() ? left : left / 2;
	return MAX(left / 2, but_last > others ? but_last - others : 0);
}

static void remove_empty(struct budget *c, struct budget_user *user)
{
	if (user->has == 0)
		*user = c->users[--c->count];
}

void budget_begin(struct budget *c, unsigned most)
{
	struct rlimit limit;

	*c = (struct budget){.most = most};
	if (getrlimit(RLIMIT_NOFILE, &limit) == 0)
		c->most = (unsigned)MIN((rlim_t)most, limit.rlim_cur / (limited_last() ? 2 : 4));
}

void budget_begin_any(struct budget *c, unsigned most)
{
	*c = (struct budget){.most = most};
}

bool budget_enter_many(struct budget *c, uid_t uid, unsigned count, uid_t *ret_owner)
{
	struct budget_user *user = find_or_add(c, user_of(uid));

	if (!user)
		return false;
	if (!fits(c, user, count)) {
		remove_empty(c, user);
		return false;
	}
	user->has += count;
	c->total += count;
	*ret_owner = user->uid;
	remove_empty(c, user);
	return true;
}

bool budget_enter(struct budget *c, uid_t uid, uid_t *ret_owner)
{
	return budget_enter_many(c, uid, 1, ret_owner);
}

bool budget_has_room(const struct budget *c, uid_t uid)
{
	uid_t owner = user_of(uid);
	const struct budget_user *user = find(c, owner);
	struct budget_user none = {.uid = owner};

	return fits(c, user ? user : &none, 1);
}

uid_t budget_add_many(struct budget *c, uid_t uid, unsigned count)
{
	uid_t owner = user_of(uid);
	struct budget_user *user = find_or_add(c, owner);

	if (user) {
		user->has += count;
		c->total += count;
	}
	return owner;
}

uid_t budget_add(struct budget *c, uid_t uid)
{
	return budget_add_many(c, uid, 1);
}

void budget_leave_many(struct budget *c, uid_t owner, unsigned count)
{
	struct budget_user *user = find(c, owner);

	if (!user)
		return;
	user->has -= count;
	c->total -= count;
	remove_empty(c, user);
}

void budget_leave(struct budget *c, uid_t owner)
{
	budget_leave_many(c, owner, 1);
}

void budget_free(struct budget *c)
{
	free(c->users);
	*c = (struct budget){.most = c->most};
}
