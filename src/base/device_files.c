#include "base/device_files.h"

#include <stdio.h>
#include <stdlib.h>

/* The directory of a simulated host; NULL: this is none, or it has no device files. */
static const char *simulated_dir(void)
{
	return secure_getenv("SIMGPU_HOST");
}

static int path_write(char ret[static DEVICE_FILE_PATH_SIZE], const char *name)
{
	const char *host = simulated_dir();

	return snprintf(ret, DEVICE_FILE_PATH_SIZE, "%s/%s", host ? host : "", name);
}

bool device_file_path(uint32_t device, char ret[static DEVICE_FILE_PATH_SIZE])
{
	/* In the order of enum device_file. */
	static const char *const common[] = {"dev/nvidiactl", "dev/nvidia-uvm",
					     "dev/nvidia-uvm-tools"};
	char name[32];

	if (device >= DEVICE_FILES_END)
		return false;
	if (device >= DEVICE_FILE_CONTROL)
		return path_write(ret, common[device - DEVICE_FILE_CONTROL]) <
		       DEVICE_FILE_PATH_SIZE;
	snprintf(name, sizeof(name), "dev/nvidia%u", device);
	return path_write(ret, name) < DEVICE_FILE_PATH_SIZE;
}

bool device_file_is(const struct stat *st)
{
	return S_ISCHR(st->st_mode) || (simulated_dir() && S_ISREG(st->st_mode));
}

const char *device_files_pattern(char ret[static DEVICE_FILE_PATH_SIZE])
{
	(void)path_write(ret, "dev/nvidia*");
	return ret;
}
