/* The warden's operation on the permissions of device files (proto/warden.h). Where an
 * administrator closed the files to most users, each user with a slice on a GPU gets an entry in
 * their access lists. The worker's entries have all three permissions, as nobody else's have: to
 * execute a device means nothing. So they are told from an administrator's. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#define WARDEN_DEVICE_MARK 7u /* the permissions of an entry of carve's */

/* WARDEN_DEVICE_ACCESS: lets a user open a device file, or takes that back. The error is EPERM
 * where the file is no closed device file of root's, and ENOENT where there is none. An entry of an
 * administrator's stays as it is, without an error. */
struct warden_device {
	uint32_t device; /* as base/device_files.h counts them */
	uint32_t uid;    /* not root */
	uint32_t opens;  /* 1, or 0: takes it back */
	uint32_t reserved;
};

_Static_assert(sizeof(struct warden_device) == 16, "warden ABI");

bool warden_device_fits(const void *request);
