#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "host/command.h"
#include "host/host.h"

/* The part, unless its GPU is lost or is to be used through MIG instances alone. */
static int part_usable(const struct host *h, wire_device device, struct part **ret)
{
	struct part *part = host_part_find(h, device);

	if (!part)
		return -ENODEV;
	uint32_t flags = atomic_load(&h->page->gpu[wire_device_gpu(device)].flags);
	if (flags & WIRE_GPU_LOST)
		return -EIO;
	if ((flags & WIRE_GPU_MIG) && !wire_device_is_mig(device))
		return -ENODEV;
	*ret = part;
	return 0;
}

static int memory_reserve(struct host *h, struct exchange *x)
{
	const struct wire_memory_reserve *request = x->request;
	struct wire_memory_reply *reply = (void *)&x->reply;
	struct part *part;
	int32_t error;

	if (request->kind >= WIRE_MEMORY_KINDS)
		return -EPROTO;
	int status = part_usable(h, request->device, &part);
	if (status < 0)
		return status;
	/* A fault without an error only makes the call slow. */
	if (!request->faults_taken &&
	    faults_take(&h->faults, WIRE_FAULT_ALLOC, request->device, x->process->pid, NULL,
			h->now, &error, &reply->delay_ns) &&
	    (error || !reply->delay_ns))
		return -ENOMEM;
	if (request->kind != WIRE_MEMORY_MANAGED && !wire_device_is_mig(request->device) &&
	    !partition_allows(h, x->process, wire_device_gpu(request->device), request->bytes))
		return -ENOMEM;
	status = books_reserve(&h->books, &x->process->memory, part->space, request->kind,
			       request->bytes, &reply->id);
	if (status == 0)
		books_block(&h->books, &x->process->memory, reply->id)->account->device =
			request->device;
	return status;
}

/* Its pages belong to the processes that touch them. */
static int memory_backing(struct host *h, struct exchange *x)
{
	const struct wire_memory_reserve *request = x->request;
	cleanup_close int fd = memfd_create("gpu-memory", MFD_CLOEXEC);

	(void)h;
	if (fd < 0 || ftruncate(fd, (off_t)request->bytes) < 0)
		return -errno;
	x->reply_fd[0] = steal_fd(&fd);
	x->reply_fd_owned = true;
	return 0;
}

static int memory_free(struct host *h, struct exchange *x)
{
	const struct wire_memory_ref *request = x->request;

	return books_release(&h->books, &x->process->memory, request->id);
}

static int memory_look(struct host *h, struct exchange *x)
{
	const struct wire_device_request *request = x->request;
	struct wire_memory_look *reply = (void *)&x->reply;
	const struct part *part = host_part_find(h, request->device);

	if (!part)
		return -ENODEV;
	reply->capacity = part->space->capacity;
	reply->used = wire_device_is_mig(request->device)
			      ? part->space->used
			      : host_gpu_used(h, wire_device_gpu(request->device));
	reply->limit = UINT64_MAX;
	if (wire_device_is_mig(request->device))
		return 0;
	const struct partition *own = partition_of(h, x->process, wire_device_gpu(request->device));
	if (own) {
		reply->limit = own->hard;
		reply->limit_used = partition_used(h, own->gpu, own->path);
	}
	return 0;
}

/* The GPU that limits are asked of. */
static int limit_gpu(const struct host *h, const struct wire_limit *request)
{
	if (request->path[sizeof(request->path) - 1])
		return -EPROTO;
	if (!host_part_find(h, request->device))
		return -ENODEV;
	if (wire_device_is_mig(request->device) ||
	    atomic_load(&h->page->gpu[request->device].flags) & WIRE_GPU_MIG)
		return -ENOTSUP;
	return 0;
}

static int limit_set(struct host *h, struct exchange *x)
{
	const struct wire_limit *request = x->request;
	int status = limit_gpu(h, request);

	if (status < 0)
		return status;
	if (x->process->uid != 0)
		return -EACCES;
	return partition_set(h, request->device, request->path, request->soft, request->hard);
}

static int limit_get(struct host *h, struct exchange *x)
{
	const struct wire_limit *request = x->request;
	struct wire_limit *reply = (void *)&x->reply;
	int status = limit_gpu(h, request);

	if (status < 0)
		return status;
	const struct partition *found = partition_find(h, request->device, request->path);
	if (!found)
		return partition_exists(h, request->path) ? -ENOTSUP : -ENOENT;
	reply->soft = found->soft;
	reply->hard = found->hard;
	reply->used = partition_used(h, found->gpu, found->path);
	return 0;
}

static int memory_export(struct host *h, struct exchange *x)
{
	const struct wire_memory_ref *request = x->request;
	struct wire_memory_reply *reply = (void *)&x->reply;
	struct book_block *block = books_block(&h->books, &x->process->memory, request->id);

	if (!block)
		return -ENOENT;
	if (x->fd < 0)
		return -EINVAL;
	int status = books_export(block, steal_fd(&x->fd), request->note);
	if (status == 0)
		memcpy(reply->token, block->token, sizeof(reply->token));
	return status;
}

