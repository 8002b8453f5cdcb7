#include "cli/isolation.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/file.h"
#include "base/macros.h"
#include "cli/driver_find.h"
#include "cli/places.h"
#include "proto/attach.h"

int isolation_parse(const char *text, enum isolation *ret, struct error *err)
{
	if (!text || !strcmp(text, "preload")) {
		*ret = ISOLATION_PRELOAD;
	} else if (!strcmp(text, "mount")) {
		*ret = ISOLATION_MOUNT;
	} else {
		error_set(err, EXIT_CODE_USAGE, "--isolation: '%.64s' is no way to isolate", text);
		error_hint(err, "preload, or as root mount");
		return -EXIT_CODE_USAGE;
	}
	return 0;
}

bool isolation_mount_possible(const char **ret_why)
{
	*ret_why = "only root may mount";
	return geteuid() == 0;
}

bool isolation_mounted(void)
{
	return access(ATTACH_SLICE_FILE, F_OK) == 0;
}

static int mount_error(const char *what, struct error *err)
{
	int error = errno;

	error_set(err, EXIT_CODE_RUN_FAILED, "--isolation mount: cannot mount %.300s: %s", what,
		  strerrordesc_np(error));
	error_hint(err, "--isolation preload needs no rights");
	return -EXIT_CODE_RUN_FAILED;
}

/* A private place for what is of no concern outside, gone with the last process of the slice. */
static int namespace_enter(struct error *err)
{
	if (mkdir(ATTACH_SLICE_DIR, 0755) < 0 && errno != EEXIST)
		return mount_error(ATTACH_SLICE_DIR, err);
	if (unshare(CLONE_NEWNS) < 0)
		return mount_error("a namespace", err);
	/* What the host mounts later still shows here; what is mounted here does not show there. */
	if (mount(NULL, "/", NULL, MS_REC | MS_SLAVE, NULL) < 0)
		return mount_error("/", err);
	if (mount("carve", ATTACH_SLICE_DIR, "tmpfs", MS_NOSUID | MS_NODEV, "mode=0755,size=64k"))
		return mount_error(ATTACH_SLICE_DIR, err);
	return 0;
}

/* `front` over `driver`, whose own file stays at `own`; its path becomes that one. */
static int library_cover(const char *front, char driver[PATH_MAX], const char *own,
			 struct error *err)
{
	cleanup_close int point = open(own, O_WRONLY | O_CREAT | O_CLOEXEC, 0444);

	if (point < 0 || mount(driver, own, NULL, MS_BIND, NULL) < 0)
		return mount_error(driver, err);
	if (mount(front, driver, NULL, MS_BIND, NULL) < 0)
		return mount_error(driver, err);
	snprintf(driver, PATH_MAX, "%s", own);
	return 0;
}

int isolation_mount(const struct places *places, struct driver_libs *driver, struct error *err)
{
	if (!driver->cuda[0] || !driver->nvml[0])
		return error_set(err, EXIT_CODE_RUN_FAILED,
				 "--isolation mount: there is no driver here to lie over");
	int rc = namespace_enter(err);
	if (rc < 0)
		return rc;
	rc = library_cover(places->front_cuda, driver->cuda, ATTACH_SLICE_DIR "/libcuda.so.1", err);
	if (rc < 0)
		return rc;
	return library_cover(places->front_nvml, driver->nvml,
			     ATTACH_SLICE_DIR "/libnvidia-ml.so.1", err);
}

void isolation_environment_restore(void)
{
	char text[ATTACH_SLICE_FILE_SIZE + 1], *state;

	if (file_read(ATTACH_SLICE_FILE, text, sizeof(text)) < 0)
		return;
	for (char *line = strtok_r(text, "\n", &state); line; line = strtok_r(NULL, "\n", &state)) {
		char *value = strchr(line, '=');

		if (!value)
			continue;
		*value = '\0';
		setenv(line, value + 1, 0);
	}
}

int isolation_mount_environment(struct error *err)
{
	static const char *const names[] = {ATTACH_ENV_SESSION, ATTACH_ENV_SOCKET, ATTACH_ENV_CUDA,
					    ATTACH_ENV_NVML};
	char text[ATTACH_SLICE_FILE_SIZE];
	size_t length = 0;

	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		const char *value = getenv(names[i]);

		if (value && length < sizeof(text))
			length += (size_t)snprintf(text + length, sizeof(text) - length, "%s=%s\n",
						   names[i], value);
	}
	errno = ENAMETOOLONG; /* unless one of the calls below says another reason */
	cleanup_close int fd = open(ATTACH_SLICE_FILE, O_WRONLY | O_CREAT | O_CLOEXEC, 0444);
	if (fd < 0 || length >= sizeof(text) || write_all(fd, text, length) < 0)
		return mount_error(ATTACH_SLICE_FILE, err);
	close_fd(&fd); /* what is open for writing keeps the mount from becoming read-only */
	if (mount(NULL, ATTACH_SLICE_DIR, NULL, MS_REMOUNT | MS_RDONLY | MS_NOSUID | MS_NODEV,
		  NULL) < 0)
		return mount_error(ATTACH_SLICE_FILE, err);
	return 0;
}
