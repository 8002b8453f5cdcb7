#include "warden/turns.h"

#include <errno.h>
#include <stdlib.h>

#include "warden/message.h"

struct warden_owner {
	struct warden_owner *next;
	uint32_t id;
	size_t count;
	struct warden_message *first, **end;
};

static void owner_append(struct warden_turns *turns, struct warden_owner *owner)
{
	owner->next = NULL;
	*(turns->last ? &turns->last->next : &turns->first) = owner;
	turns->last = owner;
}

static struct warden_owner *owner_get(struct warden_turns *turns, uint32_t id)
{
	struct warden_owner *owner = turns->first;

	while (owner && owner->id != id)
		owner = owner->next;
	if (owner || !(owner = calloc(1, sizeof(*owner))))
		return owner;
	owner->id = id;
	owner->end = &owner->first;
	owner_append(turns, owner);
	return owner;
}

int warden_turns_add(struct warden_turns *turns, struct warden_message *request)
{
	if (turns->total >= WARDEN_WAITING_ALL)
		return -EAGAIN;
	struct warden_owner *owner = owner_get(turns, request->head.owner);
	if (!owner)
		return -ENOMEM;
	if (owner->count >= WARDEN_WAITING_OWNER)
		return -EAGAIN;
	request->next = NULL;
	*owner->end = request;
	owner->end = &request->next;
	owner->count++;
	turns->total++;
	return 0;
}

/* Where the owner's first request that may begin hangs; NULL: none may. There are at most
 * WARDEN_WAITING_OWNER to look at, and operations have numbers below 64. */
static struct warden_message **
request_find(struct warden_owner *owner,
	     bool (*may_begin)(void *arg, const struct warden_message *request), void *arg)
{
	uint64_t waiting = 0;

	for (struct warden_message **at = &owner->first; *at; at = &(*at)->next) {
		uint64_t operation = 1ull << (*at)->head.operation % 64;

		if (!(waiting & operation) && may_begin(arg, *at))
			return at;
		waiting |= operation;
	}
	return NULL;
}

static struct warden_message *request_take(struct warden_turns *turns, struct warden_owner *owner,
					   struct warden_message **at)
{
	struct warden_message *request = *at;

	*at = request->next;
	if (!request->next)
		owner->end = at;
	owner->count--;
	turns->total--;
	return request;
}

/* Takes the owner behind `before` (NULL: the first one) out of the line. */
static void owner_remove(struct warden_turns *turns, struct warden_owner *owner,
			 struct warden_owner *before)
{
	*(before ? &before->next : &turns->first) = owner->next;
	if (turns->last == owner)
		turns->last = before;
}

struct warden_message *
warden_turns_next(struct warden_turns *turns,
		  bool (*may_begin)(void *arg, const struct warden_message *request), void *arg)
{
	struct warden_owner *before = NULL;

	for (struct warden_owner *owner = turns->first; owner; owner = owner->next) {
		struct warden_message **at = request_find(owner, may_begin, arg);

		if (!at) {
			before = owner;
			continue;
		}
		struct warden_message *request = request_take(turns, owner, at);
		owner_remove(turns, owner, before);
		if (owner->count)
			owner_append(turns, owner);
		else
			free(owner);
		return request;
	}
	return NULL;
}

static bool any(void *arg, const struct warden_message *request)
{
	return true;
}

void warden_turns_clear(struct warden_turns *turns)
{
	struct warden_message *request;

	while ((request = warden_turns_next(turns, any, NULL)))
		warden_message_free(request);
}
