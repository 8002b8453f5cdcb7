/* Making a slice's mount namespace. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/file.h"
#include "base/macros.h"
#include "slice/driver_files.h"
#include "slice/driver_find.h"
#include "slice/isolation.h"
#include "slice/namespace.h"
#include "slice/places.h"

/* The umask of the user may keep others from new files; all of the slice's users read these. */
#define SLICE_UMASK 022

static const char *const slice_dirs[] = {ATTACH_SLICE_DIRS};

static int path_join(char *buf, size_t size, const char *dir, const char *name)
{
	return snprintf(buf, size, "%s/%s", dir, name) < (int)size ? 0 : -ENAMETOOLONG;
}

static int mount_error(const char *what, int error, bool user, struct error *err)
{
	char why[128];

	error_set(err, EXIT_CODE_NOT_PERMITTED, "cannot isolate by mounting, at %.200s: %s", what,
		  namespace_why(error, user, why, sizeof(why)));
	error_hint(err, "--isolation preload needs no rights; `carve check` tells what it misses");
	return -EXIT_CODE_NOT_PERMITTED;
}

static int namespace_error(int error, bool user, struct error *err)
{
	char why[128];

	error_set(err, EXIT_CODE_NOT_PERMITTED, "cannot isolate by mounting: %s",
		  namespace_why(error, user, why, sizeof(why)));
	error_hint(err, "--isolation preload needs no rights; `carve check` tells what it misses");
	return -EXIT_CODE_NOT_PERMITTED;
}

static bool is_empty_directory(const char *path)
{
	DIR *dir = opendir(path);
	int entries = 0;

	if (!dir)
		return false;
	while (readdir(dir) && entries < 3) // NOLINT(concurrency-mt-unsafe): nobody else has it
		entries++;
	closedir(dir);
	return entries == 2; /* itself and its parent */
}

static int tmpfs_mount(const char *path)
{
	return mount("carve", path, "tmpfs", MS_NOSUID | MS_NODEV, "mode=0755,size=64k") < 0
		       ? -errno
		       : 0;
}

/* A private place for what is of no concern outside, gone with the last process of the slice:
 * in /run, or over an empty directory that nobody misses. */
static int slice_dir_make(struct isolation_mount *mount)
{
	int first = mkdir(slice_dirs[0], 0755) < 0 && errno != EEXIST ? -errno : 0;

	snprintf(mount->top, sizeof(mount->top), "%s", slice_dirs[0]);
	snprintf(mount->dir, sizeof(mount->dir), "%s", slice_dirs[0]);
	if (first == 0)
		first = tmpfs_mount(mount->top);
	for (size_t i = 1; first < 0 && i < ARRAY_SIZE(slice_dirs); i++) {
		snprintf(mount->dir, sizeof(mount->dir), "%s", slice_dirs[i]);
		snprintf(mount->top, sizeof(mount->top), "%.*s",
			 (int)(strrchr(slice_dirs[i], '/') - slice_dirs[i]), slice_dirs[i]);
		if (is_empty_directory(mount->top) && tmpfs_mount(mount->top) == 0)
			return mkdir(mount->dir, 0755) < 0 ? -errno : 0;
	}
	return first;
}

/* Another name for a file; made where it does not exist. */
static int file_bind(const char *from, const char *to)
{
	cleanup_close int point = open(to, O_RDONLY | O_CREAT | O_CLOEXEC, 0444);

	if (point < 0 && errno != EACCES)
		return -errno;
	return mount(from, to, NULL, MS_BIND, NULL) < 0 ? -errno : 0;
}

/* The file stays to be had in the slice's directory, by which *path names it from now on. */
static int file_keep(const struct isolation_mount *mount, const char *name, char path[PATH_MAX])
{
	char own[PATH_MAX];
	int rc = path_join(own, sizeof(own), mount->dir, name);

	if (rc == 0)
		rc = file_bind(path, own);
	if (rc == 0)
		snprintf(path, PATH_MAX, "%s", own);
	return rc;
}

