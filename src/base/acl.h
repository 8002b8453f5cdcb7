/* POSIX access control lists as the kernel keeps them for a file: the value of the extended
 * attribute ACL_ATTRIBUTE. Pure; libc only. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#define ACL_ATTRIBUTE "system.posix_acl_access"
/* Room for the list of a file: the users of one GPU, and more. */
#define ACL_SIZE_MAX 32768u

struct acl_user {
	uid_t uid;
	unsigned permissions; /* bits: 4 read, 2 write, 1 execute */
};

/* The next entry of a user from *at (0 at first) on. False: there are no more, or the list is
 * broken. */
bool acl_next_user(const void *acl, size_t size, size_t *at, struct acl_user *ret);
/* Whether the list is whole and of the kernel's version. An empty list is. */
bool acl_is_whole(const void *acl, size_t size);
/* Writes the list with another entry for a user; 0 permissions: without one. `size` 0: the file has
 * no list, but `mode`. The mask lets that user read and write at most. Returns the bytes of the new
 * list. Or -EINVAL: the old one is broken; -ENOSPC: there is no room. */
ssize_t acl_set_user(const void *acl, size_t size, mode_t mode, const struct acl_user *user,
		     void *ret, size_t room);
