/* The daemon's runtime directory: the sockets, the log and the lock that keeps a second daemon out;
 * the database, where no state directory has it (state.h). */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

#include "backend/installed.h"

struct error;
struct handover;

/* Files that commands and the next daemon look for. The order is that in which they are made. */
enum runtime_file { RUNTIME_LOCK, RUNTIME_ATTACH, RUNTIME_HTTP, RUNTIME_FILES };
enum runtime_found { RUNTIME_THERE, RUNTIME_MISSING, RUNTIME_REPLACED };

struct runtime {
	char dir[96]; /* absolute; socket paths must fit struct sockaddr_un */
	int lock_fd;
	int sole_fd;            /* its name (sole.h), or -1 */
	int http_fd, attach_fd; /* listening */
	bool handed_over;       /* they are a supervisor's */
	/* Those of its sockets whose files were removed, a bit each (enum runtime_file): it hands
	 * them over at each start, and nobody can reach them. */
	unsigned orphaned;
	int dir_fd;       /* holds a shared lock: systemd-tmpfiles cleans no such directory */
	bool start_noted; /* this daemon, or the program before it, has noted its options */
	ino_t inode[RUNTIME_FILES]; /* to notice when one is removed or replaced; 0: none yet */
};

/* Leaves lock and sockets to the next program. */
void runtime_hand_over(const struct runtime *runtime, struct handover *handover);
/* Takes up what the last program left. False: it is not all there. */
bool runtime_take_over(struct runtime *runtime, struct handover *handover);

/* Chooses the directory: `wanted`, or NULL: /run/carve as root, else installed_user_dir(). 0 or
 * negative with *err. */
int runtime_choose(struct runtime *runtime, const char *wanted, struct error *err);
/* Whether it is the one that a user has without naming any. */
bool runtime_is_usual(const struct runtime *runtime);
/* Takes the lock of a directory, whose holder `does` something there. The descriptor, or negative
 * with *err, which says who has it. */
int runtime_lock_dir(const char *dir, const char *does, struct error *err);
/* Makes the directory where it is missing (0755 for the system's, else 0700), checks its owner, and
 * takes its name (sole.h) and the lock. Negative with *err where another daemon serves it. As long
 * as the daemon has not ended in order, the lock's file says below the PID how the next one is to
 * be started. It has a line "system" for the system's, and a line "config PATH" (absolute) where
 * `config` is not NULL. */
int runtime_lock(struct runtime *runtime, bool system, const char *config, struct error *err);
/* The options of a daemon; NULL and 0 where one was not named. */
struct runtime_start {
	bool system;
	const char *config, *state_dir, *user;
	uint64_t idle_exit_ns;
};

/* Notes them for the next daemon, which a command starts after this one was killed. The file is
 * this process's user's: it is root's where the daemon becomes another user, who has the lock's
 * open. */
void runtime_start_note(struct runtime *runtime, const struct runtime_start *start);
/* Whether that file was removed. */
bool runtime_start_missing(const struct runtime *runtime);
/* Makes the two listening sockets, where they were not taken over (mode 0666 for the system's, else
 * 0600). */
int runtime_listen(struct runtime *runtime, bool system, struct error *err);
/* Whether a file is still the one that was made. */
enum runtime_found runtime_look(const struct runtime *runtime, enum runtime_file file);
const char *runtime_file_name(enum runtime_file file);
/* Makes a socket's file anew, and the directory, too. The descriptor, which is `runtime`'s as well,
 * or negative with *err. */
int runtime_listen_again(struct runtime *runtime, enum runtime_file file, bool system,
			 struct error *err);
/* Takes up such a file that the warden has made: the descriptor becomes `runtime`'s. 0, or negative
 * with *err, and it is closed. */
int runtime_adopt(struct runtime *runtime, enum runtime_file file, int fd, const char *config,
		  struct error *err);
/* Likewise the lock's. Until then another daemon could have taken the directory: negative with *err
 * where one has. */
int runtime_lock_again(struct runtime *runtime, bool system, const char *config, struct error *err);
/* Whether what containers get is the attach socket of now; and makes it so. 1: made; or negative
 * with *err. */
bool runtime_containers_there(const struct runtime *runtime);
int runtime_containers_again(const struct runtime *runtime, struct error *err);
/* Removes the socket files, closes the lock. The listening descriptors have other owners by now. */
void runtime_leave(struct runtime *runtime);
/* DIR/NAME */
void runtime_path(const struct runtime *runtime, const char *name, char *buf, size_t size);
