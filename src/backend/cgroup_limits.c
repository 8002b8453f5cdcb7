#include "backend/cgroup_limits.h"

#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "backend/cgroup_look.h"
#include "backend/gpus_private.h"
#include "base/cgroup.h"
#include "base/nvml_functions.h"
#include "proto/warden.h"
#include "proto/warden_limits.h"

struct limits {
	const struct gpus *gpus;
	__typeof__(nvmlDeviceSetMemoryLimits_v1) *set;
	__typeof__(nvmlDeviceGetMemoryLimits_v1) *get;
	struct limits_asking asking;
	bool asks; /* else this process does it itself */
};

int limits_open(const struct gpus *gpus, const struct limits_asking *asking, struct limits **ret)
{
	struct limits *limits = calloc(1, sizeof(*limits));

	if (!limits)
		return -ENOMEM;
	limits->gpus = gpus;
	limits->asks = asking;
	if (asking)
		limits->asking = *asking;
	limits->set = gpus_function(gpus, "nvmlDeviceSetMemoryLimits_v1");
	limits->get = gpus_function(gpus, "nvmlDeviceGetMemoryLimits_v1");
	if (!limits->set || !limits->get) {
		free(limits);
		return -ENOTSUP;
	}
	*ret = limits;
	return 0;
}

void limits_close(struct limits *limits)
{
	free(limits);
}

static int status_errno(nvmlReturn_t status)
{
	return status == NVML_ERROR_FUNCTION_NOT_FOUND ? -ENOTSUP : gpus_errno(status);
}

/* ---- by the warden ------------------------------------------------------------------------ */

static int ask(const struct limits *limits, enum warden_operation operation, const void *request,
	       size_t size)
{
	return limits->asking.ask(limits->asking.context, (uint16_t)operation, request, size, NULL,
				  0);
}

/* The kernel's number of a cgroup. 0 or -errno. */
static int number_of(const char *path, uint64_t *ret)
{
	struct stat st;

	if (stat(path, &st) < 0)
		return -errno;
	*ret = st.st_ino;
	return 0;
}

/* ---- questions that everybody may ask ---------------------------------------------------- */

int limits_get(const struct limits *limits, uint32_t gpu, const char *path, uint64_t *ret)
{
	nvmlGetMemoryLimits_v1_t found = {.nameSpace = path};
	nvmlDevice_t device;
	int rc = gpus_device(limits->gpus, gpu, &device);

	if (rc < 0)
		return rc;
	nvmlReturn_t status = limits->get(device, &found);
	/* A cgroup without one is answered so. */
	if (status == NVML_ERROR_NOT_SUPPORTED)
		found.hardLimit = NVML_DEVICE_MEMORY_LIMIT_MAX;
	else if (status != NVML_SUCCESS)
		return status_errno(status);
	*ret = found.hardLimit;
	return 0;
}

/* ---- changes ----------------------------------------------------------------------------- */

int limits_put(const struct limits *limits, uint32_t gpu, const char *path, uint64_t bytes)
{
	struct warden_limit request = {.gpu = gpu, .bytes = bytes};
	/* The soft limit would promise memory that carve itself keeps the books of. */
	nvmlSetMemoryLimits_v1_t wanted = {.nameSpace = path, .hardLimit = bytes};
	nvmlDevice_t device;

	int rc = limits->asks ? number_of(path, &request.cgroup) : 0;
	if (limits->asks && rc == 0)
		rc = ask(limits, WARDEN_LIMIT_PUT, &request, sizeof(request));
	if (limits->asks)
		return rc;
	rc = gpus_device(limits->gpus, gpu, &device);
	return rc < 0 ? rc : status_errno(limits->set(device, &wanted));
}

/* Takes away the limit that this daemon's own cgroup does not have. */
int limits_probe(const struct limits *limits)
{
	char path[PATH_MAX];
	uint64_t bytes = 0;

	if (limits->asks)
		return ask(limits, WARDEN_LIMIT_PROBE, NULL, 0);
	int rc = cgroup_of(0, path, sizeof(path));
	if (rc == 0)
		rc = limits_get(limits, 0, path, &bytes);
	if (rc < 0)
		return rc;
	rc = limits_put(limits, 0, path, bytes);
	/* The first GPU's MIG mode says nothing of the others. */
	return rc == -ENOTSUP && bytes == LIMIT_NO_BYTES ? 0 : rc;
}

int limits_enter(const struct limits *limits, struct process_id process, const char *session)
{
	struct warden_limit_entry request = {.pid = process.pid, .birth = process.birth};

	if (!limits->asks)
		return cgroup_session_enter(process, session);
	snprintf(request.session, sizeof(request.session), "%s", session);
	return ask(limits, WARDEN_LIMIT_ENTER, &request, sizeof(request));
}

int limits_leave(const struct limits *limits, const char *path)
{
	struct warden_limit_leave request;
	int rc = limits->asks ? number_of(path, &request.cgroup) : 0;

	if (limits->asks && rc == 0)
		return ask(limits, WARDEN_LIMIT_LEAVE, &request, sizeof(request));
	return rc == -ENOENT || rmdir(path) == 0 || errno == ENOENT ? 0 : rc < 0 ? rc : -errno;
}
