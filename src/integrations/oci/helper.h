/* The hook's work in a process of its own. It opens files of an image, and a user's file system
 * that is among them may keep a process in the kernel though that was killed. FUSE does so with a
 * request that its server has taken. The runtime waits for the hook, and for what holds the hook's
 * output: for neither of them does such a process count. */
#pragma once

struct error;

/* Does `work` in a child, which has the caller's memory, and waits `patience_s` seconds for its
 * end. The child has none of the caller's descriptors, and is killed when it has no more time or no
 * caller. Returns 0, or negative with *err: that of `work`, or the child had no more time, or ended
 * without a word. */
int oci_helper_run(int (*work)(void *arg, struct error *err), void *arg, unsigned patience_s,
		   struct error *err);
