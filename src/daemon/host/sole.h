/* Keeps one daemon to a runtime directory, even when the files in it were removed. It holds a name
 * in the abstract socket namespace, which the kernel keeps as long as its process lives. A second
 * daemon finds the name taken and connects to it. The first one then makes its files anew, and
 * closes the connection. */
#pragma once

#include <stdbool.h>

struct error;

/* Takes the name of a directory that is there; *ret_fd: a listening descriptor. If a daemon of this
 * user or of root has the name, that daemon is asked to look at its files. Negative then, and *err
 * says which daemon it is. *ret_fd is -1 if another user has the name: the lock in the directory
 * then has to do alone. */
int sole_take(const char *dir, int *ret_fd, struct error *err);
/* Accepts a second daemon, without waiting. The connection, to be closed when the files are there;
 * -1: there is none, or it is another user's. */
int sole_accept(int fd);
