/* A mount namespace of this process's own. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

enum namespace_form {
	/* Made with the right to mount: users and rights are as outside. */
	NAMESPACE_PLAIN,
	/* Inside a user namespace that knows this user and group only. */
	NAMESPACE_USER,
};

/* Moves this process, which must have one thread, into a new one; `user`: through a user namespace
 * where the plain form is not permitted. A later mount here shows nowhere else; what
 * the host mounts later still shows here. Root and working directory stay. 0 with *ret_form set,
 * or -errno, and the process may be in a half-made one: it is to end. */
int namespace_enter(bool user, enum namespace_form *ret_form);

/* Why a namespace with mounts of its own failed with `error`, in half a sentence. `buf` is used for
 * it as needed. */
const char *namespace_why(int error, bool user, char *buf, size_t size);
