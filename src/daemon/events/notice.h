/* The notice: a text of an administrator's that each user is shown once, by the user's next
 * command. There is one notice at a time, and a new one takes its place. Loop thread.
 *
 * The daemon knows which users have seen it, by the kernel's word on who asks: a client can say of
 * its own user alone that the notice was shown. Subordinate users of a user's containers count as
 * that user, so a user fills one row. */
#pragma once

#include <stdbool.h>

#include "daemon/store/store.h"

struct error;
struct events;
struct peer;

/* Reads it from the store. 0 or -errno. */
int notice_load(struct events *events);
/* Bytes of a text, its end included. */
#define NOTICE_SIZE STORE_NOTICE_SIZE
/* Sets a text, or takes the notice back with "". Lines of the text stay, and other control
 * characters become '?'. 0, or negative with *err. */
int notice_set(struct events *events, const char *text, const struct peer *actor,
	       struct error *err);
/* NULL: there is none. */
const struct store_notice *notice_get(const struct events *events);
/* Whether this peer's user has not been shown the notice. Root of a container has no user of its
 * own here, and is not shown it. */
bool notice_is_due(const struct events *events, const struct peer *peer);
/* The peer's user was shown the notice with this number. 0 or -errno. */
int notice_see(struct events *events, const struct peer *peer, int64_t number);
