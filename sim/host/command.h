/* The questions that clients may ask: one table of commands, from bytes that anybody may have sent
 * to a reply. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "host/wire.h"

struct host;
struct process;

#define COMMAND_FDS_MAX 2

struct exchange {
	struct process *process;
	const void *request; /* aligned */
	size_t size;
	int fd; /* came along, -1: none. A handler that keeps it sets it to -1. */
	/* The reply: zeroed, its head is filled in by the dispatcher. */
	union {
		struct wire_head head;
		_Alignas(8) char bytes[WIRE_PACKET_MAX];
	} reply;
	size_t reply_size;
	int reply_fd[COMMAND_FDS_MAX]; /* -1: none */
	bool reply_fd_owned;           /* close reply_fd[0] once sent */
};

struct command {
	enum wire_type type;
	size_t size; /* the request's size; with `variable` the least size */
	bool variable;
	unsigned int roles; /* bits 1 << enum wire_role that may ask; 0: only before HELLO */
	size_t reply_size;  /* 0: one-way */
	/* 0 or -errno, which becomes the reply's status; -EPROTO ends the connection. */
	int (*run)(struct host *h, struct exchange *x);
};

#define COMMAND_ROLE_CUDA (1u << WIRE_ROLE_CUDA)
#define COMMAND_ROLE_ANY (1u << WIRE_ROLE_CUDA | 1u << WIRE_ROLE_NVML | 1u << WIRE_ROLE_TOOL)

/* The tables, each ended by an entry of type 0. */
extern const struct command commands_memory[], commands_work[], commands_look[], commands_mig[];

/* Whether the caller is the host's owner, who is its administrator, or root. */
bool command_by_owner(const struct exchange *x);

/* Answers one message of a process. `x` has process, request, size and fd set. True: send
 * x->reply (reply_size bytes; 0: nothing). False: the message was malformed, end the connection. */
bool command_run(struct host *h, struct exchange *x);
