/* An interpreter for documented PTX: text in, a module of kernels and variables out, launches run
 * on the calling thread. It knows nothing of CUDA's driver: memory, time and printing are the
 * caller's, through callbacks.
 *
 * A module is compiled, and its variables are placed by the caller (ptx_module_bind). From then on
 * it is read-only: any number of launches may run from it at once, each on its own thread.
 *
 * Source of names, semantics and constants: "Parallel Thread Execution ISA", NVIDIA's public
 * manual. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Generic addresses. Global (and const) memory has the addresses that the caller gives it, all
 * below PTX_WINDOW_SHARED; the other spaces are windows of 4 GiB above every address of a user
 * process. */
#define PTX_WINDOW_SHARED 0x0100000000000000ULL
#define PTX_WINDOW_LOCAL 0x0200000000000000ULL
#define PTX_WINDOW_PARAM 0x0300000000000000ULL
#define PTX_WINDOW_CODE 0x0400000000000000ULL /* addresses of functions; not readable */
#define PTX_WINDOW_GRID 0x0500000000000000ULL /* a cooperative launch's workspace */
#define PTX_WINDOW_SIZE 0x0000000100000000ULL

/* The PTX that is understood: `.version` 1.0 to 9.0 and `.target` sm_10 to sm_121. */
#define PTX_VERSION_MAX 90

struct ptx_module;

struct ptx_source {
	const char *text; /* need not be NUL-terminated; a NUL ends it */
	size_t length;
	const char *name; /* for messages; may be NULL */
};

struct ptx_options {
	int sm;              /* the device, 10 * major + minor: 90 */
	int ptx_version_max; /* 10 * major + minor; 0: PTX_VERSION_MAX */
};

/* Compiles and links the sources into one module (externs of one are found in another). On failure
 * *ret_module is untouched and `log` (if log_size > 0) holds NUL-terminated lines such as "ptx line
 * 12: unknown instruction 'foo'". Any bytes are safe to give. Returns 0 or
 *
 *   -EINVAL   syntax error, unknown or unsupported instruction (named in the log)
 *   -ENOTSUP  .version or .target newer than the options allow
 *   -ENOENT   an extern function or variable is defined nowhere (named in the log)
 *   -EEXIST   two sources define the same visible symbol
 *   -ENOMEM */
int ptx_module_compile(const struct ptx_source *sources, size_t source_count,
		       const struct ptx_options *options, char *log, size_t log_size,
		       struct ptx_module **ret_module);
/* No launch may be running. NULL is allowed. */
void ptx_module_free(struct ptx_module *module);

/* --- kernels: .entry functions, in the order of the text. Strings live as long as the module. */
struct ptx_param {
	uint32_t offset; /* bytes, in the parameter buffer */
	uint32_t size;
};

struct ptx_kernel_info {
	const char *name;
	uint32_t param_count;
	const struct ptx_param *params;
	uint32_t param_bytes;  /* end of the last parameter */
	uint32_t shared_bytes; /* static .shared */
	uint32_t const_bytes;  /* .const of the module */
	uint32_t local_bytes;  /* for one thread, callees included unless they recurse */
	uint32_t registers;    /* 32-bit registers of one thread: an estimate from liveness */
	uint32_t max_threads;  /* a block: .maxntid, .reqntid or 1024 */
	uint32_t maxntid[3];   /* 0 0 0: not given */
	uint32_t reqntid[3];   /* 0 0 0: not given; a launch with other dims must be refused */
	uint32_t reqnctapercluster[3]; /* 0 0 0: not given */
	int ptx_version;               /* 10 * major + minor, of the text */
	int sm;                        /* from .target: 10 * major + minor */
};

size_t ptx_module_kernel_count(const struct ptx_module *module);
/* index < count. */
const struct ptx_kernel_info *ptx_module_kernel(const struct ptx_module *module, size_t index);
/* Index of the kernel, or -ENOENT. */
int ptx_module_kernel_find(const struct ptx_module *module, const char *name);

/* --- variables: module-scope .global and .const. The caller gives each a place. */
enum ptx_space {
	PTX_SPACE_GLOBAL,
	PTX_SPACE_CONST,
};

struct ptx_variable_info {
	const char *name;
	enum ptx_space space;
	uint64_t size; /* bytes, >= 1 */
	uint32_t align;
	bool visible; /* .visible, .weak or .common */
};

size_t ptx_module_variable_count(const struct ptx_module *module);
const struct ptx_variable_info *ptx_module_variable(const struct ptx_module *module, size_t index);
int ptx_module_variable_find(const struct ptx_module *module, const char *name);
/* Says where each variable lies (one address a variable, in order; count is checked: -EINVAL). To
 * be called once before the first launch, also with count 0; it patches the code. */
int ptx_module_bind(struct ptx_module *module, const uint64_t *addresses, size_t count);
/* Writes the variable's initial bytes (addresses of variables and functions resolved) to `bytes` of
 * info->size, which are zeros: those that the text does not give stay so. After ptx_module_bind. */
