/* The messages between the simulated driver's libraries and the host server, over a SOCK_SEQPACKET
 * Unix socket, $SIMGPU_HOST/driver.sock. One message is a packet. Both sides are of the same
 * machine and build, so structs go as they are. The client's identity (PID, user) comes from
 * SO_PEERCRED. Every request but those marked "one-way" gets one reply, in order; a malformed
 * message ends the connection.
 *
 * Beside the socket, the server publishes two pages that clients map read-only:
 *   struct wire_host     of the host: its GPUs, what is used, which faults are armed
 *   struct wire_progress of the connection (role CUDA): how far its queues are, and time stamps
 *
 * Time is CLOCK_MONOTONIC in nanoseconds: the host's clock is the model's clock. A GPU's own clock
 * falls behind it while the GPU waits for work that is being played (WIRE_ITEM_MORE), and catches
 * up.
 *
 * A process's driver resources belong to its connection: they live until the last holder of the
 * socket (forked children inherit it) is gone. */
#pragma once

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#define WIRE_ENV_HOST "SIMGPU_HOST"
/* The host's directory where that variable is not set: a container's, whose runtime cannot set one.
 */
#define WIRE_HOST_DEFAULT "/run/simgpu"
#define WIRE_SOCKET_NAME "driver.sock"
#define WIRE_MAGIC 0x47504d53u /* "SMPG" */
#define WIRE_VERSION 1u
#define WIRE_GPUS_MAX 64u
#define WIRE_PACKET_MAX 32768u /* bytes of the largest message, either way */

/* ---- devices ------------------------------------------------------------------------------- */

/* A whole GPU is its index. A MIG device is its GPU's index, GPU instance ID and compute instance
 * ID; WIRE_NO_INSTANCE as compute instance means the GPU instance as a whole. */
typedef uint32_t wire_device;
#define WIRE_DEVICE_MIG(gpu, gi, ci) \
	((wire_device)((gpu) | ((uint32_t)(gi) + 1) << 8 | (((uint32_t)(ci) + 1) & 0xff) << 16))
#define WIRE_NO_INSTANCE 0xffu
/* The device of a call that names none: faults of a device leave it alone. */
#define WIRE_NO_DEVICE ((wire_device)0xff)
static inline uint32_t wire_device_gpu(wire_device d)
{
	return d & 0xff;
}
static inline int wire_device_is_mig(wire_device d)
{
	return (d >> 8 & 0xff) != 0;
}
static inline uint32_t wire_device_gi(wire_device d)
{
	return ((d >> 8 & 0xff) - 1) & 0xff;
}
static inline uint32_t wire_device_ci(wire_device d)
{
	return ((d >> 16 & 0xff) - 1) & 0xff;
}

/* ---- the host's page ----------------------------------------------------------------------- */

enum wire_gpu_flag {
	WIRE_GPU_LOST = 1 << 0, /* fell off the bus: every call on it fails while the fault lasts */
	WIRE_GPU_ECC_ERROR = 1 << 1,   /* uncorrectable ECC error: see WIRE_FAULT_ECC */
	WIRE_GPU_MIG = 1 << 2,         /* MIG mode is on now ... */
	WIRE_GPU_MIG_PENDING = 1 << 3, /* ... and will be on after the next reset */
};

struct wire_gpu {
	char model[32];     /* key for sim_model_find() */
	uint8_t uuid[16];   /* random, of this GPU of this host alone */
	char uuid_text[48]; /* "GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx" */
	uint32_t pci_domain, pci_bus, pci_device;
	uint32_t minor;                  /* the N of /dev/nvidiaN */
	_Atomic uint32_t flags;          /* enum wire_gpu_flag */
	_Atomic uint32_t mig_generation; /* changes whenever an instance comes or goes */
	uint64_t memory_total;           /* bytes; NVML's total */
	uint64_t memory_reserved;        /* bytes of it that the driver keeps */
	_Atomic uint64_t memory_used;    /* bytes held by processes, MIG devices included */
	_Atomic uint64_t ecc_errors;     /* uncorrectable, since start */
	char serial[16];                 /* digits */
	/* Its own clock is the machine's less clock_shift; where clock_still is not 0, the GPU
	 * waits for work that is being played, and it stands there. */
	_Atomic uint64_t clock_still, clock_shift;
	uint64_t spare[6];
};

