/* The requests that the daemon's worker, which has no rights, makes of the part of carved that sets
 * the driver's limits of cgroups (backend/cgroup_limits.c). They are messages of one size over a
 * SOCK_SEQPACKET socket pair, one answer each, in order. The worker is not trusted:
 * limits_request_check() and limits_serve(). An ABI: after an upgrade a worker meets the part that
 * an earlier version left. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#define LIMITS_MAGIC 0x54494d4cu /* "LIMT" */
#define LIMITS_VERSION 1u
#define LIMITS_PATH_SIZE 1024u

enum limits_op {
	LIMITS_PROBE = 1, /* whether the driver has such limits, and permits them */
	LIMITS_PUT = 2,   /* on `path`, `hard` bytes of GPU `gpu`; UINT64_MAX: none */
	/* Cgroups called CGROUP_SESSION... (base/cgroup.h) only: */
	LIMITS_ENTER = 3, /* makes `path` below the cgroup that the process is in, and puts it there
			   */
	LIMITS_LEAVE = 4, /* removes `path`, which has no processes */
};

struct limits_request {
	uint32_t magic;
	uint16_t version;
	uint16_t op;  /* enum limits_op */
	uint32_t gpu; /* NVML's index */
	int32_t pid;  /* ENTER: with birth, as struct process_id has them */
	uint64_t birth;
	uint64_t hard;
	char path[LIMITS_PATH_SIZE]; /* a cgroup's directory, terminated */
};

struct limits_reply {
	uint32_t magic;
	uint16_t version;
	uint16_t op;
	int32_t error; /* 0, or an errno */
	uint32_t reserved;
};

/* 0; -EPROTO: not such a message; -EOPNOTSUPP: of another version, or unknown; -EINVAL. */
int limits_request_check(const struct limits_request *request, size_t size);
int limits_reply_check(const struct limits_reply *reply, size_t size, uint16_t op);

_Static_assert(sizeof(struct limits_request) == 1056, "ABI of limits");
_Static_assert(sizeof(struct limits_reply) == 16, "ABI of limits");
