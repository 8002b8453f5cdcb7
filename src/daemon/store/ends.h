/* The ends of sessions that the database cannot take, as its disk is full: a file beside it whose
 * room was taken beforehand, so that writing there needs none. Once the database has them all, it
 * is emptied. A written end survives the daemon's death at any later moment.
 *
 * This stays for two reasons. Without it a session that ended on a full disk is there again after
 * the next start of the daemon, with its promise. And a user cannot release memory while the disk
 * is full. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

struct store_session;

struct ends {
	int fd;      /* -1: there is no such file */
	size_t used; /* bytes with records */
};

#define ENDS_NONE ((struct ends){.fd = -1})

/* Opens or makes the file "PATH-ends". 0 or -errno; on error all of the below can be called. */
int ends_open(struct ends *ret, const char *path);
/* Whether its file is where it was. */
bool ends_intact(const struct ends *ends, const char *path);
void ends_close(struct ends *ends);
/* Calls for every end in the file: only id, ended, reason, received, ended_by and gpu[].peak are
 * set. A callback's negative result ends the walk and is returned. */
typedef int (*ends_cb)(void *arg, const struct store_session *session);
int ends_each(struct ends *ends, ends_cb cb, void *arg);
/* 0 or -errno; -ENOSPC: the file is full, or has no room of its own. */
int ends_write(struct ends *ends, const struct store_session *session);
/* The database has them all. */
void ends_empty(struct ends *ends);