struct wire_host {
	uint32_t magic, version;
	uint32_t gpu_count;
	uint32_t driver_branch;      /* 550 */
	char driver_version[32];     /* "550.163.01" */
	int32_t cuda_driver_version; /* 12040 */
	_Atomic uint32_t
		faults;    /* bit (1 << enum wire_fault): armed for somebody; ask FAULT_TAKE */
	uint32_t mig_seed; /* the seed of mig_shuffle() */
	uint32_t spare;
	uint64_t started;         /* model time at which the host came up */
	uint64_t realtime_offset; /* model time plus this is time since 1970: what GPUs show */
	struct wire_gpu gpu[WIRE_GPUS_MAX];
};

/* ---- the connection's page ----------------------------------------------------------------- */

/* One a stream, and a few more; a real driver makes as many as there is memory for. */
#define WIRE_QUEUES_MAX 16384u
#define WIRE_STAMPS_MAX 65536u
/* Items a queue may hold that are not finished; submitting more ends the connection. */
#define WIRE_QUEUE_ITEMS_MAX 1024u

struct wire_queue {
	_Atomic uint64_t done;    /* items of this queue that are finished, since its creation */
	_Atomic uint64_t started; /* items that have started */
	/* When the last of the finished items was done, and until when the queue has the GPU for
	 * itself for certain from then on (the same: not at all). They are those of item n for who
	 * finds `done` to be n and hands in no other item. */
	_Atomic uint64_t done_at, sure_until;
	_Atomic uint32_t wake; /* futex: changes whenever one of the above was published */
	uint32_t spare[7];
};

struct wire_progress {
	struct wire_queue queue[WIRE_QUEUES_MAX];
	_Atomic uint64_t stamp[WIRE_STAMPS_MAX]; /* model times; index 0 is unused */
};

/* ---- messages ------------------------------------------------------------------------------ */

enum wire_type {
	WIRE_HELLO = 1,
	WIRE_MEMORY_RESERVE = 16,
	WIRE_MEMORY_FREE = 17,
	WIRE_MEMORY_EXPORT = 18,    /* + backing fd; gives a token (IPC) */
	WIRE_MEMORY_IMPORT = 19,    /* by token; gives backing fd */
	WIRE_MEMORY_EXPORT_FD = 20, /* + backing fd; gives a shareable fd */
	WIRE_MEMORY_IMPORT_FD = 21, /* + shareable fd; gives backing fd */
	WIRE_MEMORY_LOOK = 22,      /* how much of a device is used */
	WIRE_LIMIT_SET = 23,        /* sets the limit of a cgroup, by root */
	WIRE_LIMIT_GET = 24,
	WIRE_MEMORY_BACKING = 25, /* gives a sparse memfd of `bytes`: struct wire_memory_reserve */
	WIRE_WORK_SUBMIT = 32,    /* one-way */
	WIRE_WORK_WAIT = 33,      /* one-way */
	WIRE_WORK_CANCEL = 34,    /* drops a queue's unfinished items, zeroes its counters */
	WIRE_PROCESS_LIST = 48,
	WIRE_UTILIZATION = 49,
	WIRE_UNSUPPORTED = 50, /* one-way */
	WIRE_FAULT_TAKE = 64,
	WIRE_FAULT_SET = 65, /* role TOOL */
	WIRE_GPU_RESET = 66, /* role TOOL */
	WIRE_STAT = 80,      /* role TOOL; gives a memfd with JSON */
	WIRE_TRACE = 81,     /* role TOOL; gives a memfd with a Chrome trace */
	WIRE_MIG_FIRST = 96, /* 96..127: see host/mig_wire.h */
	WIRE_MIG_LAST = 127,
};

struct wire_head {
	uint32_t type;  /* enum wire_type; a reply has its request's */
	int32_t status; /* reply: 0 or -errno; request: 0 */
};

