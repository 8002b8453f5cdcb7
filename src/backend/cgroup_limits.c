#include "backend/cgroup_limits.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "backend/cgroup_look.h"
#include "backend/gpus_private.h"
#include "base/cgroup.h"
#include "base/error.h"
#include "base/file.h"
#include "base/nvml_functions.h"
#include "proto/cgroup_limits.h"

struct limits {
	const struct gpus *gpus;
	__typeof__(nvmlDeviceSetMemoryLimits_v1) *set;
	__typeof__(nvmlDeviceGetMemoryLimits_v1) *get;
	int link_fd; /* -1: this process does it itself */
};

int limits_open_link(const struct gpus *gpus, int link_fd, struct limits **ret)
{
	struct limits *limits = calloc(1, sizeof(*limits));

	if (!limits)
		return -ENOMEM;
	limits->gpus = gpus;
	limits->link_fd = link_fd;
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

/* ---- by another process ------------------------------------------------------------------ */

static int ask(const struct limits *limits, struct limits_request *request, const char *path)
{
	struct limits_reply reply;

	if (strlen(path) >= sizeof(request->path))
		return -ENAMETOOLONG;
	request->magic = LIMITS_MAGIC;
	request->version = LIMITS_VERSION;
	memcpy(request->path, path, strlen(path) + 1);
	struct pollfd readable = {.fd = limits->link_fd, .events = POLLIN};
	ssize_t n = send(limits->link_fd, request, sizeof(*request), MSG_NOSIGNAL);
	if (n < 0)
		return -EPIPE;
	/* The loop looks at the link, too, so it does not block. */
	do {
		(void)poll(&readable, 1, -1);
		n = recv(limits->link_fd, &reply, sizeof(reply), MSG_TRUNC);
	} while (n < 0 && (errno == EINTR || errno == EAGAIN));
	return n <= 0 || limits_reply_check(&reply, (size_t)n, request->op) < 0 ? -EPIPE
										: -reply.error;
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
	struct limits_request request = {.op = LIMITS_PUT, .gpu = gpu, .hard = bytes};
	/* The soft limit would promise memory that carve itself keeps the books of. */
	nvmlSetMemoryLimits_v1_t wanted = {.nameSpace = path, .hardLimit = bytes};
	nvmlDevice_t device;

	if (limits->link_fd >= 0)
		return ask(limits, &request, path);
	int rc = gpus_device(limits->gpus, gpu, &device);
	return rc < 0 ? rc : status_errno(limits->set(device, &wanted));
}

/* Takes away the limit that this daemon's own cgroup does not have. */
int limits_probe(const struct limits *limits)
{
	struct limits_request request = {.op = LIMITS_PROBE};
	char path[PATH_MAX];
	uint64_t bytes = 0;

	if (limits->link_fd >= 0)
		return ask(limits, &request, "");
	int rc = cgroup_of(0, path, sizeof(path));
	if (rc == 0)
		rc = limits_get(limits, 0, path, &bytes);
	if (rc < 0)
		return rc;
	rc = limits_put(limits, 0, path, bytes);
	/* The first GPU's MIG mode says nothing of the others. */
	return rc == -ENOTSUP && bytes == LIMIT_NO_BYTES ? 0 : rc;
}

static int process_put(struct process_id process, const char *path)
{
	char text[32];
	cleanup_close int pidfd = process_open(process);
	if (pidfd < 0)
		return pidfd;
	snprintf(text, sizeof(text), "%d", (int)process.pid);
	return cgroup_write(path, "cgroup.procs", text);
}

int limits_enter(const struct limits *limits, struct process_id process, const char *path)
{
	struct limits_request request = {
		.op = LIMITS_ENTER, .pid = process.pid, .birth = process.birth};
	char own[LIMITS_PATH_SIZE];

	if (limits->link_fd >= 0)
		return ask(limits, &request, path);
	int rc = cgroup_of_process(process, own);
	if (rc < 0)
		return rc;
	size_t length = strlen(own);
	if (!strcmp(own, path))
		return 0;
	if (strncmp(own, path, length) != 0 || path[length] != '/' ||
	    strchr(path + length + 1, '/'))
		return -EINVAL;
	bool made = mkdir(path, 0755) == 0;
	if (!made && errno != EEXIST)
		return -errno;
	rc = process_put(process, path);
	if (rc < 0 && made)
		(void)rmdir(path);
	return rc;
}

int limits_leave(const struct limits *limits, const char *path)
{
	struct limits_request request = {.op = LIMITS_LEAVE};

	if (limits->link_fd >= 0)
		return ask(limits, &request, path);
	return rmdir(path) == 0 || errno == ENOENT ? 0 : -errno;
}

/* ---- the other end of the link ----------------------------------------------------------- */

static bool is_in_cgroups(const char *path)
{
	char root[LIMITS_PATH_SIZE], real[PATH_MAX];

	if (cgroup_mount(root, sizeof(root)) < 0)
		return false;
	size_t length = strlen(root);
	if (strncmp(path, root, length) != 0 || path[length] != '/')
		return false;
	/* No link leads out of it. A cgroup that is gone has no path. */
	return !realpath(path, real) || !strcmp(real, path);
}

static int answer(const struct limits *limits, const struct limits_request *r)
{
	if (r->op != LIMITS_PROBE && !is_in_cgroups(r->path))
		return -EINVAL;
	switch ((enum limits_op)r->op) {
	case LIMITS_PROBE:
		return limits_probe(limits);
	case LIMITS_PUT:
		return limits_put(limits, r->gpu, r->path, r->hard);
	case LIMITS_ENTER:
		return limits_enter(limits, (struct process_id){r->pid, r->birth}, r->path);
	case LIMITS_LEAVE:
		return limits_leave(limits, r->path);
	}
	return -EOPNOTSUPP;
}

/* The driver is open for as long as one answer takes: a change of a GPU's mode needs it closed. */
static int serve_one(struct gpus **gpus, struct limits **limits, const struct limits_request *r)
{
	struct error ignored = {0};
	int rc = 0;

	if (*gpus)
		gpus_take_up(*gpus);
	else
		rc = gpus_open(gpus, &ignored);
	if (rc < 0)
		return rc;
	if (!*limits)
		rc = limits_open_link(*gpus, -1, limits);
	if (rc == 0)
		rc = answer(*limits, r);
	gpus_let_go(*gpus);
	return rc;
}

void limits_serve(int link_fd)
{
	struct gpus *gpus = NULL;
	struct limits *limits = NULL;
	struct limits_request request;

	/* The worker sees who is in the cgroups that are made. */
	umask(022);
	for (;;) {
		struct limits_reply reply = {.magic = LIMITS_MAGIC, .version = LIMITS_VERSION};
		ssize_t n = recv(link_fd, &request, sizeof(request), MSG_TRUNC);

		if (n < 0 && errno == EINTR)
			continue;
		int rc = n <= 0 ? -EPROTO : limits_request_check(&request, (size_t)n);
		if (rc == -EPROTO)
			return; // NOLINT(clang-analyzer-unix.Malloc): the process ends
		if (rc == 0)
			rc = serve_one(&gpus, &limits, &request);
		reply.op = request.op;
		reply.error = -rc;
		if (send(link_fd, &reply, sizeof(reply), MSG_NOSIGNAL) < 0)
			return; // NOLINT(clang-analyzer-unix.Malloc): likewise
	}
}
