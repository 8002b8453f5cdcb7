#include "slice/namespace.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/pidfd.h>
#include <unistd.h>

#include "base/file.h"
#include "base/macros.h"

static int file_write(const char *path, const char *text)
{
	cleanup_close int fd = open(path, O_WRONLY | O_CLOEXEC);

	if (fd < 0)
		return -errno;
	return write_all(fd, text, strlen(text));
}

static int map_write(const char *path, unsigned id)
{
	char text[32];

	snprintf(text, sizeof(text), "%u %u 1", id, id);
	return file_write(path, text);
}

/* The kernel makes all mounts of such a namespace followers of the host's by itself. */
static int user_namespace_enter(void)
{
	uid_t uid = geteuid();
	gid_t gid = getegid();

	if (unshare(CLONE_NEWUSER | CLONE_NEWNS) < 0)
		return -errno;
	int rc = file_write("/proc/self/setgroups", "deny");
	if (rc < 0 && rc != -ENOENT)
		return rc;
	rc = map_write("/proc/self/uid_map", uid);
	return rc < 0 ? rc : map_write("/proc/self/gid_map", gid);
}

/* In a chroot "/" is no mount, and what it is a part of cannot be named. Joining the namespace that
 * one is in already moves to its true root, and back from there leads what was opened before. */
static int slave_from_true_root(void)
{
	cleanup_close int root = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
	cleanup_close int here = open(".", O_PATH | O_DIRECTORY | O_CLOEXEC);
	cleanup_close int self = pidfd_open(getpid(), 0);

	if (root < 0 || here < 0 || self < 0 || setns(self, CLONE_NEWNS) < 0)
		return -errno;
	if (mount(NULL, "/", NULL, MS_REC | MS_SLAVE, NULL) < 0)
		return -errno;
	if (fchdir(root) < 0 || chroot(".") < 0 || fchdir(here) < 0)
		return -errno;
	return 0;
}

int namespace_enter(bool user, enum namespace_form *ret_form)
{
	*ret_form = NAMESPACE_PLAIN;
	if (unshare(CLONE_NEWNS) < 0) {
		if (!user || errno != EPERM)
			return -errno;
		*ret_form = NAMESPACE_USER;
		return user_namespace_enter();
	}
	if (mount(NULL, "/", NULL, MS_REC | MS_SLAVE, NULL) == 0)
		return 0;
	return errno == EINVAL ? slave_from_true_root() : -errno;
}

/* Settings with which an administrator may have switched user namespaces off. */
static const struct {
	const char *name, *path;
	long off;
} switches[] = {
	{"user.max_user_namespaces", "/proc/sys/user/max_user_namespaces", 0},
	{"kernel.unprivileged_userns_clone", "/proc/sys/kernel/unprivileged_userns_clone", 0},
	{"kernel.apparmor_restrict_unprivileged_userns",
	 "/proc/sys/kernel/apparmor_restrict_unprivileged_userns", 1},
	{"user.max_mnt_namespaces", "/proc/sys/user/max_mnt_namespaces", 0},
};

const char *namespace_why(int error, bool user, char *buf, size_t size)
{
	char text[32];

	for (size_t i = 0; user && i < ARRAY_SIZE(switches); i++) {
		if (file_read(switches[i].path, text, sizeof(text)) <= 0 ||
		    strtol(text, NULL, 10) != switches[i].off)
			continue;
		snprintf(buf, size, "user namespaces are switched off here (sysctl %s=%ld)",
			 switches[i].name, switches[i].off);
		return buf;
	}
	if (!user && (error == EPERM || error == EACCES))
		return "mounting is not permitted here, as in most containers (CAP_SYS_ADMIN)";
	if (error == EPERM || error == EACCES)
		return "neither mounting nor a user namespace is permitted here, as in most "
		       "containers or a chroot";
	snprintf(buf, size, "%s", strerrordesc_np(error));
	return buf;
}
