/* Words for what the daemon could not write down. Loop thread. */
#pragma once

struct error;

/* "the quota cannot be recorded: the disk is full", for what = "the quota cannot be recorded" and a
 * negative errno. If the disk is full, the hint says where to look. Returns as error_set() does. */
int unrecorded_set(struct error *err, const char *what, int rc);
