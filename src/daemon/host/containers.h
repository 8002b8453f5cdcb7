/* The part of a runtime directory that containers get. They have the attach socket, and no other.
 * They get a directory with a second name of it: a file that was mounted would stay the socket of a
 * daemon that has ended. */
#pragma once

#define CONTAINERS_DIR "containers"

/* Makes the directory in the runtime directory `dir_fd`, and the second name of its attach socket
 * in it, in place of an older one. 0 or -errno. */
int containers_link(int dir_fd);
