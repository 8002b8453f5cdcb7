#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/capability.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/file.h"
#include "base/macros.h"
#include "base/process.h"
#include "base/socket.h"
#include "guard/guard.h"
#include "guard/part.h"
#include "proto/guard.h"

#define NAME "carve-guard"
/* SETUID to be a session's user for a moment, SYS_PTRACE to open mount namespaces and to see which
 * program the worker runs. No KILL: whom a user may signal the kernel decides. */
#define CAPABILITIES (1u << CAP_SETUID | 1u << CAP_SYS_PTRACE)

/* ---- operations -------------------------------------------------------------------------- */

static void sockets_remove(int dir_fd)
{
	static const char *const names[] = {"carved.sock", "attach.sock"};
	struct stat st;

	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		if (fstatat(dir_fd, names[i], &st, AT_SYMLINK_NOFOLLOW) == 0 &&
		    S_ISSOCK(st.st_mode))
			unlinkat(dir_fd, names[i], 0);
}

/* Where the daemon is, for people who look at processes. */
static void place_name(const struct guard_place *place, char ret[static PATH_MAX])
{
	char link[64];

	snprintf(link, sizeof(link), "/proc/self/fd/%d", place->dir_fd);
	ssize_t n = readlink(link, ret, PATH_MAX - 1);
	ret[n < 0 ? 0 : n] = '\0';
}

/* Does not return where it is done. */
static int renew(const struct guard_place *place)
{
	char link[16], dir[16], uid[16], path[PATH_MAX], option[] = GUARD_OPTION;
	char *args[] = {"carved", option, link, dir, uid, path, NULL}, *environment[] = {NULL};
	cleanup_close int program = guard_program_open(getppid());

	if (program < 0)
		return program;
	snprintf(link, sizeof(link), "%d", place->link_fd);
	snprintf(dir, sizeof(dir), "%d", place->dir_fd);
	snprintf(uid, sizeof(uid), "%u", place->real_uid);
	place_name(place, path);
	if (fcntl(place->link_fd, F_SETFD, 0) < 0 || fcntl(place->dir_fd, F_SETFD, 0) < 0)
		return -errno;
	syscall(SYS_execveat, program, "", args, environment, AT_EMPTY_PATH);
	return -errno;
}

/* 0 or -errno; *ret_fd: what goes along with the answer, which is closed then. */
static int obey(const struct guard_place *place, const struct guard_request *r, int *ret_fd)
{
	switch ((enum guard_op)r->op) {
	case GUARD_SIGNAL:
		return guard_signal(place->real_uid, r->uid, r->pid, r->birth, r->signal);
	case GUARD_NAMESPACE:
		*ret_fd = process_mount_namespace(
			(struct process_id){.pid = r->pid, .birth = r->birth});
		return *ret_fd < 0 ? *ret_fd : 0;
	case GUARD_RENEW:
		return renew(place);
	case GUARD_LEAVE:
		sockets_remove(place->dir_fd);
		return 0;
	case GUARD_FILE:
		*ret_fd = guard_file_make(place, r->file);
		return *ret_fd < 0 ? *ret_fd : 0;
	}
	return -EOPNOTSUPP;
}

static struct guard_reply reply_make(uint16_t op, uint64_t number, int rc)
{
	return (struct guard_reply){
		.magic = GUARD_MAGIC,
		.version = GUARD_VERSION,
		.op = op,
		.number = number,
		.error = -rc,
	};
}

/* ---- the loop ---------------------------------------------------------------------------- */

/* False: the worker is gone, or broken. */
static bool turn(const struct guard_place *place)
{
	struct pollfd readable = {.fd = place->link_fd, .events = POLLIN};
	struct guard_request request;
	int sent = -1, fd = -1;

	if (poll(&readable, 1, -1) < 0)
		return errno == EINTR;
	ssize_t n = descriptor_receive(place->link_fd, &request, sizeof(request), &sent);
	close_fd(&sent);
	if (n == -EAGAIN || n == -EINTR)
		return true;
	int rc = n <= 0 ? -EPROTO : guard_request_check(&request, (size_t)n);
	if (rc == -EPROTO)
		return false;
	if (rc == 0)
		rc = obey(place, &request, &fd);
	struct guard_reply reply = reply_make(request.op, request.number, rc);
	bool goes_on =
		descriptors_send_wait(place->link_fd, &reply, sizeof(reply), &fd, fd >= 0) == 0;
	close_fd(&fd);
	return goes_on;
}