enum wire_role {
	WIRE_ROLE_CUDA = 1, /* a process that uses GPUs */
	WIRE_ROLE_NVML = 2, /* one that looks at or manages them */
	WIRE_ROLE_TOOL = 3, /* simhost's own verbs */
};

struct wire_hello {
	struct wire_head head;
	uint32_t magic, version;
	uint32_t role; /* enum wire_role */
	uint32_t spare;
};

/* Descriptors: struct wire_host, and for role CUDA struct wire_progress, both for mapping
 * read-only. */
struct wire_hello_reply {
	struct wire_head head;
	uint64_t process; /* the host's number for this connection, never reused */
	int32_t pid;      /* the caller's, as the host sees it */
	uint32_t spare;
};

/* The purpose of memory; `simhost stat` tells them apart, the device does not. */
enum wire_memory {
	WIRE_MEMORY_CONTEXT = 0,
	WIRE_MEMORY_LINEAR = 1,
	WIRE_MEMORY_POOL = 2,
	WIRE_MEMORY_VMM = 3,
	WIRE_MEMORY_ARRAY = 4,
	WIRE_MEMORY_MANAGED = 5,
	WIRE_MEMORY_GRAPH = 6,
	WIRE_MEMORY_MODULE = 7,
	WIRE_MEMORY_LOCAL = 8, /* local memory, printf and malloc heaps */
	WIRE_MEMORY_OTHER = 9,
	WIRE_MEMORY_KINDS = 10,
};

/* Status: -ENOMEM the device is full, -ENODEV no such device, -EIO GPU lost, -EINVAL. */
struct wire_memory_reserve {
	struct wire_head head;
	wire_device device;
	uint16_t kind;         /* enum wire_memory */
	uint16_t faults_taken; /* the client has asked for this call's faults itself */
	uint64_t bytes;
};

struct wire_memory_reply {
	struct wire_head head;
	uint64_t id;        /* this process's reference; FREE gives it back */
	uint64_t bytes;     /* IMPORT*: size of the memory */
	wire_device device; /* IMPORT*: where it is */
	uint32_t kind;      /* IMPORT*: enum wire_memory */
	uint64_t delay_ns;  /* RESERVE: a fault makes this call slow: sleep before returning */
	uint8_t token[32];  /* EXPORT */
	uint8_t note[64];   /* IMPORT*: what the exporter wrote */
};

/* FREE, EXPORT, EXPORT_FD. */
struct wire_memory_ref {
	struct wire_head head;
	uint64_t id;
	uint8_t note[64]; /* EXPORT*: the exporter's own words (offset, properties) for importers */
};

struct wire_memory_import {
	struct wire_head head;
	uint8_t token[32]; /* IMPORT; ignored in IMPORT_FD */
};

/* LOOK. Everything that ended before the question was asked is taken into account, which the figure
 * on the host's page does not promise. */
struct wire_memory_look {
	struct wire_head head;
	uint64_t capacity; /* bytes that processes can have of the GPU or the GPU instance */
	uint64_t used;     /* bytes they have; of a GPU with its MIG instances */
	/* The limit that the caller's own cgroup carries (UINT64_MAX: none), and what is used of
	 * it. */
	uint64_t limit, limit_used;
};

#define WIRE_CGROUP_MAX 1024u
/* A cgroup's limits on a GPU, both ways; soft 0 and hard UINT64_MAX: none. Status: -ENOENT no such
 * cgroup, -EACCES the caller is not root, -ENOTSUP the GPU is in MIG mode, or GET: there is none.
 */
struct wire_limit {
	struct wire_head head;
	wire_device device;
	uint32_t spare;
	uint64_t soft, hard;        /* bytes */
	uint64_t used;              /* GET's reply: by the processes in it */
	char path[WIRE_CGROUP_MAX]; /* its directory's path */
};

enum wire_engine {
	WIRE_ENGINE_COMPUTE = 0,
	WIRE_ENGINE_H2D = 1,
	WIRE_ENGINE_D2H = 2,
	WIRE_ENGINE_D2D = 3,  /* and peer copies */
	WIRE_ENGINE_NONE = 4, /* takes no GPU time: events, markers, with or without MORE */
	WIRE_ENGINES = 5,
};

