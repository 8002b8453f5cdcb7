/* The proofs that a process is in a slice. None of them is the worker's word: each is a mark that
 * the process itself, its user or root made. The worker can give no process of another's such a
 * mark, but to jobs, which the warden starts.
 *
 * A user may make most of these files slow to read, by a file system or by memory of the user's
 * own. So they are read in a child process, whose time is bounded. The kernel's own come first. */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/cgroup.h"
#include "base/file.h"
#include "base/macros.h"
#include "base/socket.h"
#include "proto/attach.h"
#include "warden/run.h"

/* As the kernel bounds it for a program with the usual stack. */
#define ENVIRONMENT_MOST (2u << 20)
/* The name of a ledger among a process's mappings (daemon/session/books.c). */
#define LEDGER_MAPPING " /memfd:carve-ledger:"

static bool variable_is_there(const char *text, size_t size)
{
	static const char name[] = ATTACH_ENV_SESSION "=";

	for (const char *at = text; at < text + size;
	     at += strnlen(at, size - (size_t)(at - text)) + 1)
		if (!strncmp(at, name, sizeof(name) - 1))
			return true;
	return false;
}

/* Its environment when its program was started. */
static bool environment_says_so(pid_t pid, uid_t uid)
{
	cleanup_free char *text = malloc(ENVIRONMENT_MOST + 1);
	char path[64];

	if (!text)
		return false;
	snprintf(path, sizeof(path), "/proc/%d/environ", (int)pid);
	ssize_t n = file_read(path, text, ENVIRONMENT_MOST + 1);
	return n > 0 && variable_is_there(text, (size_t)n);
}

/* The files of a slice in its mount namespace, which root or its own user put there. */
static bool namespace_says_so(pid_t pid, uid_t uid)
{
	static const char *const dirs[] = {ATTACH_SLICE_DIRS};
	char path[128];
	struct stat st;

	for (size_t i = 0; i < ARRAY_SIZE(dirs); i++) {
		snprintf(path, sizeof(path), "/proc/%d/root%s/" ATTACH_SLICE_FILE, (int)pid,
			 dirs[i]);
		if (lstat(path, &st) == 0 && S_ISREG(st.st_mode) &&
		    (st.st_uid == 0 || st.st_uid == uid))
			return true;
	}
	return false;
}

/* The cgroup of a job, which the warden made. That of a session proves nothing: the worker may have
 * a process of another's put into one (WARDEN_LIMIT_ENTER). */
static bool is_of_a_job(pid_t pid, uid_t uid)
{
	return cgroup_is_named_by_root(pid, CGROUP_JOBS);
}

/* The front mapped it when the process attached. A descriptor alone would prove nothing: the worker
 * can send one to any program that receives descriptors. */
static bool maps_a_ledger(pid_t pid, uid_t uid)
{
	cleanup_free char *line = NULL;
	char path[64];
	size_t room = 0;
	bool found = false;

	snprintf(path, sizeof(path), "/proc/%d/maps", (int)pid);
	FILE *file = fopen(path, "re");
	while (file && !found && getline(&line, &room, file) > 0)
		found = strstr(line, LEDGER_MAPPING);
	if (file)
		(void)fclose(file);
	return found;
}

/* The command and the shim of carve, as root installed them. */
static bool runs_carve(pid_t pid, uid_t uid)
{
	static const char *const names[] = {"carve", "carve-shim"};
	char link[64], path[PATH_MAX];
	struct stat st;

	snprintf(link, sizeof(link), "/proc/%d/exe", (int)pid);
	ssize_t n = readlink(link, path, sizeof(path) - 1);
	if (n <= 0 || stat(link, &st) < 0)
		return false;
	path[n] = '\0';
	const char *name = strrchr(path, '/');
	for (size_t i = 0; name && st.st_uid == geteuid() && i < ARRAY_SIZE(names); i++)
		if (!strcmp(name + 1, names[i]))
			return true;
	return false;
}

/* The table of proofs. Fewer marks count for processes of root's, as some of those hold what
 * strangers send. */
static const struct {
	bool (*proves)(pid_t pid, uid_t uid);
	bool of_root;
} proofs[] = {
	{is_of_a_job, false},        {maps_a_ledger, false},    {runs_carve, false},
	{environment_says_so, true}, {namespace_says_so, true},
};

bool warden_slice_has(pid_t pid, uid_t uid)
{
	for (size_t i = 0; i < ARRAY_SIZE(proofs); i++)
		if ((uid != 0 || proofs[i].of_root) && proofs[i].proves(pid, uid))
			return true;
	return false;
}

#define ATTACH_SOCKET "/attach.sock"

/* The kernel notes who connected for a socket that a listener took. Its own name is the listener's,
 * and its peer has none. A socket by which the worker connected to somebody has a peer with a name.
 * A kernel that cannot say whether the peer is there still proves nothing. */
bool warden_slice_peer(int fd, pid_t pid)
{
	struct sockaddr_un own = {0}, peer;
	struct ucred credentials;
	socklen_t size = sizeof(credentials), own_size = sizeof(own) - 1, peer_size = sizeof(peer);

	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &credentials, &size) < 0 ||
	    credentials.pid != pid || getsockname(fd, (struct sockaddr *)&own, &own_size) < 0 ||
	    own.sun_family != AF_UNIX ||
	    getpeername(fd, (struct sockaddr *)&peer, &peer_size) < 0 ||
	    peer_size > sizeof(sa_family_t))
		return false;
	const char *name = strrchr(own.sun_path, '/');
	return name && !strcmp(name, ATTACH_SOCKET) && socket_peer_lives(fd) == 0;
}

bool warden_slice_may_enter(pid_t pid)
{
	return runs_carve(pid, 0) || warden_slice_has(pid, 0);
}
