/* Events between processes. They share a file in the host's directory, which two counters are
 * in: how often the event was recorded, and how many of these recordings are over. */
#include "cuda/event_ipc.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include "base/macros.h"
#include "cuda/context.h"
#include "cuda/event.h"
#include "cuda/handle.h"
#include "cuda/work.h"
#include "host/client.h"

/* How often who waits looks: first often, later seldom. */
#define LOOK_NS_MIN 20000u
#define LOOK_NS_MAX 1000000u

struct event_counters {
	_Atomic uint64_t recorded, over;
	_Atomic int pid; /* the process that recorded it last, as the host names it */
};

struct event_shared {
	struct event_counters *counters;
	uint64_t name[2]; /* random */
	bool owner;
};

struct ipc_event_handle {
	uint64_t name[2];
	int32_t pid; /* the exporter's, which may not open it */
};
_Static_assert(sizeof(struct ipc_event_handle) <= sizeof(CUipcEventHandle), "fits the handle");

static bool path_format(const uint64_t name[2], char path[PATH_MAX])
{
	const char *host = client_host_directory();
	int n = host ? snprintf(path, PATH_MAX, "%s/event-%016" PRIx64 "%016" PRIx64, host, name[0],
				name[1])
		     : -1;

	return n > 0 && n < PATH_MAX;
}

static struct event_shared *shared_open(const uint64_t name[2], bool make)
{
	char path[PATH_MAX];
	struct event_shared *shared = calloc(1, sizeof(*shared));
	int flags = O_RDWR | O_CLOEXEC | O_NOFOLLOW | (make ? O_CREAT | O_EXCL : 0);
	int fd = shared && path_format(name, path) ? open(path, flags, 0600) : -1;

	if (fd >= 0 && (!make || ftruncate(fd, sizeof(struct event_counters)) == 0)) {
		void *at = mmap(NULL, sizeof(struct event_counters), PROT_READ | PROT_WRITE,
				MAP_SHARED, fd, 0);

		shared->counters = at == MAP_FAILED ? NULL : at;
	}
	if (fd >= 0)
		close(fd);
	if (!shared || !shared->counters) {
		free(shared);
		return NULL;
	}
	memcpy(shared->name, name, sizeof(shared->name));
	shared->owner = make;
	return shared;
}

struct event_shared *event_shared_make(void)
{
	uint64_t name[2];

	if (getrandom(name, sizeof(name), 0) != sizeof(name))
		return NULL;
	return shared_open(name, true);
}

void event_shared_close(struct event_shared *shared)
{
	char path[PATH_MAX];

	if (!shared)
		return;
	/* Those who have opened it keep it. A forked child's copy is not the event's. */
	if (shared->owner && client_check(driver.client) == 0 && path_format(shared->name, path))
		unlink(path);
	munmap(shared->counters, sizeof(*shared->counters));
	free(shared);
}

void event_shared_recorded(struct event_shared *shared)
{
	atomic_store(&shared->counters->pid, client_pid(driver.client));
	atomic_fetch_add(&shared->counters->recorded, 1);
}

void event_shared_over(struct event_shared *shared)
{
	atomic_fetch_add(&shared->counters->over, 1);
}

uint64_t event_shared_target(const struct event_shared *shared)
{
	return atomic_load(&shared->counters->recorded);
}

/* Nobody waits for a process that is gone. A process that sees other PIDs than the host cannot
 * tell. */
static bool recorder_is_gone(const struct event_shared *shared)
{
	return client_pid(driver.client) == getpid() &&
	       kill(atomic_load(&shared->counters->pid), 0) < 0 && errno == ESRCH;
}

bool event_shared_reached(const struct event_shared *shared, uint64_t target)
{
	return atomic_load(&shared->counters->over) >= target || recorder_is_gone(shared);
}

void event_shared_wait(const struct event_shared *shared, uint64_t target, const struct lane *lane)
{
	uint64_t ns = LOOK_NS_MIN;

	while (!event_shared_reached(shared, target) && !(lane && lane_is_aborting(lane)) &&
	       client_check(driver.client) == 0) {
		nanosleep(&(struct timespec){.tv_nsec = (long)ns}, NULL);
		ns = MIN(ns * 2, LOOK_NS_MAX);
	}
}

CUresult cuIpcGetEventHandle(CUipcEventHandle *handle, CUevent event)
{
	API_BEGIN();
	if (!handle)
		return CUDA_ERROR_INVALID_VALUE;
	if (!handle_is(event, HANDLE_EVENT) || !event->shared)
		return CUDA_ERROR_INVALID_HANDLE;
	struct ipc_event_handle ipc = {.pid = client_pid(driver.client)};
	memcpy(ipc.name, event->shared->name, sizeof(ipc.name));
	*handle = (CUipcEventHandle){{0}};
	memcpy(handle, &ipc, sizeof(ipc));
	return CUDA_SUCCESS;
}

CUresult cuIpcOpenEventHandle(CUevent *event, CUipcEventHandle handle)
{
	struct ipc_event_handle ipc;

	API_BEGIN_CONTEXT(ctx);
	if (!event)
		return CUDA_ERROR_INVALID_VALUE;
	memcpy(&ipc, &handle, sizeof(ipc));
	if (ipc.pid == client_pid(driver.client))
		return CUDA_ERROR_INVALID_CONTEXT;
	struct event_shared *shared = shared_open(ipc.name, false);
	if (!shared)
		return CUDA_ERROR_INVALID_HANDLE;
	return event_make(ctx, CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING, shared, event);
}
