/* The daemon's runtime directory: the sockets, the log and the lock that keeps a second daemon out;
 * the database, where no state directory has it (state.h). */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

#include "backend/installed.h"

struct error;

/* Files that commands and the next daemon look for. The order is that in which they are made. */
enum runtime_file { RUNTIME_LOCK, RUNTIME_ATTACH, RUNTIME_HTTP, RUNTIME_FILES };
enum runtime_found { RUNTIME_THERE, RUNTIME_MISSING, RUNTIME_REPLACED };

struct runtime {
	char dir[96]; /* absolute; socket paths must fit struct sockaddr_un */
	int lock_fd;
	int sole_fd;            /* its name (sole.h), or -1 */
	int http_fd, attach_fd; /* listening */
	bool handed_over;       /* they are a supervisor's */
	bool lock_is_supervisors;
	/* Those of its sockets whose files were removed, and which this start has made anew: a bit
	 * each (enum runtime_file). */
	unsigned orphaned;
	int dir_fd;       /* holds a shared lock: systemd-tmpfiles cleans no such directory */
	bool start_noted; /* this daemon, or the program before it, has noted its options */
	ino_t inode[RUNTIME_FILES]; /* to notice when one is removed or replaced; 0: none yet */
};

/* The names under which a supervisor that becomes another program leaves them to itself. */
#define RUNTIME_LOCK_HELD "held-lock"
#define RUNTIME_SOLE "held-name"

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
/* Does the same for a daemon, where its supervisor has not done so. */
int runtime_lock_daemon(struct runtime *runtime, bool system, const char *config,
			struct error *err);
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
/* Whether what containers get is the attach socket of now. */
bool runtime_containers_there(const struct runtime *runtime);
/* Closes the lock. The listening descriptors have other owners by now. */
void runtime_leave(struct runtime *runtime);

/* For a supervisor: makes what is missing of the directory, the lock and the two sockets, at the
 * start and whenever files were removed. 1: made; 0: nothing was missing. Negative with *err:
 * another daemon has the directory. */
int runtime_hold(struct runtime *runtime, bool system, const char *config, struct error *err);
/* For a supervisor: takes up what it left to itself before it became this program, or the sockets
 * that a supervisor above it has. Those two are told apart by the lock. */
void runtime_continue(struct runtime *runtime);
/* For a supervisor that ends for good: also removes the files of its sockets. */
void runtime_end(struct runtime *runtime);
/* DIR/NAME */
void runtime_path(const struct runtime *runtime, const char *name, char *buf, size_t size);
