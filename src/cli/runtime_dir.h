/* The directory in which a daemon has its sockets. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

struct error;

#define RUNTIME_DIR_SYSTEM "/run/carve"
#define RUNTIME_SOCKET "carved.sock"
#define RUNTIME_ATTACH_SOCKET "attach.sock"

/* Whether somebody listens on this Unix socket. */
bool runtime_socket_answers(const char *path);
/* The process that listens on this Unix socket; 0: none does, or none that can be seen here. */
pid_t runtime_socket_pid(const char *path);
/* $CARVE_RUNTIME_DIR; else /run/carve where a system daemon listens; else $XDG_RUNTIME_DIR/carve;
 * else /tmp/carve-UID. 0, or negative with *err set where the path is too long for a socket. */
int runtime_dir_choose(char *buf, size_t size, struct error *err);
/* Makes the directory (0700) where it is not there, and refuses one that is somebody else's or that
 * others can write to. */
int runtime_dir_make(const char *dir, struct error *err);
