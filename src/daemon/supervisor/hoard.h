/* The descriptors that a supervisor keeps for the next worker, by name. One thread. */
#pragma once

#include <stddef.h>

#include "daemon/host/supervisor.h"

struct held {
	char name[SUPERVISOR_NAME_SIZE];
	int fd;
};

/* Zeroed: nothing. */
struct hoard {
	struct held *held;
	size_t count, room;
	size_t most;  /* it keeps no more; 0: none at all */
	size_t bytes; /* all names, with a byte between */
};

/* The descriptor becomes the hoard's, in place of one of the same name. 0 or -errno, and it stays
 * the caller's; -ENOSPC: there is no room. */
int hoard_put(struct hoard *hoard, const char *name, int fd);
void hoard_drop(struct hoard *hoard, const char *name);
/* Drops all whose names begin with "OWNER.". */
void hoard_drop_of(struct hoard *hoard, const char *owner);
/* Closes all of it. */
void hoard_free(struct hoard *hoard);

/* Has the hoard outlive this process, which ends in order. A process of its own keeps it, and gives
 * it to the next supervisor that asks at the socket HOARD_SOCKET in `dir`. That process ends then,
 * when its socket is gone, and when no other process has one of the ledgers open or mapped. Does
 * nothing with an empty hoard. 0 or -errno. */
int hoard_leave(struct hoard *hoard, const char *dir);
/* Takes what an earlier supervisor left there. The number of descriptors. */
size_t hoard_take(struct hoard *hoard, const char *dir);
#define HOARD_SOCKET "descriptors.sock"
