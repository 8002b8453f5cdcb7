/* The permissions of device files, where an administrator closed them to most users. A user with a
 * session on a GPU may open that GPU's file, and the files that all GPUs share, as long as the
 * session lives. The warden writes an entry for the user into the access list of each file
 * (proto/warden_devices.h).
 *
 * The lists themselves are the record. They are compared with the sessions each second, and when a
 * program is about to begin in a slice. So entries that a daemon left, or that went with a file
 * that was made anew, are mended by the next look. Files that are open to everybody are left alone.
 * Loop thread only. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/process.h"
#include "core/leaf.h"
#include "daemon/settle/cgroups.h"

struct session;
struct sessions;
struct device_waiter;

struct device_access {
	struct sessions *sessions; /* lent */
	struct device_waiter *waiters;
	unsigned asked; /* requests that the warden has not answered yet */
	bool again;     /* another look is due then */
	bool failed;    /* one of them failed, since the last look without a request */
};

/* A process of the session is about to begin, or to attach: as cgroups_bind(), which follows once
 * the session's user may open the device files. */
int device_access_bind(struct session *session, struct process_id process, enum leaf_asker asker,
		       cgroups_cb cb, void *context, uint64_t ticket);
/* Each second: compares the files with the sessions. */
void device_access_tick(struct device_access *access);
void device_access_free(struct device_access *access);
