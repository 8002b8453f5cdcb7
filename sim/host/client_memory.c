#include <errno.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/macros.h"
#include "host/client_private.h"

void client_sleep(uint64_t ns)
{
	struct timespec left = {.tv_sec = (time_t)(ns / 1000000000u),
				.tv_nsec = (long)(ns % 1000000000u)};

	while (ns && nanosleep(&left, &left) < 0 && errno == EINTR)
		;
}

static int reserve(struct client *c, struct wire_memory_reserve *request, uint64_t *ret_id)
{
	struct wire_memory_reply reply = {0};
	int n = client_call(c, request, sizeof(*request), -1, &reply, sizeof(reply), NULL);

	client_sleep(reply.delay_ns);
	if (n < 0)
		return n;
	*ret_id = reply.id;
	return 0;
}

int client_memory_reserve(struct client *c, wire_device device, enum wire_memory kind,
			  uint64_t bytes, uint64_t *ret_id)
{
	struct wire_memory_reserve request = {.head.type = WIRE_MEMORY_RESERVE,
					      .device = device,
					      .kind = (uint16_t)kind,
					      .bytes = bytes};

	return reserve(c, &request, ret_id);
}

int client_memory_reserve_unfailing(struct client *c, wire_device device, enum wire_memory kind,
				    uint64_t bytes, uint64_t *ret_id)
{
	struct wire_memory_reserve request = {.head.type = WIRE_MEMORY_RESERVE,
					      .device = device,
					      .kind = (uint16_t)kind,
					      .faults_taken = 1,
					      .bytes = bytes};

	return reserve(c, &request, ret_id);
}

int client_memory_backing(struct client *c, uint64_t bytes)
{
	struct wire_memory_reserve request = {.head.type = WIRE_MEMORY_BACKING, .bytes = bytes};
	struct wire_memory_reply reply;
	int fd = -1;
	int n = client_call(c, &request, sizeof(request), -1, &reply, sizeof(reply), &fd);

	return n < 0 ? n : fd < 0 ? -EPROTO : fd;
}

int client_memory_free(struct client *c, uint64_t id)
{
	struct wire_memory_ref request = {.head.type = WIRE_MEMORY_FREE, .id = id};
	struct wire_memory_reply reply;
	int n = client_call(c, &request, sizeof(request), -1, &reply, sizeof(reply), NULL);

	return MIN(n, 0);
}

static int look(struct client *c, wire_device device, struct wire_memory_look *reply)
{
	struct wire_device_request request = {.head.type = WIRE_MEMORY_LOOK, .device = device};
	int n = client_call(c, &request, sizeof(request), -1, reply, sizeof(*reply), NULL);

	return MIN(n, 0);
}

int client_memory_look(struct client *c, wire_device device, uint64_t *ret_used,
		       uint64_t *ret_capacity)
{
	struct wire_memory_look reply;
	int n = look(c, device, &reply);

	if (n < 0)
		return n;
	if (ret_used)
		*ret_used = reply.used;
	if (ret_capacity)
		*ret_capacity = reply.capacity;
	return 0;
}

int client_memory_look_own(struct client *c, wire_device device, uint64_t *ret_used,
			   uint64_t *ret_limit)
{
	struct wire_memory_look reply;
	int n = look(c, device, &reply);

	if (n < 0)
		return n;
	*ret_used = reply.limit == UINT64_MAX ? reply.used : reply.limit_used;
	*ret_limit = reply.limit;
	return 0;
}

static int limit_call(struct client *c, struct wire_limit *request, const char *path,
		      struct wire_limit *reply)
{
	if (strlen(path) >= sizeof(request->path))
		return -ENOENT;
	memcpy(request->path, path, strlen(path) + 1);
	int n = client_call(c, request, sizeof(*request), -1, reply, sizeof(*reply), NULL);
	return MIN(n, 0);
}

int client_limit_set(struct client *c, wire_device device, const char *path, uint64_t soft,
		     uint64_t hard)
{
	struct wire_limit reply,
		request = {
			.head.type = WIRE_LIMIT_SET, .device = device, .soft = soft, .hard = hard};

	return limit_call(c, &request, path, &reply);
}

int client_limit_get(struct client *c, wire_device device, const char *path, uint64_t *ret_soft,
		     uint64_t *ret_hard, uint64_t *ret_used)
{
	struct wire_limit reply, request = {.head.type = WIRE_LIMIT_GET, .device = device};
	int status = limit_call(c, &request, path, &reply);

	if (status < 0)
		return status;
	*ret_soft = reply.soft;
	*ret_hard = reply.hard;
	*ret_used = reply.used;
	return 0;
}

