/* A simulated host's directory, /tmp/simgpu-XXXXXX: its socket, and whatever programs inside put
 * there. Its server holds a lock on it, so that a dead host's directory can be told from a live
 * one's. */
#pragma once

struct directory {
	char path[64];
	int lock_fd; /* held for life, CLOEXEC */
};

/* Makes and locks one. 0 or -errno. */
int directory_make(struct directory *ret);
/* Removes it and everything in it, also what others put there. 0 or -errno. */
int directory_remove(const char *path);
/* Removes what dead hosts of this user left behind. Never fails. */
void directory_sweep(void);
