#include "daemon/host/listeners.h"

#include <errno.h>
#include <stdlib.h>

struct listener {
	struct listener *next;
	listener_cb cb;
	void *arg;
};

int listeners_add(struct listeners *listeners, listener_cb cb, void *arg)
{
	struct listener *listener = malloc(sizeof(*listener));

	if (!listener)
		return -ENOMEM;
	*listener = (struct listener){listeners->first, cb, arg};
	listeners->first = listener;
	return 0;
}

static void list_remove(struct listener **at, const void *arg)
{
	while (*at) {
		struct listener *listener = *at;

		if (listener->arg != arg) {
			at = &listener->next;
			continue;
		}
		*at = listener->next;
		free(listener);
	}
}

void listeners_remove(struct listeners *listeners, const void *arg)
{
	list_remove(&listeners->first, arg);
	list_remove(&listeners->telling, arg);
}

unsigned listeners_count(const struct listeners *listeners)
{
	unsigned count = 0;

	for (const struct listener *listener = listeners->first; listener;
	     listener = listener->next)
		count++;
	return count;
}

void listeners_tell(struct listeners *listeners)
{
	listeners->telling = listeners->first;
	listeners->first = NULL;
	while (listeners->telling) {
		struct listener *listener = listeners->telling;

		listeners->telling = listener->next;
		listener->cb(listener->arg);
		free(listener);
	}
}

void listeners_free(struct listeners *listeners)
{
	while (listeners->first)
		listeners_remove(listeners, listeners->first->arg);
}
