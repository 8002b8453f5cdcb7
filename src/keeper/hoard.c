#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/macros.h"
#include "keeper/keeper.h"

static struct held *hoard_find(const struct hoard *hoard, const char *name)
{
	for (size_t i = 0; i < hoard->count; i++)
		if (!strcmp(hoard->held[i].name, name))
			return &hoard->held[i];
	return NULL;
}

int hoard_put(struct hoard *hoard, const char *name, int fd)
{
	struct held *held = hoard_find(hoard, name);

	if (!held && hoard->count == hoard->room) {
		size_t room = MAX(hoard->room * 2, 64);
		struct held *more = realloc(hoard->held, room * sizeof(*more));

		if (!more)
			return -ENOMEM;
		hoard->held = more;
		hoard->room = room;
	}
	if (held) {
		close_fd(&held->fd);
	} else {
		held = &hoard->held[hoard->count++];
		memcpy(held->name, name, strlen(name) + 1);
	}
	held->fd = fd;
	return 0;
}

void hoard_drop(struct hoard *hoard, const char *name)
{
	struct held *held = hoard_find(hoard, name);

	if (!held)
		return;
	close_fd(&held->fd);
	*held = hoard->held[--hoard->count];
}

void hoard_free(struct hoard *hoard)
{
	for (size_t i = 0; i < hoard->count; i++)
		close_fd(&hoard->held[i].fd);
	free(hoard->held);
	*hoard = (struct hoard){0};
}
