/* The device files of NVIDIA's driver, which a program opens to reach the GPUs: /dev/nvidia0,
 * /dev/nvidiactl and the like. On a simulated host they are plain files in the directory `dev` of
 * the host, if somebody made that directory. libc only. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

/* A device: a GPU's minor number, or one of those that programs on all GPUs open. */
enum device_file {
	DEVICE_FILE_CONTROL = 256,
	DEVICE_FILE_UVM,
	DEVICE_FILE_UVM_TOOLS,
	DEVICE_FILES_END,
};
#define DEVICE_FILES_MINORS 256u

#define DEVICE_FILE_PATH_SIZE 160

/* Writes the path of the device. False: there is no such device number, or the path is too long. */
bool device_file_path(uint32_t device, char ret[static DEVICE_FILE_PATH_SIZE]);
/* Whether that is a device file: a character device, on a simulated host also a plain file. */
bool device_file_is(const struct stat *st);
/* Whether only some users may open it: others than its owner, its group and those of its access
 * list may not read and write it. */
static inline bool device_file_is_closed(const struct stat *st)
{
	return (st->st_mode & 6) != 6;
}
/* The pattern of all of them, for glob(3). */
const char *device_files_pattern(char ret[static DEVICE_FILE_PATH_SIZE]);
