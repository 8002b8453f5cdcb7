/* A listening socket that the loop polls, and whose file somebody removed. */
#pragma once

#include <uv.h>

/* Listens on `fd` from now on, under the number of `listen_fd`, by which the poll knows it. `fd`
 * becomes the caller's under that number. 0 or -errno. */
int listener_replace(uv_poll_t *poll, uv_poll_cb on_connection, int listen_fd, int fd);
