/* The order: all that comes from the host is cloned before the container's namespace is entered, as
 * its paths mean something else there. Then the root is opened once, and everything inside is
 * resolved below that descriptor by openat2(RESOLVE_IN_ROOT). A link in the image, or one that
 * another container with the same volume makes meanwhile, leads nowhere else. */
#include "integrations/oci/enter.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/fsuid.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/file.h"
#include "base/macros.h"
#include "base/process.h"
#include "container/layout.h"

#define CLONES_MAX 64
/* The image's own list of libraries to preload. */
#define PRELOAD_MAX 4096
#define DEPTH_MAX 32

struct clone {
	int fd;
	bool directory;
	const char *to; /* in the container */
};

struct entry {
	struct clone clones[CLONES_MAX];
	size_t count;
	int slice; /* the slice's own directory: a file system of its own */
	int root;  /* the container's */
	int own;   /* this process's mount namespace */
	int self;  /* its /proc/self/fd, which the container's mounts may not show */
	struct error *err;
};

static int failed(struct entry *e, const char *path, int error)
{
	error_set(e->err, EXIT_CODE_FAILED, "cannot mount %.200s into the container: %s", path,
		  strerrordesc_np(error));
	if (error == ENOSYS)
		error_hint(e->err, "the hook needs Linux 5.12 or newer; carve podman run does not");
	return -error;
}

/* ---- on the host ------------------------------------------------------------------------- */

static int clone_add(struct entry *e, const char *from, const char *to, uint64_t attributes)
{
	struct mount_attr attr = {.attr_set = attributes};
	struct clone *clone = &e->clones[e->count];
	struct stat st;

	if (e->count == CLONES_MAX)
		return failed(e, from, E2BIG);
	clone->fd = open_tree(AT_FDCWD, from, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);
	if (clone->fd < 0)
		return failed(e, from, errno);
	e->count++;
	if (mount_setattr(clone->fd, "", AT_EMPTY_PATH, &attr, sizeof(attr)) < 0 ||
	    fstat(clone->fd, &st) < 0)
		return failed(e, from, errno);
	clone->directory = S_ISDIR(st.st_mode);
	clone->to = to;
	return 0;
}

static int clones_make(struct entry *e, const json_t *edits)
{
	const char *from, *to, *mode;
	json_t *entry;
	size_t i;
	int rc;

	json_array_foreach(json_object_get(edits, "mounts"), i, entry)
	{
		from = json_string_value(json_object_get(entry, "hostPath"));
		to = json_string_value(json_object_get(entry, "containerPath"));
		mode = json_string_value(json_array_get(json_object_get(entry, "options"), 0));
		if ((rc = clone_add(e, from, to,
				    MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV |
					    (!strcmp(mode, "ro") ? MOUNT_ATTR_RDONLY : 0))) < 0)
			return rc;
	}
	json_array_foreach(json_object_get(edits, "deviceNodes"), i, entry)
	{
		from = json_string_value(json_object_get(entry, "path"));
		if ((rc = clone_add(e, from, from, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC)) < 0)
			return rc;
	}
	return 0;
}

