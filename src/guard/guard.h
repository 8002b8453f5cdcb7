/* The guard: the part of a system daemon that keeps rights, while its worker, which talks to
 * everybody, has none. It answers the fixed-size requests of proto/guard.h on a socket pair, one at
 * a time, in some 50 us each, and does nothing else. Worker and guard end with each other.
 *
 * A worker that was broken into can have the guard send SIGTERM and SIGKILL to processes that the
 * named user may end. Root's own processes get them only if they are in a slice. It can have
 * descriptors of mount namespaces, which are of no use without rights. It can also have the
 * daemon's own sockets and lock removed or made anew. */
#pragma once

#include <limits.h>
#include <stdint.h>
#include <sys/types.h>

/* Users that nobody is: IDs that neither Debian nor systemd give to anybody. */
#define GUARD_ID_FIRST 60706u
#define GUARD_ID_LAST 60737u

struct guard_place {
	int link_fd; /* its end of the socket pair */
	int dir_fd;  /* the runtime directory */
	/* Its real user while it acts for another, who could else signal it: nobody's but the
	 * worker's. */
	uid_t real_uid;
	char database[PATH_MAX];  /* where the runtime directory's link leads; "": there is none */
	char start[3 * PATH_MAX]; /* the daemon's options, as in their file; "": there is none */
};

/* Forks the guard, as root. Its worker is the caller, which gets the other end of the link. 0 or
 * -errno. */
int guard_fork(int dir_fd, uid_t real_uid, int *ret_link_fd);
/* Forks another part that keeps rights, `capabilities` (a bit each), and serves on its link until
 * the worker, which is the caller, ends: it ends with it. For work that may take long, which the
 * guard's other answers must not wait for. */
typedef void (*guard_serve_cb)(int link_fd);
int guard_fork_other(const char *name, uint32_t capabilities, guard_serve_cb serve,
		     int *ret_link_fd);
/* In such a part: becomes the program that the worker runs (guard_program_open()), as `carved
 * OPTION LINK`. It needs CAP_SYS_PTRACE for that. Returns -errno where it cannot. */
int guard_renew_other(int link_fd, const char *option);
/* There, with those arguments: it has its name again, and ends with the worker. The link, or
 * -errno. */
int guard_other_renewed(const char *name, int argc, char **argv);
/* The whole of `carved --guard LINK DIR UID`: a guard of another version that became this program.
 */
int guard_main(int argc, char **argv);
#define GUARD_OPTION "--guard"

/* The operations. 0 or -errno. */
int guard_signal(uid_t real_uid, uid_t uid, pid_t pid, uint64_t birth, int signal);
/* Makes a file (enum guard_file) of the runtime directory anew, where it is missing or a socket is
 * there that is nobody's; and the directory, which place->dir_fd is then. Or connects to the
 * launcher's socket there. The descriptor, or -errno. */
int guard_file_make(const struct guard_place *place, uint32_t file);
/* Remembers where that link leads. */
void guard_link_remember(struct guard_place *place);
/* And the options of the daemon. */
void guard_start_remember(struct guard_place *place);
/* The program that process `worker` runs, opened, where it is called carved and root alone (or the
 * owner of this program) could have put it there. The descriptor, or -errno. */
int guard_program_open(pid_t worker);
