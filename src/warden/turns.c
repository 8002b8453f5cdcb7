#include "warden/turns.h"

#include <errno.h>

#include "warden/message.h"

static size_t count_of(const struct warden_turns *turns, uid_t owner)
{
	size_t count = 0;

	for (const struct turn *turn = turns->waiting.first; turn; turn = turn->next)
		count += turn->user == owner;
	return count;
}

int warden_turns_add(struct warden_turns *turns, struct warden_message *request)
{
	if (turns->total >= WARDEN_WAITING_ALL ||
	    count_of(turns, request->head.owner) >= WARDEN_WAITING_OWNER)
		return -EAGAIN;
	turns_add(&turns->waiting, &request->turn, request->head.owner);
	turns->total++;
	return 0;
}

struct warden_message *
warden_turns_next(struct warden_turns *turns,
		  bool (*may_begin)(void *arg, const struct warden_message *request), void *arg)
{
	for (struct turn *turn = turns->waiting.first; turn; turn = turn->next) {
		struct warden_message *request = (struct warden_message *)turn;

		if (!may_begin(arg, request))
			continue;
		turns_remove(&turns->waiting, turn);
		turns_pass(&turns->waiting, turn->user);
		turns->total--;
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
