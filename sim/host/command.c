#include "host/command.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "base/macros.h"
#include "host/host.h"
#include "host/shared_page.h"

static int hello(struct host *h, struct exchange *x)
{
	const struct wire_hello *request = x->request;
	struct wire_hello_reply *reply = (void *)&x->reply;
	struct process *p = x->process;

	if (request->magic != WIRE_MAGIC || request->version != WIRE_VERSION ||
	    request->role < WIRE_ROLE_CUDA || request->role > WIRE_ROLE_TOOL)
		return -EPROTO;
	if (request->role == WIRE_ROLE_CUDA) {
		p->progress =
			shared_page_new("simgpu-progress", sizeof(*p->progress), &p->progress_fd);
		if (!p->progress)
			return -ENOMEM;
	}
	p->role = request->role;
	if (p->role == WIRE_ROLE_CUDA)
		host_process_enlist(p);
	reply->process = p->number;
	reply->pid = p->pid;
	x->reply_fd[0] = h->page_fd;
	x->reply_fd[1] = p->progress_fd;
	return 0;
}

static const struct command commands_first[] = {
	{.type = WIRE_HELLO,
	 .size = sizeof(struct wire_hello),
	 .reply_size = sizeof(struct wire_hello_reply),
	 .run = hello},
	{0},
};

static const struct command *const tables[] = {
	commands_first, commands_memory, commands_work, commands_look, commands_mig,
};

static const struct command *command_find(uint32_t type)
{
	for (size_t i = 0; i < ARRAY_SIZE(tables); i++) {
		for (const struct command *c = tables[i]; c->type; c++) {
			if (c->type == type)
				return c;
		}
	}
	return NULL;
}

static bool command_allowed(const struct command *c, const struct exchange *x)
{
	bool fits = c->variable ? x->size >= c->size : x->size == c->size;

	if (!x->process->role)
		return fits && !c->roles;
	return fits && (c->roles & 1u << x->process->role);
}

bool command_by_owner(const struct exchange *x)
{
	return x->process->uid == 0 || x->process->uid == geteuid();
}

bool command_run(struct host *h, struct exchange *x)
{
	const struct wire_head *head = x->request;

	if (x->size < sizeof(*head))
		return false;
	const struct command *c = command_find(head->type);
	if (!c || !command_allowed(c, x))
		return false;
	memset(&x->reply, 0, MAX(c->reply_size, sizeof(x->reply.head)));
	x->reply_size = c->reply_size;
	for (size_t i = 0; i < COMMAND_FDS_MAX; i++)
		x->reply_fd[i] = -1;
	x->reply_fd_owned = false;
	int status = c->run(h, x);
	if (status == -EPROTO)
		return false;
	x->reply.head.type = head->type;
	x->reply.head.status = status;
	return true;
}
