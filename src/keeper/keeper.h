/* The keeper's contents: descriptors by name. One thread. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "proto/keep.h"

struct held {
	char name[KEEP_NAME_SIZE];
	int fd;
};

/* Zeroed: nothing. */
struct hoard {
	struct held *held;
	size_t count, room;
};

/* The descriptor becomes the hoard's, in place of one of the same name. 0, or -ENOMEM, and it stays
 * the caller's. */
int hoard_put(struct hoard *hoard, const char *name, int fd);
void hoard_drop(struct hoard *hoard, const char *name);
/* Closes all of it. */
void hoard_free(struct hoard *hoard);

/* Serves the listening socket until the keeper has nothing to do. It has nothing to do when it
 * holds nothing and nobody is connected, or when its socket in `dir` is gone, so that nobody can
 * reach it. */
void keeper_serve(int listen_fd, const char *dir);