static int import_reply(struct host *h, struct exchange *x, struct book_block *block)
{
	struct wire_memory_reply *reply = (void *)&x->reply;
	int status = books_refer(&h->books, &x->process->memory, block, &reply->id);

	if (status < 0)
		return status;
	reply->bytes = block->bytes;
	reply->device = block->space->device;
	reply->kind = block->kind;
	memcpy(reply->note, block->note, sizeof(reply->note));
	x->reply_fd[0] = block->fd;
	return 0;
}

static int memory_import(struct host *h, struct exchange *x)
{
	const struct wire_memory_import *request = x->request;
	struct book_block *block = books_block_by_token(&h->books, request->token);

	return block ? import_reply(h, x, block) : -ENOENT;
}

/* The shareable descriptor is one end of a socket pair: passed around and closed as its holders
 * like, and when the last one is gone the host's end hangs up. */
static int anchor_make(struct host *h, struct book_block *block, int *ret_fd)
{
	int ends[2];
	struct stat st;
	uint64_t id;
	struct host_anchor *anchor = calloc(1, sizeof(*anchor));

	if (!anchor)
		return -ENOMEM;
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) < 0) {
		free(anchor);
		return -errno;
	}
	anchor->fd = ends[0];
	anchor->block = block;
	book_holder_init(&anchor->memory, anchor);
	book_holder_anchor(&anchor->memory);
	list_append(&h->anchors, &anchor->node);
	int status = fstat(ends[1], &st) < 0 ? -errno : 0;
	anchor->inode = st.st_ino;
	if (status == 0)
		status = books_refer(&h->books, &anchor->memory, block, &id);
	if (status == 0 && h->anchor_watch)
		status = h->anchor_watch(h->watch_context, anchor);
	if (status < 0) {
		close(ends[1]);
		host_anchor_remove(h, anchor);
		return status;
	}
	*ret_fd = ends[1];
	return 0;
}

static int memory_export_fd(struct host *h, struct exchange *x)
{
	const struct wire_memory_ref *request = x->request;
	int status = memory_export(h, x);

	if (status < 0)
		return status;
	status = anchor_make(h, books_block(&h->books, &x->process->memory, request->id),
			     &x->reply_fd[0]);
	x->reply_fd_owned = status == 0;
	return status;
}

static int memory_import_fd(struct host *h, struct exchange *x)
{
	struct stat st;

	if (x->fd < 0 || fstat(x->fd, &st) < 0 || !S_ISSOCK(st.st_mode))
		return -EINVAL;
	list_for_each (node, &h->anchors) {
		struct host_anchor *anchor = list_entry(node, struct host_anchor, node);

		if (anchor->inode == st.st_ino)
			/* Empty after a reset of its GPU. */
			return anchor->block ? import_reply(h, x, anchor->block) : -EINVAL;
	}
	return -ENOENT;
}

const struct command commands_memory[] = {
	{.type = WIRE_MEMORY_RESERVE,
	 .size = sizeof(struct wire_memory_reserve),
	 .roles = COMMAND_ROLE_CUDA,
	 .reply_size = sizeof(struct wire_memory_reply),
	 .run = memory_reserve},
	{.type = WIRE_MEMORY_BACKING,
	 .size = sizeof(struct wire_memory_reserve),
	 .roles = COMMAND_ROLE_CUDA,
	 .reply_size = sizeof(struct wire_memory_reply),
	 .run = memory_backing},
	{.type = WIRE_MEMORY_LOOK,
	 .size = sizeof(struct wire_device_request),
	 .roles = COMMAND_ROLE_ANY,
	 .reply_size = sizeof(struct wire_memory_look),
	 .run = memory_look},
	{.type = WIRE_LIMIT_SET,
	 .size = sizeof(struct wire_limit),
	 .roles = COMMAND_ROLE_ANY,
	 .reply_size = sizeof(struct wire_limit),
	 .run = limit_set},
	{.type = WIRE_LIMIT_GET,
	 .size = sizeof(struct wire_limit),
	 .roles = COMMAND_ROLE_ANY,
	 .reply_size = sizeof(struct wire_limit),
	 .run = limit_get},
	{.type = WIRE_MEMORY_FREE,
	 .size = sizeof(struct wire_memory_ref),
	 .roles = COMMAND_ROLE_CUDA,
	 .reply_size = sizeof(struct wire_memory_reply),
	 .run = memory_free},
	{.type = WIRE_MEMORY_EXPORT,
	 .size = sizeof(struct wire_memory_ref),
	 .roles = COMMAND_ROLE_CUDA,
	 .reply_size = sizeof(struct wire_memory_reply),
	 .run = memory_export},
	{.type = WIRE_MEMORY_IMPORT,
	 .size = sizeof(struct wire_memory_import),
	 .roles = COMMAND_ROLE_CUDA,
	 .reply_size = sizeof(struct wire_memory_reply),
	 .run = memory_import},
	{.type = WIRE_MEMORY_EXPORT_FD,
	 .size = sizeof(struct wire_memory_ref),
	 .roles = COMMAND_ROLE_CUDA,
	 .reply_size = sizeof(struct wire_memory_reply),
	 .run = memory_export_fd},
	{.type = WIRE_MEMORY_IMPORT_FD,
	 .size = sizeof(struct wire_memory_import),
	 .roles = COMMAND_ROLE_CUDA,
	 .reply_size = sizeof(struct wire_memory_reply),
	 .run = memory_import_fd},
	{0},
};
