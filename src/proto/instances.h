/* The requests that the daemon's worker, which has no rights, makes of the part of carved that
 * changes MIG instances (backend/instances_serve.c). They are messages of one size over a
 * SOCK_SEQPACKET socket pair, one answer each, in order. The driver tells instances, too, to
 * privileged users alone. The worker is not trusted: instances_request_check(). An ABI: after an
 * upgrade a worker meets the part that an earlier version left. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#define INSTANCES_MAGIC 0x5347494du /* "MIGS" */
#define INSTANCES_VERSION 1u
#define INSTANCES_MOST 32u

enum instances_op {
	INSTANCES_KINDS = 1,  /* the profiles that a GPU can have */
	INSTANCES_LIST = 2,   /* the instances of `count` profiles, id[] */
	INSTANCES_MAKE = 3,   /* one of profile id[0], at start and size */
	INSTANCES_REMOVE = 4, /* likewise; tried once */
	INSTANCES_MODE = 5,   /* MIG mode on; tried once */
};

struct instances_request {
	uint32_t magic;
	uint16_t version;
	uint16_t op;  /* enum instances_op */
	uint32_t gpu; /* NVML's index */
	uint32_t count;
	uint8_t start, size;
	uint16_t reserved; /* 0 */
	uint32_t id[INSTANCES_MOST];
};

struct instances_one {
	uint64_t bytes;
	uint32_t profile_id;
	uint8_t start, size;
	uint8_t gpu_instance, compute_instance; /* IDs plus 1; 0: not told, as by version 0.1 */
	char uuid_text[48];
	uint32_t pid[4];
	uint32_t pid_count, reserved_mib;
};

struct instances_kind {
	uint64_t bytes;
	uint32_t sms, slices, limit, flags, starts, id;
	uint16_t engines[4];
	uint8_t size, reserved[7];
	char name[32];
};

struct instances_reply {
	uint32_t magic;
	uint16_t version;
	uint16_t op;
	int32_t error; /* 0, or an errno value */
	uint32_t count;
	union {
		struct instances_one one[INSTANCES_MOST];
		struct instances_kind kind[INSTANCES_MOST];
	};
};

_Static_assert(sizeof(struct instances_request) == 148, "ABI of instances");
_Static_assert(sizeof(struct instances_one) == 88, "ABI of instances");
_Static_assert(sizeof(struct instances_kind) == 80, "ABI of instances");
_Static_assert(sizeof(struct instances_reply) == 2832, "ABI of instances");

/* 0; -EPROTO: not a request, and whoever sent it is broken; -EOPNOTSUPP: of a later version, to be
 * answered so; -EINVAL: its values are not allowed, likewise. */
int instances_request_check(const struct instances_request *request, size_t size);
/* 0 or -EPROTO. */
int instances_reply_check(const struct instances_reply *reply, size_t size, uint16_t op);
