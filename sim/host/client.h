/* The simulated libraries' side of the host's protocol: one connection a process and library.
 * libc and pthread only; no signal handlers, no threads of its own, all descriptors CLOEXEC.
 *
 * Thread-safe: requests take turns under a mutex; progress and the host's page are read without
 * one. After fork, the child holds the connection open but must not use it: every call there
 * returns -ECHILD. When the host is gone: -ENOTCONN. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "host/wire.h"

struct client;

/* The host's directory: $SIMGPU_HOST, or WIRE_HOST_DEFAULT where that is not set. NULL: there is
 * none. A program that has more rights than its caller (set-user-ID) believes only a host of
 * root's. Valid until the environment changes. */
const char *client_host_directory(void);

/* Connects to the host in that directory. -ENODEV: there is no host, or none any more. -EACCES:
 * this process may not open the host's device files. Other negative errno: the host refused. The
 * caller owns *ret. */
int client_connect(enum wire_role role, struct client **ret);
/* Closes it: what the process held is given back, unless a forked child holds the socket too. In
 * such a child it only frees the child's own copy. */
void client_disconnect(struct client *c);

/* Whether this process may open a device file of the host, by its own rights: of the GPU with that
 * minor number, or WIRE_DEVICE_CONTROL. A host without a directory `dev` has no device files, and
 * everybody may. */
#define WIRE_DEVICE_CONTROL UINT32_MAX
bool client_may_open(uint32_t minor);

/* 0, -ECHILD (another process than the one that connected) or -ENOTCONN: within half a second of
 * the host's end, so who polls for anything asks this too. Costs one system call, seldom two. */
int client_check(struct client *c);
/* True once anybody has seen that the host is gone. Costs a load. */
bool client_is_lost(const struct client *c);
/* The same, after a look at the connection now and then. */
bool client_looks_lost(struct client *c);
/* The host's page; lives as long as c. */
const struct wire_host *client_host(const struct client *c);
/* The caller's PID as the host (and NVML) names it. */
int client_pid(const struct client *c);

/* One request and its reply: for commands without a function of their own below (MIG). The
 * `request` starts with a wire_head whose type is set; reply_size is the size of `reply`. The `fd`
 * is -1, or sent along (still the caller's). The `ret_fd` is NULL, or set to the descriptor that
 * came (caller owns it), -1 if none.
 *
 * Returns the reply's bytes, or -errno: a failure of the connection, or the reply's negative
 * status. If a reply came, it is filled then, too. */
int client_call(struct client *c, const void *request, size_t request_size, int fd, void *reply,
		size_t reply_size, int *ret_fd);

/* ---- memory: the host books bytes; what backs them is a memfd of the process's own ---- */

/* A sparse memfd of `bytes`, made by the host: no `ulimit -f` of this process binds its size. The
 * descriptor (caller owns it), or -errno. */
int client_memory_backing(struct client *c, uint64_t bytes);

/* -ENOMEM: the device is full. -ENODEV, -EIO (GPU lost). May sleep where a fault says so. */
int client_memory_reserve(struct client *c, wire_device device, enum wire_memory kind,
			  uint64_t bytes, uint64_t *ret_id);
/* The same for who has asked client_fault() for WIRE_FAULT_ALLOC itself. */
int client_memory_reserve_unfailing(struct client *c, wire_device device, enum wire_memory kind,
				    uint64_t bytes, uint64_t *ret_id);
/* Drops a reference got from reserve or import; the bytes are free again with the last one. */
int client_memory_free(struct client *c, uint64_t id);

/* The memory that all processes together hold of a GPU or MIG device now: a process that has ended
 * before the call counts no more. Either pointer may be NULL. */
int client_memory_look(struct client *c, wire_device device, uint64_t *ret_used,
		       uint64_t *ret_capacity);
/* The same of what the caller's cgroup may have, where it carries a limit: *ret_limit is that, and
 * else UINT64_MAX, with what all hold as *ret_used. */
int client_memory_look_own(struct client *c, wire_device device, uint64_t *ret_used,
			   uint64_t *ret_limit);
