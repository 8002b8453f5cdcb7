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
#include <sys/sysmacros.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/cgroup.h"
#include "base/file.h"
#include "base/macros.h"
#include "base/process.h"
#include "base/socket.h"
#include "proto/attach.h"
#include "proto/warden_outside.h"
#include "warden/message.h"
#include "warden/run.h"

/* As the kernel bounds it for a program with the usual stack. */
#define ENVIRONMENT_MOST (2u << 20)
/* The name of a ledger among a process's mappings (daemon/session/books.c). */
#define LEDGER_MAPPING " /memfd:carve-ledger:"

#define NAME ATTACH_ENV_SESSION "="

/* Keeps the session that a mark names, where it is an ID and no stronger mark named one. */
static void session_keep(const char *value, struct warden_marks *ret)
{
	size_t length = strspn(value, "abcdefghijklmnopqrstuvwxyz0123456789-");

	if (ret && !ret->session[0] && length < MARKS_SESSION_SIZE)
		memcpy(ret->session, value, length);
}

/* The value of the slice's variable in texts that end with `end` each; NULL: it is not there. */
static const char *variable_find(const char *text, size_t size, char end)
{
	for (const char *at = text; at && at < text + size;) {
		if (!strncmp(at, NAME, sizeof(NAME) - 1))
			return at + sizeof(NAME) - 1;
		at = memchr(at, end, size - (size_t)(at - text));
		at = at ? at + 1 : NULL;
	}
	return NULL;
}

/* Its environment when its program was started. */
static uint32_t environment_says_so(pid_t pid, uid_t uid, struct warden_marks *ret)
{
	cleanup_free char *text = malloc(ENVIRONMENT_MOST + 1);
	char path[64];

	if (!text)
		return 0;
	snprintf(path, sizeof(path), "/proc/%d/environ", (int)pid);
	ssize_t n = file_read(path, text, ENVIRONMENT_MOST + 1);
	const char *value = n > 0 ? variable_find(text, (size_t)n, '\0') : NULL;

	if (value)
		session_keep(value, ret);
	return value ? WARDEN_MARK_ENVIRONMENT : 0;
}

static void file_keep(const char *path, struct warden_marks *ret)
{
	char text[ATTACH_SLICE_FILE_SIZE + 1];
	ssize_t n = ret ? file_read(path, text, sizeof(text)) : 0;
	const char *value = n > 0 ? variable_find(text, (size_t)n, '\n') : NULL;

	if (value)
		session_keep(value, ret);
}

/* The files of a slice in its mount namespace, which root or its own user put there. */
static uint32_t namespace_says_so(pid_t pid, uid_t uid, struct warden_marks *ret)
{
	static const char *const dirs[] = {ATTACH_SLICE_DIRS};
	char path[128];
	struct stat st;

	for (size_t i = 0; i < ARRAY_SIZE(dirs); i++) {
		snprintf(path, sizeof(path), "/proc/%d/root%s/" ATTACH_SLICE_FILE, (int)pid,
			 dirs[i]);
		if (lstat(path, &st) < 0 || !S_ISREG(st.st_mode) ||
		    (st.st_uid != 0 && st.st_uid != uid))
			continue;
		file_keep(path, ret);
		return st.st_uid == 0 ? WARDEN_MARK_ROOT : WARDEN_MARK_FILE;
	}
	return 0;
}

/* The cgroup of a job, which the warden made. That of a session proves nothing: the worker may have
 * a process of another's put into one (WARDEN_LIMIT_ENTER). */
static uint32_t is_of_a_job(pid_t pid, uid_t uid, struct warden_marks *ret)
{
	return cgroup_is_named_by_root(pid, CGROUP_JOBS) ? WARDEN_MARK_JOB : 0;
}

/* The front mapped it when the process attached. A descriptor alone would prove nothing: the worker
 * can send one to any program that receives descriptors. */
