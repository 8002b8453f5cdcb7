/* The driver's limits of cgroups, which take root. A cgroup is opened by its number, so no path of
 * the worker's says which one is meant. These operations run in a child, as both the kernel and the
 * driver may take their time. The child has the driver open for as long as one of them takes: a
 * change of a GPU's mode needs it closed. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "backend/cgroup_limits.h"
#include "backend/cgroup_look.h"
#include "backend/gpus.h"
#include "base/cgroup.h"
#include "base/error.h"
#include "base/file.h"
#include "base/process.h"
#include "proto/warden_limits.h"
#include "warden/message.h"
#include "warden/run.h"

/* The kernel's FILEID_KERNFS: a handle that is the number. */
#define HANDLE_TYPE 0xfe

/* A child's, for as long as it lives. */
static struct gpus *gpus;
static struct limits *limits;

static int driver_open(void)
{
	struct error ignored = {0};
	int rc = 0;

	if (gpus)
		gpus_take_up(gpus);
	else
		rc = gpus_open(&gpus, &ignored);
	if (rc == 0 && !limits)
		rc = limits_open(gpus, NULL, &limits);
	return rc;
}

static int driver_close(int rc)
{
	if (gpus)
		gpus_let_go(gpus);
	return rc;
}

/* The path of a cgroup of version 2. 0 or -errno; -ENOENT: it is gone. */
static int cgroup_path_of(uint64_t number, char ret[static LIMITS_PATH_SIZE])
{
	struct {
		struct file_handle handle;
		uint64_t number;
	} name = {.handle = {.handle_bytes = sizeof(name.number), .handle_type = HANDLE_TYPE}};
	char link[64];
	int rc = cgroup_mount(ret, LIMITS_PATH_SIZE);

	if (rc < 0)
		return rc;
	_Static_assert(sizeof(struct file_handle) == offsetof(typeof(name), number),
		       "the number is the handle");
	name.number = number;
	size_t length = strlen(ret);
	cleanup_close int mount = open(ret, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (mount < 0)
		return -errno;
	cleanup_close int fd =
		open_by_handle_at(mount, &name.handle, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return errno == ESTALE ? -ENOENT : -errno;
	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	char root[LIMITS_PATH_SIZE];
	memcpy(root, ret, length + 1);
	ssize_t n = readlink(link, ret, LIMITS_PATH_SIZE - 1);
	if (n < 0 || n == LIMITS_PATH_SIZE - 1)
		return n < 0 ? -errno : -ENAMETOOLONG;
	ret[n] = '\0';
	/* Below the root, which is everybody's. */
	return strncmp(ret, root, length) == 0 && ret[length] == '/' ? 0 : -EINVAL;
}

/* Whether this process may open a cgroup by its number. In a container it may not, as a rule. */
static int numbers_probe(void)
{
	char path[LIMITS_PATH_SIZE];
	struct stat st;
	int rc = cgroup_of(0, path, sizeof(path));

	if (rc == 0 && stat(path, &st) < 0)
		rc = -errno;
	if (rc == 0)
		rc = cgroup_path_of(st.st_ino, path);
	/* The root itself is nobody's. */
	return rc == -EINVAL ? 0 : rc;
}

int warden_run_limit_probe(struct warden_place *place, const struct warden_message *request,
			   struct warden_result *ret)
{
	int rc = driver_open();

	if (rc == 0)
		rc = limits_probe(limits);
	if (rc == 0)
		rc = numbers_probe();
	return driver_close(rc);
}

int warden_run_limit_put(struct warden_place *place, const struct warden_message *request,
			 struct warden_result *ret)
{
	const struct warden_limit *r = (const void *)request->data;
	char path[LIMITS_PATH_SIZE];
	int rc = cgroup_path_of(r->cgroup, path);

	if (rc < 0)
		return rc;
	rc = driver_open();
	return driver_close(rc < 0 ? rc : limits_put(limits, r->gpu, path, r->bytes));
}

/* A process of root's is moved only if root has it in a slice, or is about to: `carve run` enters
 * its session's cgroup before it becomes the command. */
static int may_enter(pid_t pid)
{
	uid_t uid;

	return (process_user(pid, &uid) && uid != 0) || warden_slice_may_enter(pid) ? 0 : -EPERM;
}

int warden_run_limit_enter(struct warden_place *place, const struct warden_message *request,
			   struct warden_result *ret)
{
	const struct warden_limit_entry *r = (const void *)request->data;

	int rc = may_enter(r->pid);

	return rc < 0 ? rc
		      : cgroup_session_enter((struct process_id){.pid = r->pid, .birth = r->birth},
					     r->session);
}

int warden_run_limit_leave(struct warden_place *place, const struct warden_message *request,
			   struct warden_result *ret)
{
	const struct warden_limit_leave *r = (const void *)request->data;
	char path[LIMITS_PATH_SIZE];
	int rc = cgroup_path_of(r->cgroup, path);

	if (rc < 0)
		return rc == -ENOENT ? 0 : rc;
	const char *name = strrchr(path, '/') + 1;
	if (strncmp(name, CGROUP_SESSION, strlen(CGROUP_SESSION)) != 0)
		return -EPERM;
	return rmdir(path) == 0 || errno == ENOENT ? 0 : -errno;
}