/* The driver that programs are to end in, and our libraries where every user can read them. */
static int files_keep(const struct isolation_mount *mount, struct places *places,
		      struct driver_libs *driver, bool user, struct error *err)
{
	const struct {
		const char *name;
		char *path;
	} kept[] = {{ISOLATION_OWN_CUDA, driver->cuda},
		    {ISOLATION_OWN_NVML, driver->nvml},
		    {ISOLATION_FRONT_CUDA, places->front_cuda},
		    {ISOLATION_FRONT_NVML, places->front_nvml}};
	char front[ATTACH_SLICE_PATH_SIZE + sizeof(ISOLATION_FRONT_DIR)];
	int rc = path_join(front, sizeof(front), mount->dir, ISOLATION_FRONT_DIR);

	if (rc == 0 && mkdir(front, 0755) < 0)
		rc = -errno;
	if (rc < 0)
		return mount_error(mount->dir, -rc, user, err);
	for (size_t i = 0; i < ARRAY_SIZE(kept); i++) {
		rc = *kept[i].path ? file_keep(mount, kept[i].name, kept[i].path) : 0;
		if (rc < 0)
			return mount_error(kept[i].path, -rc, user, err);
	}
	return 0;
}

static int files_cover(const struct driver_files *files, const struct places *places, bool user,
		       struct error *err)
{
	for (size_t i = 0; i < files->count; i++) {
		const char *front = files->file[i].nvml ? places->front_nvml : places->front_cuda;

		if (mount(front, files->file[i].path, NULL, MS_BIND, NULL) < 0)
			return mount_error(files->file[i].path, errno, user, err);
	}
	return 0;
}

static int mount_files(struct isolation_mount *mount, struct places *places,
		       struct driver_libs *driver, const struct driver_files *files,
		       struct error *err)
{
	bool user = mount->user;
	enum namespace_form form;
	int rc = namespace_enter(user, &form);

	if (rc < 0)
		return namespace_error(-rc, user, err);
	mount->user = form == NAMESPACE_USER;
	rc = slice_dir_make(mount);
	if (rc < 0)
		return mount_error(slice_dirs[0], -rc, user, err);
	struct places kept = *places;

	rc = files_keep(mount, &kept, driver, user, err);
	if (rc < 0 || (rc = files_cover(files, &kept, user, err)) < 0)
		return rc;
	/* A process that leaves the namespace still finds what it preloads, if it can be there. */
	if (!places_serve_everyone(places))
		*places = kept;
	return 0;
}

int isolation_mount(struct isolation_mount *mount, struct places *places,
		    struct driver_libs *driver, struct error *err)
{
	struct driver_files files = {0};
	int rc = driver_files_find(&files, driver, places, err);

	if (rc < 0)
		return rc;
	mode_t before = umask(SLICE_UMASK);
	if (!driver->cuda[0] && !driver->nvml[0])
		rc = error_set(err, EXIT_CODE_FAILED,
			       "cannot isolate by mounting: there is no driver here to mount over");
	else
		rc = mount_files(mount, places, driver, &files, err);
	umask(before);
	driver_files_clear(&files);
	return rc;
}

static int mount_readonly(const struct isolation_mount *mounted)
{
	return mount(NULL, mounted->top, NULL, MS_REMOUNT | MS_RDONLY | MS_NOSUID | MS_NODEV, NULL);
}

int isolation_mount_environment(const struct isolation_mount *mount, struct error *err)
{
	static const char *const names[] = {ATTACH_ENV_SESSION, ATTACH_ENV_STAMP, ATTACH_ENV_SOCKET,
					    ATTACH_ENV_CUDA, ATTACH_ENV_NVML};
	char text[ATTACH_SLICE_FILE_SIZE], path[PATH_MAX];
	size_t length = 0;

	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		const char *value = secure_getenv(names[i]);

		if (value && length < sizeof(text))
			length += (size_t)snprintf(text + length, sizeof(text) - length, "%s=%s\n",
						   names[i], value);
	}
	int rc = length < sizeof(text)
			 ? path_join(path, sizeof(path), mount->dir, ATTACH_SLICE_FILE)
			 : -ENAMETOOLONG;
	if (rc < 0)
		return mount_error(mount->dir, -rc, mount->user, err);
	cleanup_close int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
	if (fd < 0 || fchmod(fd, 0444) < 0 || (rc = write_all(fd, text, length)) < 0)
		return mount_error(path, rc ? -rc : errno, mount->user, err);
	close_fd(&fd); /* a file open for writing keeps the mount from becoming read-only */
	if (mount_readonly(mount) < 0)
		return mount_error(path, errno, mount->user, err);
	return 0;
}
