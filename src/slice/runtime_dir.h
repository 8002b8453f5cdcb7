/* The directory in which a daemon has its sockets, and connections to these. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "backend/installed.h"

struct error;

#define RUNTIME_SOCKET "carved.sock"
#define RUNTIME_ATTACH_SOCKET "attach.sock"

/* Connects to the daemon's socket at `path` (`type`: SOCK_STREAM or SOCK_SEQPACKET), and looks who
 * listens, before anything is sent: base/trust.h. Blocks for 5 s at most. The descriptor, or
 * -errno with *err set: EXIT_CODE_UNREACHABLE where nobody listens; -EPERM with
 * EXIT_CODE_NOT_PERMITTED where another user does. */
int runtime_connect(const char *path, int type, struct error *err);
/* Whether somebody listens on this Unix socket who may be believed. */
bool runtime_socket_answers(const char *path);
/* The process that does; 0: none, or none that can be seen here. */
pid_t runtime_socket_pid(const char *path);
/* Sets the hint of an error where no daemon answers at this socket: what starts one there. */
void runtime_silent_hint(const char *path, struct error *err);
/* Chooses $CARVE_RUNTIME_DIR; else /run/carve where a system daemon listens; else
 * installed_user_dir(). Returns 0, or negative with *err set where the path is too long for a
 * socket, or a system daemon is installed and does not answer. */
int runtime_dir_choose(char *buf, size_t size, struct error *err);
/* Makes the directory (0700) where it is not there, and refuses one that is somebody else's or that
 * others can write to. */
int runtime_dir_make(const char *dir, struct error *err);
