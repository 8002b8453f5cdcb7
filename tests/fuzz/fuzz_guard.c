/* A request to the guard and an answer of it. A request that passes the check names a process that
 * is neither the first one nor a group, a user, and a signal that ends. */
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/cgroup.h"
#include "proto/cgroup_limits.h"
#include "proto/guard.h"
#include "proto/instances.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void request_look(const uint8_t *data, size_t size)
{
	struct guard_request request;

	memset(&request, 0xff, sizeof(request));
	memcpy(&request, data, size < sizeof(request) ? size : sizeof(request));
	if (guard_request_check(&request, size) != 0)
		return;
	if (size != sizeof(request) || request.op < GUARD_SIGNAL || request.op > GUARD_FILE)
		abort();
	if (request.op <= GUARD_NAMESPACE && (request.pid <= 1 || !request.birth))
		abort();
	if (request.op == GUARD_FILE
		    ? request.file < GUARD_FILE_LOCK || request.file > GUARD_FILE_START
		    : request.file != 0)
		abort();
	if (request.op == GUARD_SIGNAL &&
	    ((request.signal != SIGTERM && request.signal != SIGKILL) ||
	     request.uid == (uint32_t)-1))
		abort();
}

static void reply_look(const uint8_t *data, size_t size)
{
	struct guard_reply reply;

	memset(&reply, 0xff, sizeof(reply));
	memcpy(&reply, data, size < sizeof(reply) ? size : sizeof(reply));
	if (guard_reply_check(&reply, size) == 0 && (size != sizeof(reply) || reply.error < 0))
		abort();
}

/* A request that passes names a place within a GPU, and no more profiles than there is room for. */
static void instances_look(const uint8_t *data, size_t size)
{
	struct instances_request request;
	struct instances_reply reply;

	memset(&request, 0xff, sizeof(request));
	memcpy(&request, data, size < sizeof(request) ? size : sizeof(request));
	if (instances_request_check(&request, size) == 0 &&
	    (size != sizeof(request) || request.op < INSTANCES_KINDS ||
	     request.op > INSTANCES_RENEW || request.count > INSTANCES_MOST ||
	     ((request.op == INSTANCES_MAKE || request.op == INSTANCES_REMOVE) &&
	      (!request.size || request.start + request.size > (int)INSTANCES_MOST))))
		abort();
	memset(&reply, 0xff, sizeof(reply));
	memcpy(&reply, data, size < sizeof(reply) ? size : sizeof(reply));
	if (instances_reply_check(&reply, size, INSTANCES_LIST) == 0 &&
	    (size != sizeof(reply) || reply.count > INSTANCES_MOST || reply.error < 0))
		abort();
}

/* One that passes names a cgroup by a path that leads nowhere else; what is made or removed is
 * called as carve calls it. */
static void limits_look(const uint8_t *data, size_t size)
{
	struct limits_request request;

	memset(&request, 0, sizeof(request));
	memcpy(&request, data, size < sizeof(request) ? size : sizeof(request));
	if (limits_request_check(&request, size) != 0 || request.op == LIMITS_PROBE)
		return;
	if (size != sizeof(request) || request.op > LIMITS_LEAVE || request.path[0] != '/' ||
	    strnlen(request.path, sizeof(request.path)) == sizeof(request.path) ||
	    strstr(request.path, "/../"))
		abort();
	if (request.op != LIMITS_PUT &&
	    strncmp(strrchr(request.path, '/') + 1, CGROUP_SESSION, strlen(CGROUP_SESSION)) != 0)
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	limits_look(data, size);
	instances_look(data, size);
	request_look(data, size);
	reply_look(data, size);
	return 0;
}
