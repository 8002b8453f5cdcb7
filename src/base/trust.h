/* The users that this process may believe: as a socket's server, a file's writer, or the user that
 * started it. A daemon's answers decide what a client runs and which memory it maps, so clients
 * believe root and their own user only. libc only: safe inside a foreign process. Any thread. */
#pragma once

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* The socket's path is of a place that no environment reaches. It may be the file of a slice:
 * `carve run` wrote that after it had looked at the server from outside of this process's user
 * namespace. Or it is an argument in the file of a hook. */
#define SERVER_VOUCHED 1u
/* Nobody can tell in this user namespace whose server it is. */
#define SERVER_UNKNOWN ENOKEY

/* Only root of the host can have put a socket into this directory. */
#define TRUST_SYSTEM_DIR "/run/carve"

/* Looks at the other end of a connected Unix socket, before anything is sent. Returns 0 where the
 * server is root's, this process's own (effective) user's, or the daemon of a simulated host that
 * this user joined (server_join_record()). Returns -EPERM where it is another user's, *ret_uid.
 * Else -errno.
 *
 * In a user namespace that does not map all users, root looks like any user who is not mapped, and
 * so do the directories of both. A server of such a user is believed only at a fixed
 * path, or with SERVER_VOUCHED. Only root can fill TRUST_SYSTEM_DIR, and only a user who makes
 * mounts here the directory of a slice. Else returns -SERVER_UNKNOWN. */
int server_check(int fd, const char *path, unsigned flags, uid_t *ret_uid);

/* Looks at the directory of such a socket before it is connected to: a server of another user could
 * keep a client waiting. Returns 0 where it is root's, this user's, or that of a host that was
 * joined. Returns -EPERM where it is another user's, *ret_uid. Else as server_check(). */
int server_directory_check(const char *path, unsigned flags, uid_t *ret_uid);

/* Whether a user ID that the kernel told is surely this process's own user's. A process may be the
 * user (nobody) as which the kernel shows those that the user namespace does not map. */
bool trust_uid_is_own(uid_t uid);

/* The file by which this user's clients believe the owner of the simulated host in directory
 * `host`. `carve sim --join` makes it. It names the directory by facts that cannot be forged: its
 * device, inode, time of birth and owner. It is in /tmp/carve-UID, because every program in there
 * would inherit an environment variable. 0 or -errno. */
#define SERVER_JOIN_SIZE 128
int server_join_record(const char *host, char *buf, size_t size);
/* The directory of those files. */
void server_join_directory(char *buf, size_t size);

/* Whether this process has rights that its caller has not (set-user-ID, file capabilities;
 * AT_SECURE): then nothing of its environment is to be believed. */
bool process_is_privileged(void);

/* Whether all directories of an absolute path, as far as it exists, are root's or this user's, and
 * open to nobody else. Then no other user can have put something there, or can later. Where the
 * user namespace does not map root, root's are known by their names: /home, /run/user and such. */
bool trust_path_is_own(const char *path);

/* Opens a file to read that only root can have written, as it is in a directory of root's. Where
 * that gains nobody any rights, its writer may also be this process's user. Only root or this user
 * can have made a directory at a fixed path, as ATTACH_SLICE_DIRS are. There the writer may also be
 * a user that the user namespace does not map, as it may not map root. No link is followed. The
 * descriptor, or -errno; -EPERM: others may have written it. */
int file_open_trusted(const char *directory, const char *name);