enum wire_item_flag {
	WIRE_ITEM_LAUNCH = 1 << 0, /* counts as a kernel launch */
	WIRE_ITEM_COPY = 1 << 1,   /* counts as a copy of `bytes` */
	/* The queue's next item is being played: until it arrives, time stands still in the
	 * process's turns on the GPU (see host/engine.h). A client that sets it must hand in
	 * another item without waiting for anything but this queue. */
	WIRE_ITEM_MORE = 1 << 2,
};

/* One piece of work. Items of a queue run in order, those of different queues at the same time. The
 * n-th item submitted to a queue is done when wire_queue.done >= n (counting from 1). */
struct wire_item {
	wire_device device;
	uint16_t queue;  /* < WIRE_QUEUES_MAX */
	uint8_t engine;  /* enum wire_engine */
	uint8_t flags;   /* enum wire_item_flag */
	uint64_t ns;     /* time on its engine, running alone */
	uint64_t bytes;  /* copied */
	uint32_t lag_ns; /* how much longer than `ns` the client needed to play it */
	uint16_t fill;   /* COMPUTE: thousandths of the GPU that it fills; kernels of one process
			    whose   sum is <= 1000 do not slow each other; 0 is 1000 */
	uint16_t spare;
	uint16_t stamp_start, stamp_done; /* index into wire_progress.stamp, 0: none */
	uint32_t spare2;
};

#define WIRE_SUBMIT_MAX 512u
struct wire_submit {
	struct wire_head head;
	uint32_t count;
	uint32_t spare;
	struct wire_item item[]; /* count */
};

enum wire_wait {
	WIRE_WAIT_DONE = 0,
	WIRE_WAIT_STARTED = 1,
};

/* "Wake me exactly then": without it, progress is published up to 0.2 ms late. */
struct wire_wait_request {
	struct wire_head head;
	uint16_t queue;
	uint16_t what; /* enum wire_wait */
	uint32_t spare;
	uint64_t count;
};

struct wire_cancel {
	struct wire_head head;
	uint16_t queue;
	uint16_t spare[3];
};

/* MEMORY_LOOK, PROCESS_LIST, UTILIZATION: a GPU, or a MIG device's GPU instance. */
struct wire_device_request {
	struct wire_head head;
	wire_device device;
	uint32_t spare;
};

struct wire_process {
	int32_t pid;
	uint32_t device;     /* wire_device its memory is on: a MIG device, or the GPU */
	uint64_t start_time; /* clock ticks since boot, see process_start_time() */
	uint64_t bytes;      /* contexts included */
	uint64_t peak_bytes;
	uint64_t busy_ns;     /* compute, since start */
	uint32_t sm_permille; /* the last second's, compute and copies */
	uint32_t copy_permille;
	uint32_t contexts; /* that it has there */
	uint32_t spare;
};

#define WIRE_PROCESSES_MAX 400u
/* One entry per process that holds memory on the GPU, MIG devices included. */
struct wire_process_list {
	struct wire_head head;
	uint32_t count;
	uint32_t spare;
	struct wire_process process[]; /* count <= WIRE_PROCESSES_MAX */
};

struct wire_utilization {
	struct wire_head head;
	uint32_t gpu_permille; /* the part of the last second in which some kernel ran */
	uint32_t memory_permille;
	uint64_t busy_ns; /* since start */
	uint64_t copied_bytes[WIRE_ENGINES];
};

#define WIRE_NAME_MAX 64u
struct wire_unsupported {
	struct wire_head head;
	char name[WIRE_NAME_MAX]; /* NUL-terminated */
};

/* ---- faults on demand ---------------------------------------------------------------------- */

