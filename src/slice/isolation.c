#include "slice/isolation.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/capability.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/error.h"
#include "base/file.h"
#include "base/macros.h"
#include "base/trust.h"
#include "slice/driver_find.h"
#include "slice/namespace.h"
#include "slice/places.h"

static const char *const slice_dirs[] = {ATTACH_SLICE_DIRS};

int isolation_parse(const char *text, enum isolation *ret, struct error *err)
{
	if (!text) {
		*ret = geteuid() == 0 ? ISOLATION_MOUNT : ISOLATION_PRELOAD;
	} else if (!strcmp(text, "preload")) {
		*ret = ISOLATION_PRELOAD;
	} else if (!strcmp(text, "mount")) {
		*ret = ISOLATION_MOUNT;
	} else {
		error_set(err, EXIT_CODE_USAGE, "--isolation: '%.64s' is no way to isolate", text);
		error_hint(err, "mount (root's default) or preload");
		return -EXIT_CODE_USAGE;
	}
	return 0;
}

/* ---- trying it --------------------------------------------------------------------------- */

/* In the child. */
_Noreturn static void try_send(int fd, struct isolation_mount *mount, const struct places *places,
			       const struct driver_libs *driver)
{
	struct places own_places = *places;
	struct driver_libs own_driver = *driver;
	struct error err = {0};

	isolation_mount(mount, &own_places, &own_driver, &err);
	write_all(fd, &err, sizeof(err));
	write_all(fd, mount, sizeof(*mount));
	_exit(0);
}

static int try_error(int error, struct error *err)
{
	return error_set(err, EXIT_CODE_FAILED, "cannot try what --isolation mount does: %s",
			 strerrordesc_np(error));
}

int isolation_mount_try(struct isolation_mount *mount, const struct places *places,
			const struct driver_libs *driver, struct error *err)
{
	struct error failure;
	int fds[2], error = pipe2(fds, O_CLOEXEC) < 0 ? errno : 0;

	if (error)
		return try_error(error, err);
	cleanup_close int in = fds[0], out = fds[1];
	pid_t child = fork();
	if (child == 0)
		try_send(out, mount, places, driver);
	error = child < 0 ? errno : 0;
	close_fd(&out);
	bool told = child > 0 && read(in, &failure, sizeof(failure)) == sizeof(failure) &&
		    read(in, mount, sizeof(*mount)) == sizeof(*mount);
	if (child > 0)
		waitpid(child, NULL, 0);
	if (!told)
		return try_error(error ? error : EIO, err);
	if (!failure.code)
		return 0;
	*err = failure;
	return -failure.code;
}

static bool may_return(void)
{
	struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct data[2] = {0};

	return syscall(SYS_capget, &header, data) == 0 &&
	       data[CAP_SYS_ADMIN / 32].effective & 1u << CAP_SYS_ADMIN % 32 &&
	       data[CAP_SYS_CHROOT / 32].effective & 1u << CAP_SYS_CHROOT % 32;
}

int isolation_mount_or_not(struct isolation_mount *mount, struct places *places,
			   struct driver_libs *driver, struct error *err)
{
	struct places own_places = *places;
	struct driver_libs own_driver = *driver;
	cleanup_close int home = open("/proc/self/ns/mnt", O_RDONLY | O_CLOEXEC);
	cleanup_close int root = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
	cleanup_close int here = open(".", O_PATH | O_DIRECTORY | O_CLOEXEC);
	bool returns = home >= 0 && root >= 0 && here >= 0 && may_return();
	int rc = returns ? 0 : isolation_mount_try(mount, places, driver, err);

	if (rc == 0)
		rc = isolation_mount(mount, &own_places, &own_driver, err);
	if (rc == 0) {
		*places = own_places;
		*driver = own_driver;
		return 0;
	}
	/* Joining a namespace moves to its root. */
	if (returns && (setns(home, CLONE_NEWNS) < 0 || fchdir(root) < 0 || chroot(".") < 0 ||
			fchdir(here) < 0))
		abort(); /* a child before exec, and not where it should be */
	return rc;
}

/* ---- inside one -------------------------------------------------------------------------- */

