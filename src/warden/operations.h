/* The inside of the warden: the closed table of its operations. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "proto/warden.h"
#include "warden/warden.h"

struct warden_message;

/* The result of an operation. */
struct warden_result {
	int fd; /* goes along; -1: nothing */
	_Alignas(8) unsigned char data[WARDEN_SIZE_MAX];
};

/* A kind of child processes, in which operations run that may block. A child that the kernel cannot
 * end, as where the driver hangs for good, keeps its place: requests that find no other are
 * answered by ETIMEDOUT. */
struct warden_room {
	const char *name;             /* its processes' */
	uint32_t capabilities;        /* all that a process has, a bit each */
	unsigned most, most_of_owner; /* processes that work at a time */
	unsigned patience_s;          /* one that takes longer for a request is killed */
};

/* Does it: 0 or -errno. */
typedef int warden_run(struct warden_place *place, const struct warden_message *request,
		       struct warden_result *ret);

struct warden_operation_entry {
	uint16_t size, answer_size;
	uint8_t descriptors;            /* that come along */
	bool own;                       /* the warden asks its child for it, and no worker may */
	const struct warden_room *room; /* NULL: it never blocks, and runs on the warden's loop */
	bool (*fits)(const void *data); /* the request's values are allowed */
	warden_run *run;
};

/* NULL: there is no such operation. */
const struct warden_operation_entry *warden_operation_find(uint16_t operation);
/* 0; -EOPNOTSUPP: it is of another version, or there is no such operation; -EINVAL. */
int warden_operation_check(const struct warden_message *request);
/* Runs it and makes the request its answer. */
void warden_operation_run(struct warden_place *place, struct warden_message *request);