/* Answers until the worker hangs up. */
static void guard_serve(struct guard_place *place)
{
	guard_link_remember(place);
	guard_start_remember(place);
	while (turn(place))
		;
}

/* ---- its life ---------------------------------------------------------------------------- */

/* Only what it needs; what it becomes has no more. */
static int rights_leave(uint32_t kept)
{
	struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct had[2] = {0}, data[2] = {0};

	/* A sandbox may have taken some away: without, what needs them fails, and is answered so.
	 */
	if (syscall(SYS_capget, &header, had) < 0)
		return -errno;
	data[0].permitted = data[0].effective = kept & had[0].permitted;
	for (unsigned capability = 0; capability <= CAP_LAST_CAP; capability++)
		if (capability >= 32 || !(kept & 1u << capability))
			(void)prctl(PR_CAPBSET_DROP, capability, 0, 0, 0);
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 || syscall(SYS_capset, &header, data) < 0)
		return -errno;
	return 0;
}

static int guard_run(void *arg, int link_fd)
{
	struct guard_place *place = arg;

	place->link_fd = link_fd;
	int rc = part_descriptors_keep((int *const[]){&place->link_fd, &place->dir_fd}, 2);
	if (rc == 0)
		rc = rights_leave(CAPABILITIES);
	if (rc == 0)
		guard_serve(place);
	return rc;
}

int guard_fork(int dir_fd, uid_t real_uid, int *ret_link_fd)
{
	struct guard_place place = {.dir_fd = dir_fd, .real_uid = real_uid};

	return part_fork(NAME, SOCK_NONBLOCK, guard_run, &place, ret_link_fd);
}

struct other {
	uint32_t capabilities;
	guard_serve_cb serve;
};

static int other_run(void *arg, int link_fd)
{
	const struct other *other = arg;
	int rc = part_descriptors_keep((int *const[]){&link_fd}, 1);

	if (rc == 0)
		rc = rights_leave(other->capabilities);
	if (rc == 0)
		other->serve(link_fd);
	return rc;
}

int guard_fork_other(const char *name, uint32_t capabilities, guard_serve_cb serve,
		     int *ret_link_fd)
{
	struct other other = {.capabilities = capabilities, .serve = serve};

	return part_fork(name, 0, other_run, &other, ret_link_fd);
}

int guard_renew_other(int link_fd, const char *option)
{
	char link[16], name[32];
	char *args[] = {"carved", name, link, NULL};
	cleanup_close int program = guard_program_open(getppid());

	if (program < 0)
		return program;
	snprintf(name, sizeof(name), "%s", option);
	snprintf(link, sizeof(link), "%d", link_fd);
	if (fcntl(link_fd, F_SETFD, 0) < 0)
		return -errno;
	syscall(SYS_execveat, program, "", args, environ, AT_EMPTY_PATH);
	int rc = -errno;
	(void)fcntl(link_fd, F_SETFD, FD_CLOEXEC);
	return rc;
}

int guard_other_renewed(const char *name, int argc, char **argv)
{
	int link_fd = argc < 3 || geteuid() != 0 ? -1 : (int)strtol(argv[2], NULL, 10);

	if (link_fd < 0)
		return -EINVAL;
	part_begin(name, getppid());
	return fcntl(link_fd, F_SETFD, FD_CLOEXEC) < 0 ? -errno : link_fd;
}

int guard_main(int argc, char **argv)
{
	struct guard_place place = {.link_fd = -1};

	if (argc < 5 || geteuid() != 0)
		return 2;
	place.link_fd = (int)strtol(argv[2], NULL, 10);
	place.dir_fd = (int)strtol(argv[3], NULL, 10);
	place.real_uid = (uid_t)strtoul(argv[4], NULL, 10);
	part_begin(NAME, getppid());
	if (fcntl(place.link_fd, F_SETFD, FD_CLOEXEC) < 0 ||
	    fcntl(place.dir_fd, F_SETFD, FD_CLOEXEC) < 0)
		return 2;
	struct guard_reply reply = reply_make(GUARD_RENEW, 0, 0);
	if (descriptors_send_wait(place.link_fd, &reply, sizeof(reply), NULL, 0) == 0)
		guard_serve(&place);
	return 0;
}
