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
	bool handed_over;       /* the sockets are the service manager's */
	/* The sockets that were made for the start of this worker, as their files had been removed:
	 * a bit each (enum runtime_file). */
	unsigned made_anew;
	int dir_fd;       /* holds a shared lock: systemd-tmpfiles cleans no such directory */
	bool start_noted; /* the file of the daemon's options was written */
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
/* The options of a daemon; NULL and 0 where one was not named. */
struct runtime_start {
	bool system;
	const char *config, *state_dir, *user;
	uint64_t idle_exit_ns;
};

/* Whether the file that has them was removed. */
bool runtime_start_missing(const struct runtime *runtime);
/* Whether a file is still the one that was made. */
enum runtime_found runtime_look(const struct runtime *runtime, enum runtime_file file);
const char *runtime_file_name(enum runtime_file file);
/* In the runtime directory. */
#define RUNTIME_CONTAINERS_DIR "containers"
/* Whether what containers get is the attach socket of now. */
bool runtime_containers_there(const struct runtime *runtime);
/* Makes the directory (0755 for the system's, else 0700) where it is missing, and checks whose it
 * is. 0 or negative with *err. */
int runtime_make(const struct runtime *runtime, bool system, struct error *err);
/* For a supervisor, and for the warden under systemd: makes what is missing for the next worker, at
 * the start and whenever files were removed.
 *
 * - The directory, as above, and its name (sole.h).
 * - The lock. As long as the daemon has not ended in order, the lock's file says below the PID how
 *   the next one is to be started. It has a line "system" for the system's, and a line "config
 * PATH" (absolute) where a configuration is named.
 * - The sockets (mode 0666 for the system's, else 0600), but those of the service manager that can
 *   be reached.
 * - The link for containers.
 * - The options for the next daemon, which a command starts after this one was killed. The file is
 *   this process's user's.
 *
 * 1: made; 0: nothing was missing. Negative with *err: another daemon has the directory. */
int runtime_hold(struct runtime *runtime, const struct runtime_start *start, struct error *err);
/* Lets go of the directory, its name and the lock: another daemon may have them. */
void runtime_let_go(struct runtime *runtime);
/* Sockets that a worker is given by the process that held the directory. */
struct runtime_given {
	int attach_fd, http_fd; /* listening, in place of the service manager's; -1: not */
	unsigned made_anew;     /* as struct runtime has it */
};
/* For a worker: takes the sockets, which are given or a supervisor's, and notes which files they
 * and the lock are. 0 or negative with *err. */
int runtime_follow(struct runtime *runtime, const struct runtime_given *given, struct error *err);
/* Clients that ask for the process that listens are told of this one from now on. Sockets of
 * another user stay that user's: clients believe root's. */
void runtime_name_as_own(const struct runtime *runtime);
/* For a supervisor: takes up what it left to itself before it became this program, or the sockets
 * that a supervisor above it has. Those two are told apart by the lock. */
void runtime_continue(struct runtime *runtime);
/* For a supervisor that ends for good: also removes the files of its sockets. */
void runtime_end(struct runtime *runtime);
/* DIR/NAME */
void runtime_path(const struct runtime *runtime, const char *name, char *buf, size_t size);
