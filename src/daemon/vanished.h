/* Files of the daemon that somebody removed, as cleaners of /tmp do: what is looked at once, at the
 * start, would be missed by each command, and by the next daemon. */
#pragma once

struct node;

/* Called each second: makes anew what is not there, and says so. Where another has taken the place,
 * the daemon is to stop: returns why, else NULL. */
const char *vanished_tick(struct node *node);
