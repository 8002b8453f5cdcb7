/* The users who can open the driver's device files, and so reach the GPUs without a slice. */
#pragma once

#include <stdbool.h>

struct devices_found {
	bool any;       /* there are device files */
	bool closed;    /* none of them is everybody's */
	bool refused;   /* this process may not open `file` */
	char file[256]; /* the first one that is everybody's, or that this process may not open */
	/* Users who may open closed ones, by the group of the files: names, or "". */
	char members[200];
	char group[64];
};

/* `root`: a directory in whose place of / the files are looked for; "": this host's. */
void check_devices_look(const char *root, struct devices_found *ret);