/* The slice's directory, with *ret_fd its file, where that is not NULL; NULL: this is not in one.
 */
static const char *slice_dir_find(int *ret_fd)
{
	for (size_t i = 0; i < ARRAY_SIZE(slice_dirs); i++) {
		cleanup_close int fd = file_open_trusted(slice_dirs[i], ATTACH_SLICE_FILE);

		if (fd < 0)
			continue;
		if (ret_fd)
			*ret_fd = steal_fd(&fd);
		return slice_dirs[i];
	}
	return NULL;
}

bool isolation_mounted(void)
{
	return slice_dir_find(NULL) != NULL;
}

/* The file goes before the environment, as in the front (front/slice_file.h). */
static void environment_restore(int fd)
{
	char text[ATTACH_SLICE_FILE_SIZE + 1], *state;
	ssize_t n = read(fd, text, sizeof(text) - 1);

	if (n < 0)
		return;
	text[n] = '\0';
	for (char *line = strtok_r(text, "\n", &state); line; line = strtok_r(NULL, "\n", &state)) {
		char *value = strchr(line, '=');

		if (!value)
			continue;
		*value = '\0';
		// NOLINTNEXTLINE(concurrency-mt-unsafe): before there are threads
		setenv(line, value + 1, 1);
	}
}

void isolation_rejoin(struct places *places)
{
	cleanup_close int fd = -1;
	const char *dir = slice_dir_find(&fd);

	if (!dir)
		return;
	environment_restore(fd);
	if (places_serve_everyone(places))
		return;
	snprintf(places->front_cuda, sizeof(places->front_cuda), "%s/" ISOLATION_FRONT_CUDA, dir);
	snprintf(places->front_nvml, sizeof(places->front_nvml), "%s/" ISOLATION_FRONT_NVML, dir);
}

bool isolation_is_front(const char *path)
{
	for (size_t i = 0; i < ARRAY_SIZE(slice_dirs); i++) {
		size_t length = strlen(slice_dirs[i]);

		if (!strncmp(path, slice_dirs[i], length) &&
		    (!strcmp(path + length, "/" ISOLATION_FRONT_CUDA) ||
		     !strcmp(path + length, "/" ISOLATION_FRONT_NVML)))
			return true;
	}
	return false;
}

/* The driver's own file over ours, where ours lies over it. */
static int uncover(const char *dir, const char *front, const char *own, const char *driver)
{
	char front_path[PATH_MAX], own_path[PATH_MAX];
	struct stat ours, there;

	snprintf(front_path, sizeof(front_path), "%s/%s", dir, front);
	snprintf(own_path, sizeof(own_path), "%s/%s", dir, own);
	if (stat(front_path, &ours) < 0 || stat(driver, &there) < 0 ||
	    ours.st_dev != there.st_dev || ours.st_ino != there.st_ino)
		return 0;
	return mount(own_path, driver, NULL, MS_BIND, NULL) < 0 ? -errno : 0;
}

int isolation_leave(const char *const *cuda, const char *nvml, struct error *err)
{
	const char *dir = slice_dir_find(NULL);
	enum namespace_form form;
	char why[128];

	if (!dir)
		return 0;
	int rc = namespace_enter(true, &form);
	for (; rc == 0 && *cuda; cuda++)
		rc = uncover(dir, ISOLATION_FRONT_CUDA, ISOLATION_OWN_CUDA, *cuda);
	if (rc == 0)
		rc = uncover(dir, ISOLATION_FRONT_NVML, ISOLATION_OWN_NVML, nvml);
	if (rc == 0 &&
	    mount("carve", dir, "tmpfs", MS_NOSUID | MS_NODEV | MS_RDONLY, "size=4k") < 0)
		rc = -errno;
	if (rc == 0)
		return 0;
	error_set(err, EXIT_CODE_NOT_PERMITTED, "cannot leave the slice that this is in: %s",
		  namespace_why(-rc, true, why, sizeof(why)));
	error_hint(err, "run it outside of the slice, or in one of --isolation preload");
	return -EXIT_CODE_NOT_PERMITTED;
}