void ptx_module_variable_init(const struct ptx_module *module, size_t index, void *bytes);

/* --- launches */
struct ptx_range {
	uint64_t start; /* device address */
	uint64_t size;  /* bytes */
	/* Where `start` lies in this process, aligned alike; stays mapped until the launch returns.
	 */
	void *host;
	bool writable;
};

struct ptx_callbacks {
	/* Finds the range that holds `address`; false: none. Answers are cached during a launch. */
	bool (*find_range)(void *user, uint64_t address, struct ptx_range *ret_range);
	/* The device's printf, one call of it a time, formatted. NULL: dropped. */
	void (*print)(void *user, const char *text, size_t length);
	/* %globaltimer, ns. The counts in the launch's result are up to date meanwhile, so that the
	 * answer may depend on them. NULL: CLOCK_REALTIME. */
	uint64_t (*now)(void *user);
	/* How long the launch has run, ns, by which it sleeps; what is paused counts. NULL: `now`.
	 */
	uint64_t (*elapsed)(void *user);
	/* Nothing in this launch can progress for `ns` (> 0); `watching`: it polls memory, so wait
	 * really before long. NULL: sleeps min(ns, 1 ms). */
	void (*pause)(void *user, uint64_t ns, bool watching);
	/* The launch is about to use memory after pauses of 0.2 ms or more: others may have been
	 * meant to use it before. NULL: nothing. */
	void (*meet)(void *user);
	/* Called about every 65536 warp instructions and after each pause, with the count so far;
	 * may block; anything but 0 ends the launch with -ECANCELED. NULL: never. */
	int (*checkpoint)(void *user, uint64_t warp_instructions);
	/* Device malloc and free. NULL: malloc gives NULL. */
	uint64_t (*heap_alloc)(void *user, uint64_t size);
	void (*heap_free)(void *user, uint64_t address);
};

/* Memory of a block, which launches that follow each other on one thread leave for the next one. */
struct ptx_spare;
void ptx_spare_free(struct ptx_spare *spare); /* NULL is allowed */

struct ptx_launch {
	const struct ptx_module *module;
	size_t kernel;
	uint32_t grid[3], block[3]; /* all >= 1; a block of at most 1024 threads */
	uint32_t shared_bytes;      /* dynamic shared memory */
	const void *params;         /* the parameter buffer, laid out by ptx_kernel_info.params */
	size_t param_bytes;
	uint32_t stack_bytes; /* for one thread's calls; 0: 1024 (added to the kernel's local
				 bytes) */
	/* Blocks that are resident at once. 0: they run one after another, and more become resident
	 * when those that run only spin; a cooperative launch wants the whole grid. */
	uint32_t resident_blocks;
	/* %envreg1 and %envreg2 name a workspace, by which cooperative_groups has the grid meet. */
	bool cooperative;
	uint32_t sm_count;        /* %nsmid; 0: 1 */
	uint32_t clock_khz;       /* %clock ticks per ms of `now`; 0: 1000000 */
	uint64_t grid_id;         /* %gridid */
	struct ptx_spare **spare; /* the caller's, to be freed by it; NULL: none is kept */
	const struct ptx_callbacks *callbacks;
	void *user;
};

enum ptx_fault_kind {
	PTX_FAULT_NONE,
	PTX_FAULT_ILLEGAL_ADDRESS,
	PTX_FAULT_MISALIGNED_ADDRESS,
	PTX_FAULT_READ_ONLY,    /* a store into a range that is not writable */
	PTX_FAULT_STACK,        /* calls went deeper than the stack */
	PTX_FAULT_TRAP,         /* trap, brkpt */
	PTX_FAULT_ASSERT,       /* __assertfail */
	PTX_FAULT_ILLEGAL_CALL, /* a call through a pointer that is no function of this shape */
	PTX_FAULT_DEADLOCK,     /* every warp waits at a barrier that can't be completed */
};

struct ptx_result {
	uint64_t warp_instructions;
	uint64_t memory_instructions; /* the loads, stores and atomics among them */
	enum ptx_fault_kind fault;
	uint64_t fault_address;
	uint32_t fault_block[3], fault_thread[3];
	const char *fault_function;
	uint32_t fault_line; /* the line in the text */
};

/* Runs the whole grid. 0, -EFAULT (see result->fault), -ECANCELED, -EINVAL (dimensions, parameter
 * bytes fewer than the kernel's, not bound), -ENOMEM. Memory is written as the kernel goes; atomics
 * are real atomics on the host's memory. The calling thread's floating point environment is kept.
 */
int ptx_launch_run(const struct ptx_launch *launch, struct ptx_result *ret_result);

/* A word for the kind: "illegal address". Static storage. */
const char *ptx_fault_text(enum ptx_fault_kind kind);