/* Sets (or gets) a cgroup's limits on a GPU; errors as struct wire_limit says. */
int client_limit_set(struct client *c, wire_device device, const char *path, uint64_t soft,
		     uint64_t hard);
int client_limit_get(struct client *c, wire_device device, const char *path, uint64_t *ret_soft,
		     uint64_t *ret_hard, uint64_t *ret_used);

#define CLIENT_TOKEN_SIZE 32
#define CLIENT_NOTE_SIZE 64

struct client_import {
	uint64_t id; /* a reference of its own, to be freed */
	uint64_t bytes;
	wire_device device;
	enum wire_memory kind;
	int fd; /* the exporter's backing, caller owns it */
	uint8_t note[CLIENT_NOTE_SIZE];
};

/* IPC: anyone on the host who knows the token can import while the memory lives. fd backs the
 * memory (dup'ed by the host); note goes to importers. */
int client_memory_export(struct client *c, uint64_t id, int fd,
			 const uint8_t note[CLIENT_NOTE_SIZE],
			 uint8_t ret_token[CLIENT_TOKEN_SIZE]);
/* -ENOENT: no such token (any more). */
int client_memory_import(struct client *c, const uint8_t token[CLIENT_TOKEN_SIZE],
			 struct client_import *ret);
/* VMM: *ret_fd can be passed on to any process; the memory lives at least as long as it is open. */
int client_memory_export_fd(struct client *c, uint64_t id, int fd,
			    const uint8_t note[CLIENT_NOTE_SIZE], int *ret_fd);
int client_memory_import_fd(struct client *c, int fd, struct client_import *ret);

/* ---- work ---- */

/* A queue number for a stream: < WIRE_QUEUES_MAX, counters at zero; -EMFILE when all are taken. */
int client_queue_open(struct client *c);
/* Drops what is not finished and gives the number back. */
void client_queue_close(struct client *c, int queue);
/* Hands items to the GPU; returns at once unless a queue has WIRE_QUEUE_ITEMS_MAX unfinished ones:
 * then it waits for room. Items of one queue must be submitted by one thread at a time. Batch when
 * you can: a call is a system call. */
int client_submit(struct client *c, const struct wire_item *items, size_t count);
/* Items of the queue finished / started so far, as published (see client_queue_wait). */
uint64_t client_queue_done(const struct client *c, int queue);
uint64_t client_queue_started(const struct client *c, int queue);
/* Items submitted to the queue so far: the number to wait for. */
uint64_t client_queue_submitted(const struct client *c, int queue);
/* Waits until `count` items are done (or started), sleeping; wakes exactly then. 0, -ETIMEDOUT
 * (timeout_ns UINT64_MAX: none), -ENOTCONN, -ECHILD. */
int client_queue_wait(struct client *c, int queue, enum wire_wait what, uint64_t count,
		      uint64_t timeout_ns);
/* Gives when the last item of the queue was done, by the GPU's own clock. In *ret_sure_until is
 * until when the queue has the GPU for itself for certain from then on (the same: not at all). To
 * be asked when all that was submitted to the queue is done, by the thread that submits. */
uint64_t client_queue_done_at(const struct client *c, int queue, uint64_t *ret_sure_until);
/* Model time written for a stamp index; indices are the library's own to hand out. */
uint64_t client_stamp(const struct client *c, uint32_t index);
/* The model's clock: CLOCK_MONOTONIC, ns. */
uint64_t client_now(void);
/* As long as a reply said that a call takes. */
void client_sleep(uint64_t ns);

/* ---- looking, faults ---- */

/* Fills up to max entries. Returns how many there are, which may be more, or -errno. */
int client_process_list(struct client *c, wire_device device, struct wire_process *processes,
			size_t max);
int client_utilization(struct client *c, wire_device device, struct wire_utilization *ret);
/* Notes that the program called something this driver does not have; cheap, never fails. */
void client_unsupported(struct client *c, const char *name);
/* True where an armed fault of this kind hits this call, *ret_error is what to return (0: the usual
 * one); has slept already where the fault says so. One load while nothing is armed. */
bool client_fault(struct client *c, enum wire_fault fault, wire_device device, const char *call,
		  int *ret_error);