static uint32_t maps_a_ledger(pid_t pid, uid_t uid, struct warden_marks *ret)
{
	cleanup_free char *line = NULL;
	char path[64];
	size_t room = 0;
	bool found = false;
	unsigned major, minor;
	unsigned long inode;

	snprintf(path, sizeof(path), "/proc/%d/maps", (int)pid);
	FILE *file = fopen(path, "re");
	while (file && !found && getline(&line, &room, file) > 0)
		found = strstr(line, LEDGER_MAPPING);
	if (file)
		(void)fclose(file);
	// NOLINTNEXTLINE(cert-err34-c): the kernel's numbers
	if (found && ret && sscanf(line, "%*s %*s %*s %x:%x %lu", &major, &minor, &inode) == 3) {
		ret->ledger_device = makedev(major, minor);
		ret->ledger_inode = inode;
	}
	return found ? WARDEN_MARK_LEDGER : 0;
}

/* The command and the shim of carve, as root installed them. */
static uint32_t runs_carve(pid_t pid, uid_t uid, struct warden_marks *ret)
{
	static const char *const names[] = {"carve", "carve-shim"};
	char link[64], path[PATH_MAX];
	struct stat st;

	snprintf(link, sizeof(link), "/proc/%d/exe", (int)pid);
	ssize_t n = readlink(link, path, sizeof(path) - 1);
	if (n <= 0 || stat(link, &st) < 0)
		return 0;
	path[n] = '\0';
	const char *name = strrchr(path, '/');
	for (size_t i = 0; name && st.st_uid == geteuid() && i < ARRAY_SIZE(names); i++)
		if (!strcmp(name + 1, names[i]))
			return WARDEN_MARK_CARVE;
	return 0;
}

/* The table of proofs. Fewer marks count for processes of root's, as some of those hold what
 * strangers send. A file goes before the environment, as in the front. */
static const struct {
	uint32_t (*proves)(pid_t pid, uid_t uid, struct warden_marks *ret);
	bool of_root;
} proofs[] = {
	{is_of_a_job, false},      {maps_a_ledger, false},      {runs_carve, false},
	{namespace_says_so, true}, {environment_says_so, true},
};

bool warden_slice_has(pid_t pid, uid_t uid)
{
	for (size_t i = 0; i < ARRAY_SIZE(proofs); i++)
		if ((uid != 0 || proofs[i].of_root) && proofs[i].proves(pid, uid, NULL))
			return true;
	return false;
}

/* ---- the marks of a process that may be outside of slices ---------------------------------- */

/* Whether the process is in this process's namespace of that kind. */
static bool shares_namespace(pid_t pid, const char *kind)
{
	char path[64];
	struct stat its, own;

	snprintf(path, sizeof(path), "/proc/%d/ns/%s", (int)pid, kind);
	if (stat(path, &its) < 0)
		return false;
	snprintf(path, sizeof(path), "/proc/self/ns/%s", kind);
	return stat(path, &own) == 0 && its.st_dev == own.st_dev && its.st_ino == own.st_ino;
}

void warden_slice_marks(pid_t pid, struct warden_marks *ret)
{
	uid_t uid = UINT32_MAX;

	*ret = (struct warden_marks){.uid = UINT32_MAX};
	if (process_user(pid, &uid))
		ret->uid = uid;
	if (ret->uid == UINT32_MAX || !shares_namespace(pid, "user") ||
	    !shares_namespace(pid, "pid"))
		ret->marks = WARDEN_MARK_FOREIGN;
	for (size_t i = 0; i < ARRAY_SIZE(proofs); i++)
		ret->marks |= proofs[i].proves(pid, uid, ret);
}

int warden_run_slice_look(struct warden_place *place, const struct warden_message *request,
			  struct warden_result *ret)
{
	const struct warden_process *r = (const void *)request->data;
	const struct process_id process = {.pid = r->pid, .birth = r->birth};

	warden_slice_marks(r->pid, (void *)ret->data);
	/* It was that process all the time. */
	return process_alive(process) ? 0 : -ESRCH;
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
	return runs_carve(pid, 0, NULL) || warden_slice_has(pid, 0);
}