static int export(struct client *c, enum wire_type type, uint64_t id, int fd,
		  const uint8_t note[CLIENT_NOTE_SIZE], struct wire_memory_reply *reply,
		  int *ret_fd)
{
	struct wire_memory_ref request = {.head.type = type, .id = id};

	memcpy(request.note, note, CLIENT_NOTE_SIZE);
	int n = client_call(c, &request, sizeof(request), fd, reply, sizeof(*reply), ret_fd);
	return MIN(n, 0);
}

int client_memory_export(struct client *c, uint64_t id, int fd,
			 const uint8_t note[CLIENT_NOTE_SIZE], uint8_t ret_token[CLIENT_TOKEN_SIZE])
{
	struct wire_memory_reply reply;
	int status = export(c, WIRE_MEMORY_EXPORT, id, fd, note, &reply, NULL);

	if (status == 0)
		memcpy(ret_token, reply.token, CLIENT_TOKEN_SIZE);
	return status;
}

int client_memory_export_fd(struct client *c, uint64_t id, int fd,
			    const uint8_t note[CLIENT_NOTE_SIZE], int *ret_fd)
{
	struct wire_memory_reply reply;

	return export(c, WIRE_MEMORY_EXPORT_FD, id, fd, note, &reply, ret_fd);
}

static int import(struct client *c, struct wire_memory_import *request, int fd,
		  struct client_import *ret)
{
	struct wire_memory_reply reply;
	int backing = -1;
	int n = client_call(c, request, sizeof(*request), fd, &reply, sizeof(reply), &backing);

	if (n < 0)
		return n;
	ret->id = reply.id;
	ret->bytes = reply.bytes;
	ret->device = reply.device;
	ret->kind = reply.kind;
	ret->fd = backing;
	memcpy(ret->note, reply.note, CLIENT_NOTE_SIZE);
	return 0;
}

int client_memory_import(struct client *c, const uint8_t token[CLIENT_TOKEN_SIZE],
			 struct client_import *ret)
{
	struct wire_memory_import request = {.head.type = WIRE_MEMORY_IMPORT};

	memcpy(request.token, token, CLIENT_TOKEN_SIZE);
	return import(c, &request, -1, ret);
}

int client_memory_import_fd(struct client *c, int fd, struct client_import *ret)
{
	struct wire_memory_import request = {.head.type = WIRE_MEMORY_IMPORT_FD};

	return import(c, &request, fd, ret);
}

int client_process_list(struct client *c, wire_device device, struct wire_process *processes,
			size_t max)
{
	struct wire_device_request request = {.head.type = WIRE_PROCESS_LIST, .device = device};
	union {
		struct wire_process_list list;
		char space[WIRE_PACKET_MAX];
	} reply;
	int n = client_call(c, &request, sizeof(request), -1, &reply, sizeof(reply), NULL);

	if (n < 0)
		return n;
	size_t fit = ((size_t)n - sizeof(reply.list)) / sizeof(processes[0]);
	memcpy(processes, reply.list.process,
	       MIN(MIN(fit, reply.list.count), max) * sizeof(processes[0]));
	return (int)reply.list.count;
}

int client_utilization(struct client *c, wire_device device, struct wire_utilization *ret)
{
	struct wire_device_request request = {.head.type = WIRE_UTILIZATION, .device = device};
	int n = client_call(c, &request, sizeof(request), -1, ret, sizeof(*ret), NULL);

	return MIN(n, 0);
}

void client_unsupported(struct client *c, const char *name)
{
	struct wire_unsupported message = {.head.type = WIRE_UNSUPPORTED};

	strncpy(message.name, name, sizeof(message.name) - 1);
	client_send(c, &message, sizeof(message));
}

bool client_fault(struct client *c, enum wire_fault fault, wire_device device, const char *call,
		  int *ret_error)
{
	struct wire_fault_take request = {
		.head.type = WIRE_FAULT_TAKE, .fault = fault, .device = device};
	struct wire_fault_reply reply;

	if (!(atomic_load_explicit(&c->host->faults, memory_order_relaxed) & 1u << fault))
		return false;
	strncpy(request.call, call, sizeof(request.call) - 1);
	int n = client_call(c, &request, sizeof(request), -1, &reply, sizeof(reply), NULL);
	if (n < 0 || !reply.hit)
		return false;
	client_sleep(reply.delay_ns);
	*ret_error = reply.error;
	return true;
}
