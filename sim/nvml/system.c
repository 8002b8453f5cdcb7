/* The system as a whole: versions, and names of processes. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "nvml/library.h"

nvmlReturn_t nvmlSystemGetDriverVersion(char *version, unsigned int length)
{
	struct client *c;
	nvmlReturn_t r = library_enter(__func__, version, &c);

	return r == NVML_SUCCESS ? library_text(client_host(c)->driver_version, version, length)
				 : r;
}

/* The library's version is its CUDA generation's number and the driver's version. */
nvmlReturn_t nvmlSystemGetNVMLVersion(char *version, unsigned int length)
{
	struct client *c;
	nvmlReturn_t r = library_enter(__func__, version, &c);
	char text[NVML_SYSTEM_NVML_VERSION_BUFFER_SIZE];

	if (r != NVML_SUCCESS)
		return r;
	snprintf(text, sizeof(text), "%d.%s", client_host(c)->cuda_driver_version / 1000,
		 client_host(c)->driver_version);
	return library_text(text, version, length);
}

nvmlReturn_t nvmlSystemGetCudaDriverVersion(int *version)
{
	struct client *c;
	nvmlReturn_t r = library_enter(__func__, version, &c);

	if (r == NVML_SUCCESS)
		*version = client_host(c)->cuda_driver_version;
	return r;
}

nvmlReturn_t nvmlSystemGetCudaDriverVersion_v2(int *version)
{
	return nvmlSystemGetCudaDriverVersion(version);
}

/* A process is named by its command line's first word; where it has none, by its kernel name. */
nvmlReturn_t process_name(unsigned int pid, char *name, size_t size)
{
	char path[64];
	cleanup_close int fd = -1;
	ssize_t n;

	snprintf(path, sizeof(path), "/proc/%u/cmdline", pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return NVML_ERROR_NOT_FOUND;
	n = read(fd, name, size - 1);
	if (n > 0) {
		name[n] = '\0';
		return NVML_SUCCESS;
	}
	snprintf(path, sizeof(path), "/proc/%u/comm", pid);
	n = file_read(path, name, size);
	if (n < 0)
		return NVML_ERROR_NOT_FOUND;
	name[strcspn(name, "\n")] = '\0';
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlSystemGetProcessName(unsigned int pid, char *name, unsigned int length)
{
	struct client *c;
	nvmlReturn_t r = library_enter(__func__, name, &c);

	if (r != NVML_SUCCESS)
		return r;
	return length ? process_name(pid, name, length) : NVML_ERROR_INVALID_ARGUMENT;
}