enum wire_fault {
	WIRE_FAULT_ALLOC = 0,  /* allocations fail (or are slow); the server applies it itself */
	WIRE_FAULT_LAUNCH = 1, /* a launch gives an error that sticks to the context */
	WIRE_FAULT_ECC = 2,    /* uncorrectable ECC error: sticks to every context of the GPU */
	WIRE_FAULT_LOST = 3,   /* GPU lost: see WIRE_GPU_LOST */
	WIRE_FAULT_HANG = 4,   /* driver calls hang for a time */
	WIRE_FAULT_NVML = 5,   /* NVML calls fail */
	WIRE_FAULT_MIG_DESTROY = 6,  /* destroying MIG instances says IN_USE for a time */
	WIRE_FAULT_LIST_MANAGED = 7, /* NVML's figures of processes have managed memory in them */
	WIRE_FAULT_MIG_CREATE = 8,   /* making MIG instances fails */
	WIRE_FAULT_MIG_HOLD = 9,     /* somebody holds a handle: nothing MIG can be destroyed or
					switched; `pid`: for as long as that process is connected */
	WIRE_FAULT_MIG_TIME = 10,    /* making and destroying instances takes delay_ns; 0: what real
					ones take */
	WIRE_FAULT_MIG_CAPACITY = 11, /* RemainingCapacity tells the most there could ever be */
	WIRE_FAULT_MIG_IDS = 12,      /* GPU instance IDs count from the other end */
	WIRE_FAULT_MIG_MODE = 13,     /* a change of the mode stays pending until a reset */
	WIRE_FAULT_MIG_CLIENTS = 14,  /* nor while any other process has the driver open (Ampere) */
	WIRE_FAULT_VGPU = 15,         /* the GPU is a virtual machine's: MIG cannot be managed */
	WIRE_FAULTS = 16,
};

/* A client that sees the fault's bit in wire_host.faults asks whether it is meant for its call. */
struct wire_fault_take {
	struct wire_head head;
	uint32_t fault; /* enum wire_fault */
	wire_device device;
	char call[WIRE_NAME_MAX]; /* the API call, e.g. "cuLaunchKernel" */
};

struct wire_fault_reply {
	struct wire_head head;
	uint32_t hit;      /* 0: not for you, go on */
	int32_t error;     /* CUresult or nvmlReturn_t to return; 0: the usual one, or only slow */
	uint64_t delay_ns; /* first sleep so long */
};

/* Arms one; a zero field means "any" or "for ever". */
struct wire_fault_set {
	struct wire_head head;
	uint32_t fault;
	uint32_t clear;     /* 1: disarm all of this kind instead; WIRE_FAULTS as kind: all kinds */
	wire_device device; /* with any_device 0 */
	uint32_t any_device;
	int32_t pid;
	int32_t error;
	uint32_t skip;     /* let so many calls pass first */
	uint32_t count;    /* hit so many calls */
	uint64_t delay_ns; /* each hit sleeps so long first */
	uint64_t for_ns;   /* disarmed after that */
	uint32_t after;    /* 1: what was asked is done, and then the call fails; MIG_* */
	uint32_t spare;
	char call[WIRE_NAME_MAX]; /* only this call */
};

/* Resets a GPU, or with `reboot` starts the machine's driver anew. Instances are gone, a pending
 * MIG mode becomes the current one, and processes that used the GPU lose their connection. */
struct wire_gpu_reset {
	struct wire_head head;
	wire_device device; /* with any_device 0 */
	uint32_t any_device;
	uint32_t reboot;
	uint32_t spare;
};

/* A reply's status below this is a number of NVML's: WIRE_STATUS_NVML - nvmlReturn_t. */
#define WIRE_STATUS_NVML (-1000000)

_Static_assert(sizeof(struct wire_item) == 40, "packed without holes");
_Static_assert(sizeof(struct wire_queue) == 64, "a cache line each");
_Static_assert(sizeof(struct wire_submit) + WIRE_SUBMIT_MAX * sizeof(struct wire_item) <=
		       WIRE_PACKET_MAX,
	       "fits a packet");
_Static_assert(sizeof(struct wire_process_list) +
			       WIRE_PROCESSES_MAX * sizeof(struct wire_process) <=
		       WIRE_PACKET_MAX,
	       "fits a packet");