static int slice_make(struct entry *e, const char *environment)
{
	cleanup_close int fs = fsopen("tmpfs", FSOPEN_CLOEXEC);

	if (fs < 0 || fsconfig(fs, FSCONFIG_SET_STRING, "mode", "0755", 0) < 0 ||
	    fsconfig(fs, FSCONFIG_SET_STRING, "size", "256k", 0) < 0 ||
	    fsconfig(fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0) < 0 ||
	    (e->slice = fsmount(fs, FSMOUNT_CLOEXEC, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV)) < 0)
		return failed(e, ATTACH_SLICE_DIR, errno);
	cleanup_close int file =
		openat(e->slice, ATTACH_SLICE_FILE, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
	int rc = file < 0 ? -errno : write_all(file, environment, strlen(environment));
	return rc < 0 ? failed(e, CONTAINER_ENVIRONMENT, -rc) : 0;
}

/* ---- in the container -------------------------------------------------------------------- */

static int make(int above, const char *name, bool directory)
{
	int rc = directory ? mkdirat(above, name, 0755) : mknodat(above, name, S_IFREG | 0644, 0);

	return rc < 0 && errno != EEXIST ? -errno : 0;
}

/* A file system of the container's own users, as its /dev is, takes no file of a user that is none
 * of them. There the directory's owner makes it. */
static int make_as_owner(int above, const char *name, bool directory)
{
	int rc = make(above, name, directory);
	struct stat st;

	if (rc != -EOVERFLOW || fstat(above, &st) < 0)
		return rc;
	int gid = setfsgid(st.st_gid), uid = setfsuid(st.st_uid);
	rc = make(above, name, directory);
	(void)setfsuid((uid_t)uid);
	(void)setfsgid((gid_t)gid);
	return rc;
}

/* A descriptor of what is mounted over: made where it is not there. */
static int target_open(struct entry *e, const char *path, bool directory, int depth)
{
	char parent[PATH_MAX];
	int fd = open_in_root(e->root, path, O_PATH);
	const char *slash = strrchr(path, '/');

	if (fd != -ENOENT || depth == DEPTH_MAX || !slash || !slash[1])
		return fd;
	/* The parent of what stands in the root is "/". An image need not have so much as a /run.
	 */
	snprintf(parent, sizeof(parent), "%.*s", MAX((int)(slash - path), 1), path);
	cleanup_close int above = target_open(e, parent, true, depth + 1);
	if (above < 0)
		return above;
	/* By name below a descriptor: not through a link that was made meanwhile. */
	int rc = make_as_owner(above, slash + 1, directory);
	return rc < 0 ? rc : open_in_root(e->root, path, O_PATH);
}

/* The image has a file for a directory, the other way round, or a link that leads nowhere. */
static int occupied(struct entry *e, const char *to, int error)
{
	failed(e, to, error);
	error_hint(e->err, "the image has something else at that path: remove it from the image");
	return -error;
}

static int mount_at(struct entry *e, int fd, const char *to, bool directory)
{
	cleanup_close int target = target_open(e, to, directory, 0);
	struct stat st;

	if (target < 0)
		return occupied(e, to, -target);
	if (fstat(target, &st) == 0 && S_ISDIR(st.st_mode) != directory)
		return occupied(e, to, directory ? ENOTDIR : EISDIR);
	if (move_mount(fd, "", target, "", MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH) < 0)
		return failed(e, to, errno);
	return 0;
}

/* Carve's libraries, then those of the image. */
static int preload_write(struct entry *e)
{
	char text[sizeof(CONTAINER_PRELOAD_TEXT) + PRELOAD_MAX] = CONTAINER_PRELOAD_TEXT;
	size_t used = strlen(text);
	cleanup_close int of_image = open_plain_in_root(e->root, e->self, CONTAINER_PRELOAD);
	cleanup_close int file =
		openat(e->slice, CONTAINER_FILE_PRELOAD, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
	struct stat st;

	if (of_image >= 0 && fstat(of_image, &st) == 0) {
		ssize_t n = st.st_size > PRELOAD_MAX
				    ? -1
				    : read(of_image, text + used, sizeof(text) - used - 1);
		if (n < 0)
			return occupied(e, CONTAINER_PRELOAD,
					st.st_size > PRELOAD_MAX ? EFBIG : errno);
		used += (size_t)n;
	}
	int rc = file < 0 ? -errno : write_all(file, text, used);
	return rc < 0 ? failed(e, CONTAINER_PRELOAD, -rc) : 0;
}

static int preload_mount(struct entry *e)
{
	struct mount_attr attr = {.attr_set = MOUNT_ATTR_RDONLY};
	int rc = preload_write(e);

	if (rc < 0)
		return rc;
	cleanup_close int fd =
		open_tree(e->slice, CONTAINER_FILE_PRELOAD, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);
	if (fd < 0 || mount_setattr(fd, "", AT_EMPTY_PATH, &attr, sizeof(attr)) < 0)
		return failed(e, CONTAINER_PRELOAD, errno);
	return mount_at(e, fd, CONTAINER_PRELOAD, false);
}

static int all_mount(struct entry *e)
{
	struct mount_attr attr = {.attr_set = MOUNT_ATTR_RDONLY};
	int rc = mount_at(e, e->slice, ATTACH_SLICE_DIR, true);

	for (size_t i = 0; rc == 0 && i < e->count; i++)
		rc = mount_at(e, e->clones[i].fd, e->clones[i].to, e->clones[i].directory);
	if (rc == 0)
		rc = preload_mount(e);
	if (rc == 0 && mount_setattr(e->slice, "", AT_EMPTY_PATH, &attr, sizeof(attr)) < 0)
		rc = failed(e, ATTACH_SLICE_DIR, errno);
	return rc;
}

static int namespace_enter(struct entry *e, const struct oci_container *container)
{
	cleanup_close int fd = process_mount_namespace(
		(struct process_id){.pid = container->pid, .birth = container->birth});

	errno = fd < 0 ? -fd : 0;
	e->own = open("/proc/self/ns/mnt", O_RDONLY | O_CLOEXEC);
	e->self = open("/proc/self/fd", O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0 || e->own < 0 || e->self < 0 || setns(fd, CLONE_NEWNS) < 0)
		return error_set(e->err, EXIT_CODE_FAILED,
				 "cannot enter the container's mount namespace: %s",
				 strerrordesc_np(errno));
	e->root = open(container->root, O_PATH | O_DIRECTORY | O_CLOEXEC);
	return e->root < 0 ? failed(e, container->root, errno) : 0;
}

/* ---- the process that asks --------------------------------------------------------------- */

static bool is_ancestor(pid_t pid)
{
	struct process_id self, named;

	return pid == 1 ||
	       (process_identify(getpid(), &self) == 0 && process_identify(pid, &named) == 0 &&
		process_descends_from(self, named));
}

static int not_the_containers(pid_t pid, const char *why, const char *of, struct error *err)
{
	error_set(err, EXIT_CODE_FAILED, "process %d is not the container's: %s%.300s", (int)pid,
		  why, of);
	error_hint(err, "a hook takes the state of a container that its runtime has just made");
	return -err->code;
}

/* Before a container's process changes its root, the container's is where the host has it. */
static bool has_root(int its, const struct oci_container *container)
{
	cleanup_close int root = open_in_root(its, container->root, O_PATH);
	struct stat there, here;

	return root >= 0 && fstat(root, &there) == 0 && stat(container->root, &here) == 0 &&
	       S_ISDIR(there.st_mode) && there.st_dev == here.st_dev && there.st_ino == here.st_ino;
}

int oci_process_check(struct oci_container *container, struct error *err)
{
	char path[64];
	struct stat its, own;
	struct process_id process;
	pid_t pid = container->pid;
	int rc = process_identify(pid, &process);

	if (rc < 0)
		return not_the_containers(pid, strerrordesc_np(ENOENT), "", err);
	container->birth = process.birth;

	if (is_ancestor(pid))
		return not_the_containers(pid, "this hook descends from it", "", err);
	snprintf(path, sizeof(path), "/proc/%d/ns/mnt", (int)pid);
	if (stat(path, &its) < 0)
		return not_the_containers(pid, strerrordesc_np(errno), "", err);
	if (stat("/proc/self/ns/mnt", &own) == 0 && its.st_dev == own.st_dev &&
	    its.st_ino == own.st_ino)
		return not_the_containers(pid, "it has no mount namespace of its own", "", err);
	snprintf(path, sizeof(path), "/proc/%d/root", (int)pid);
	cleanup_close int root = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (root < 0 || !has_root(root, container))
		return not_the_containers(pid, "its mount namespace does not have ",
					  container->root, err);
	return 0;
}

/* ------------------------------------------------------------------------------------------ */

int oci_enter(const struct oci_container *container, const json_t *edits, const char *environment,
	      struct error *err)
{
	struct entry e = {.slice = -1, .root = -1, .own = -1, .self = -1, .err = err};
	int rc = clones_make(&e, edits);

	if (rc == 0)
		rc = slice_make(&e, environment);
	if (rc == 0)
		rc = namespace_enter(&e, container);
	if (rc == 0)
		rc = all_mount(&e);
	/* The daemon's socket is found by its path on the host again. */
	if (e.own >= 0)
		(void)setns(e.own, CLONE_NEWNS);
	for (size_t i = 0; i < e.count; i++)
		close(e.clones[i].fd);
	close_fd(&e.slice);
	close_fd(&e.root);
	close_fd(&e.own);
	close_fd(&e.self);
	return rc;
}
