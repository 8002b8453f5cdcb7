/* The daemon's side of its keeper process (proto/keep.h): starting it, and messages. */
#pragma once

#include <limits.h>
#include <sys/types.h>
#include <uv.h>

#include "proto/keep.h"

/* Connects to a keeper that runs, without waiting. The descriptor, or -errno: none runs. */
int keeper_connect(const char *dir);
/* Starts a keeper that listens in `dir`, which is made if need be, in place of one that cannot be
 * reached. The descriptor of a connection to it, or -errno. */
int keeper_spawn(uv_loop_t *loop, const char *dir);

/* The inode of the keeper's socket in `dir`; 0: there is none. */
ino_t keeper_socket(const char *dir);
/* Makes its directory where it is missing. 0 or -errno; -EPERM: it is not this user's alone. */
int keeper_dir_make(const char *dir);

/* The path of the program that is started. 0 or -errno: it cannot be run. */
int keeper_program(char ret[static PATH_MAX]);

/* Calls for each descriptor that the keeper holds, which becomes the callback's. Waits for it, 2 s
 * at most for each. 0 or -errno. */
int keeper_list(int fd, void (*cb)(void *arg, const char *name, int fd), void *arg);
/* `descriptor` goes along, where it is not negative. 0 or -errno; -EAGAIN: not now. */
int keeper_send(int fd, const struct keep_message *message, int descriptor);
/* A checked message. *ret_descriptor: that came along, the caller's; -1: none. 0 or -errno;
 * -EAGAIN: there is none, -ECONNRESET: the keeper ended. */
int keeper_receive(int fd, struct keep_message *ret, int *ret_descriptor);
