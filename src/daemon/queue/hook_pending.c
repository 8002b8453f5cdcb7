#include "daemon/queue/hook_pending.h"

#include <errno.h>
#include <stdlib.h>

#include "base/macros.h"
#include "daemon/host/owner.h"

/* Changes of one user in memory, 150 bytes each. */
#define USER_MOST 1024u

static void events_free(struct hook_user *user)
{
	for (struct hook_event *event = user->first, *next; event; event = next) {
		next = event->next;
		free(event);
	}
}

void hook_pending_clear(struct hook_pending *pending)
{
	for (struct hook_user *user = pending->first, *next; user; user = next) {
		next = user->next;
		events_free(user);
		free(user);
	}
	*pending = (struct hook_pending){0};
}

static void user_append(struct hook_pending *pending, struct hook_user *user)
{
	user->next = NULL;
	*(pending->first ? &pending->last->next : &pending->first) = user;
	pending->last = user;
}

static struct hook_user *user_unlink_first(struct hook_pending *pending)
{
	struct hook_user *user = pending->first;

	pending->first = user->next;
	return user;
}

static struct hook_user *user_get(struct hook_pending *pending, uid_t uid)
{
	uid_t owner = owner_of(uid);
	struct hook_user *user = pending->first;

	while (user && user->owner != owner)
		user = user->next;
	if (!user && (user = calloc(1, sizeof(*user)))) {
		user->owner = owner;
		user_append(pending, user);
	}
	return user;
}

/* True: the change does not go into the list. */
static bool overflows(struct hook_user *user, const struct queue_event *event)
{
	if (!user->owed_to && user->count < USER_MOST)
		return false;
	if (event->change) {
		if (!user->owed_to)
			user->owed_from = event->change - 1;
		user->owed_to = event->change;
	} else {
		user->dropped++;
		user->dropped_untold++;
	}
	return true;
}

int hook_pending_add(struct hook_pending *pending, const struct queue_event *event, bool from_disk,
		     struct hook_user **ret)
{
	struct hook_user *user = *ret = user_get(pending, event->uid);

	if (!user)
		return -ENOMEM;
	if (!from_disk && overflows(user, event))
		return !event->change;
	struct hook_event *added = malloc(sizeof(*added));
	if (!added)
		return -ENOMEM;
	*added = (struct hook_event){.event = *event};
	*(user->first ? &user->last->next : &user->first) = added;
	user->last = added;
	user->count++;
	return 0;
}

void hook_pending_return(struct hook_pending *pending, struct hook_event *event)
{
	struct hook_user *user = user_get(pending, event->event.uid);

	if (!user) {
		free(event);
		return;
	}
	event->next = user->first;
	if (!user->first)
		user->last = event;
	user->first = event;
	user->count++;
}

struct hook_event *hook_pending_take(struct hook_pending *pending)
{
	struct hook_user *user = user_unlink_first(pending);
	struct hook_event *event = user->first;

	user->first = event->next;
	user->count--;
	user->dropped_untold = 0;
	user_append(pending, user);
	return event;
}

void hook_pending_forget(struct hook_pending *pending)
{
	free(user_unlink_first(pending));
}

int64_t hook_pending_lowest(const struct hook_pending *pending, int64_t otherwise)
{
	for (const struct hook_user *user = pending->first; user; user = user->next) {
		if (user->owed_to)
			otherwise = MIN(otherwise, user->owed_from + 1);
		for (const struct hook_event *event = user->first; event; event = event->next)
			if (event->event.change)
				otherwise = MIN(otherwise, event->event.change);
	}
	return otherwise;
}
