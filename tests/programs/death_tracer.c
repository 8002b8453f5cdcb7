/* Steps a process through the front's instructions and kills it at one of them, again and again,
 * each time further on, until it gets through.
 *
 *   death_tracer SCENARIO STRIDE OFFSET [END]
 *   death_tracer SCENARIO states STRIDE OFFSET
 *
 * Runs in a slice, over any driver. Only instructions of the preloaded front count: what it calls
 * runs to its return at full speed. With a stride, every so-manieth instruction is killed at
 * (before END). With `states`, each so-manieth state is killed at instead. A state is one
 * instruction of every run of them in which nothing changed that outlives the process: the ledger
 * is the same, byte for byte, and nothing was called. At any of those the rest of the world is the
 * same, so one stands for all.
 *
 * After every kill a neighbour in the slice must get memory at once, and within a second all that
 * was free before the killed process began. Tells how far it is where stderr is a terminal; prints
 * how many were killed, and how many instructions of the front the last one got through. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/macros.h"
#include "proto/ledger.h"
#include "slice_families.h"

#define BREAKPOINT 0xCCul

/* ---- The calls that are traced ---- */

static void expect(bool holds)
{
	if (!holds)
		_exit(3);
}

static void begin(void)
{
	CUcontext context;

	expect(cuInit(0) == CUDA_SUCCESS);
	expect(cuDevicePrimaryCtxRetain(&context, 0) == CUDA_SUCCESS);
	expect(cuCtxSetCurrent(context) == CUDA_SUCCESS);
}

/* From here on the tracer counts. */
static void trace_me(void)
{
	ptrace(PTRACE_TRACEME, 0, NULL, NULL);
	raise(SIGSTOP);
}

static void take_and_give(const char *name, size_t bytes)
{
	const struct slice_family *family = slice_family_find(name);
	union slice_piece piece;

	expect(family->take(&piece, bytes) == CUDA_SUCCESS);
	expect(family->give(&piece, bytes) == CUDA_SUCCESS);
}

static void run_linear(void)
{
	CUdeviceptr ptr;

	begin();
	trace_me();
	take_and_give("linear", MIB(10));
	take_and_give("linear", 1000);
	expect(cuMemAlloc_v2(&ptr, GIB(64)) == CUDA_ERROR_OUT_OF_MEMORY);
	expect(cuMemAlloc_v2(&ptr, MIB(30)) == CUDA_SUCCESS);
}

static void run_vmm(void)
{
	begin();
	trace_me();
	take_and_give("mapped", MIB(20));
	take_and_give("vmm", MIB(20));
}

/* Objects that others may have a handle to: the driver keeps it for an import, and for a
 * descriptor. */
static void run_exported(void)
{
	const CUmemAllocationProp prop = {
		.type = CU_MEM_ALLOCATION_TYPE_PINNED,
		.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
		.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0},
	};
	CUmemGenericAllocationHandle handle, import;
	int fd;

	begin();
	trace_me();
	expect(cuMemCreate(&handle, MIB(20), &prop, 0) == CUDA_SUCCESS);
	expect(cuMemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
					    0) == CUDA_SUCCESS);
	expect(cuMemRelease(handle) == CUDA_SUCCESS);
	expect(cuMemImportFromShareableHandle(&import, (void *)(intptr_t)fd,
					      CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) ==
	       CUDA_SUCCESS);
	close(fd);
	expect(cuMemRelease(import) == CUDA_SUCCESS);
}

static void run_pool(void)
{
	begin();
	trace_me();
	take_and_give("async", MIB(40));
	take_and_give("pool", MIB(40));
}

/* In a pool that has a gap of 150 MiB, where the slice has too little room for the pool to grow by
 * as much, and enough for the neighbour. */
static void run_tight(void)
{
	CUdeviceptr gap, rest, ptr;
	size_t free_bytes, total;

	begin();
	expect(cuMemAllocAsync(&gap, MIB(150), NULL) == CUDA_SUCCESS);
	expect(cuMemAllocAsync(&rest, MIB(1), NULL) == CUDA_SUCCESS);
	expect(cuMemFreeAsync(gap, NULL) == CUDA_SUCCESS && cuCtxSynchronize() == CUDA_SUCCESS);
	expect(cuMemGetInfo_v2(&free_bytes, &total) == CUDA_SUCCESS);
	expect(cuMemAlloc_v2(&ptr, ALIGN_UP(free_bytes - MIB(112), MIB(2))) == CUDA_SUCCESS);
	trace_me();
	expect(cuMemAllocAsync(&ptr, MIB(200), NULL) == CUDA_ERROR_OUT_OF_MEMORY);
	expect(cuMemAllocAsync(&ptr, MIB(120), NULL) == CUDA_SUCCESS);
	expect(cuMemFreeAsync(ptr, NULL) == CUDA_SUCCESS);
}

static void run_array(void)
{
	begin();
	trace_me();
	take_and_give("array", MIB(16));
	take_and_give("mipmap", MIB(16));
}

static void run_attach(void)
{
	int version;

	/* The driver is loaded; the slice isn't asked for yet. */
	expect(cuDriverGetVersion(&version) == CUDA_SUCCESS);
	trace_me();
	begin();
}

static void run_context(void)
{
	CUcontext context;
	CUdeviceptr ptr;

	begin();
	trace_me();
	expect(cuCtxCreate_v2(&context, 0, 0) == CUDA_SUCCESS);
	expect(cuMemAlloc_v2(&ptr, MIB(10)) == CUDA_SUCCESS);
	expect(cuCtxDestroy_v2(context) == CUDA_SUCCESS);
	expect(cuDevicePrimaryCtxReset_v2(0) == CUDA_SUCCESS);
}

/* Kernels whose threads need more than a context has: they get it, and are refused. */
static void run_local(void)
{
	static const char ptx[] = ".version 8.0\n.target sm_80\n.address_size 64\n"
				  ".visible .entry some()\n{\n.local .b8 l[1200];\nret;\n}\n"
				  ".visible .entry most()\n{\n.local .b8 l[90000];\nret;\n}\n";
	CUfunction some, most;
	CUmodule module;

	begin();
	expect(cuModuleLoadData(&module, ptx) == CUDA_SUCCESS);
	trace_me();
	expect(cuModuleGetFunction(&some, module, "some") == CUDA_SUCCESS);
	expect(cuModuleGetFunction(&most, module, "most") == CUDA_SUCCESS);
	expect(cuLaunchKernel(some, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL) == CUDA_SUCCESS);
	expect(cuLaunchKernel(most, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL) ==
	       CUDA_ERROR_OUT_OF_MEMORY);
}

static CUdeviceptr inherited;

/* A child of fork of a process that holds memory: the parent's is not its own, and the driver's
 * word for it is that it is not initialised. The child is the one that is traced. */
static void run_fork(void)
{
	CUdeviceptr ptr;
	size_t total;

	trace_me();
	expect(cuDeviceTotalMem_v2(&total, 0) != CUDA_SUCCESS);
	expect(cuMemAlloc_v2(&ptr, MIB(20)) != CUDA_SUCCESS);
	expect(cuMemFree_v2(inherited) != CUDA_SUCCESS);
}

static const struct scenario {
	const char *name;
	void (*run)(void);
	bool of_a_user; /* the parent, too, has a context and memory */
} scenarios[] = {
	{"linear", run_linear},   {"vmm", run_vmm},       {"pool", run_pool},
	{"array", run_array},     {"attach", run_attach}, {"context", run_context},
	{"fork", run_fork, true}, {"tight", run_tight},   {"exported", run_exported},
	{"local", run_local},
};

/* ---- The neighbour: a process of the same slice that answers a byte with a byte ---- */

struct neighbour {
	int ask, answer;
};

static size_t room(void)
{
	size_t free_bytes = 0, total;

	cuMemGetInfo_v2(&free_bytes, &total);
	return free_bytes;
}

static bool allocates(size_t bytes)
{
	CUdeviceptr ptr;

	return cuMemAlloc_v2(&ptr, bytes) == CUDA_SUCCESS && cuMemFree_v2(ptr) == CUDA_SUCCESS;
}

static bool all_is_back(size_t all)
{
	for (int i = 0; i < 1000; i++) {
		if (room() == all)
			return allocates(all);
		nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
	}
	fprintf(stderr, "%zu bytes are free a second after a death, not %zu\n", room(), all);
	return false;
}

static void neighbour_run(int asked, int answers)
{
	char byte = 0;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	begin();
	size_t all = 0;
	while (read(asked, &byte, 1) == 1) {
		all = all ? all : room();
		byte = !allocates(MIB(100)) || !all_is_back(all);
		if (write(answers, &byte, 1) != 1)
			break;
	}
	_exit(0);
}

/* True where the neighbour says that all is well. The memory that is free the first time is what
 * must be. */
static bool neighbour_agrees(const struct neighbour *n)
{
	char byte = 1;

	return write(n->ask, "?", 1) == 1 && read(n->answer, &byte, 1) == 1 && byte == 0;
}

static bool neighbour_start(struct neighbour *ret)
{
	int asked[2], answers[2];

	if (pipe(asked) < 0 || pipe(answers) < 0)
		return false;
	if (fork() == 0)
		neighbour_run(asked[0], answers[1]);
	*ret = (struct neighbour){asked[1], answers[0]};
	return true;
}

/* ---- Tracing ---- */

struct range {
	uintptr_t start, end;
};

/* Where the program and the front have their instructions: the same in all children of fork. */
static struct range front, program;

static bool in(const struct range *r, uintptr_t address)
{
	return address >= r->start && address < r->end;
}

static bool is_front(const char *path)
{
	return strstr(path, "front/libcuda.so.1") != NULL;
}

static bool ranges_find(void)
{
	FILE *f = fopen("/proc/self/maps", "re");
	char line[512];

	while (f && fgets(line, sizeof(line), f)) {
		struct range r;

		if (sscanf(line, "%lx-%lx r-xp", &r.start, &r.end) != 2 || !strstr(line, " r-xp "))
			continue;
		if (is_front(line))
			front = r;
		else if (in(&r, (uintptr_t)ranges_find))
			program = r;
	}
	if (f)
		fclose(f);
	return front.end && program.end;
}

/* Runs until the address is reached. The process may have other children: the break-point is for
 * the time of one call. */
static void run_to(pid_t child, uintptr_t address, int *status)
{
	long word = ptrace(PTRACE_PEEKTEXT, child, address, NULL);
	struct user_regs_struct registers;

	ptrace(PTRACE_POKETEXT, child, address, (word & ~0xFFl) | BREAKPOINT);
	ptrace(PTRACE_CONT, child, NULL, NULL);
	waitpid(child, status, 0);
	if (!WIFSTOPPED(*status))
		return;
	ptrace(PTRACE_POKETEXT, child, address, word);
	ptrace(PTRACE_GETREGS, child, NULL, &registers);
	registers.rip = address;
	ptrace(PTRACE_SETREGS, child, NULL, &registers);
}

/* One step; out of the front and the program, to the return into them: true, it was a call. */
static bool advance(pid_t child, int *status)
{
	struct user_regs_struct registers;

	ptrace(PTRACE_SINGLESTEP, child, NULL, NULL);
	waitpid(child, status, 0);
	if (!WIFSTOPPED(*status))
		return true;
	ptrace(PTRACE_GETREGS, child, NULL, &registers);
	if (in(&front, registers.rip) || in(&program, registers.rip))
		return false;
	uintptr_t back = (uintptr_t)ptrace(PTRACE_PEEKDATA, child, registers.rsp, NULL);
	if (in(&front, back) || in(&program, back))
		run_to(child, back, status);
	return true;
}

static bool at_front(pid_t child)
{
	struct user_regs_struct registers;

	ptrace(PTRACE_GETREGS, child, NULL, &registers);
	return in(&front, registers.rip);
}

/* ---- The state that outlives a process: the session's ledger, as it was when it was last looked
 * at ---- */

static struct {
	const char *at;
	char *seen;
	size_t size; /* 0: it is not known yet */
} ledger;

/* Maps the ledger that the child has open, if it has. */
static void ledger_find(pid_t child)
{
	char path[64], link[64];

	for (int fd = 3; fd < 256; fd++) {
		snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)child, fd);
		ssize_t n = readlink(path, link, sizeof(link) - 1);
		link[MAX(n, 0)] = '\0';
		if (!strstr(link, "carve-ledger:"))
			continue;
		int own = open(path, O_RDONLY | O_CLOEXEC);
		void *at = mmap(NULL, sizeof(struct ledger_header), PROT_READ, MAP_SHARED, own, 0);
		size_t size = at == MAP_FAILED ? 0 : ((struct ledger_header *)at)->time_offset;

		ledger.at = mmap(NULL, size, PROT_READ, MAP_SHARED, own, 0);
		ledger.seen = calloc(1, size);
		if (!size || ledger.at == MAP_FAILED || !ledger.seen)
			_exit(3);
		ledger.size = size;
		close(own);
		return;
	}
}

/* Whether it differs from what was seen. Others write to it, too: that is one state more. */
static bool ledger_changed(pid_t child, bool called)
{
	if (!ledger.size && called)
		ledger_find(child);
	if (!ledger.size || memcmp(ledger.at, ledger.seen, ledger.size) == 0)
		return false;
	memcpy(ledger.seen, ledger.at, ledger.size);
	return true;
}

/* ---- Killing ---- */

struct point {
	bool states; /* what is counted: states, else instructions */
	long at;     /* which one is to be killed at */
	long passed; /* instructions of the front that it got through */
};

/* Kills the child before its so-manieth instruction in the front, or in its so-manieth state;
 * false: it ended before. */
static bool step_and_kill(pid_t child, struct point *point, int *status)
{
	bool fresh = true;
	long left = point->at;

	waitpid(child, status, 0);
	if (point->states)
		(void)ledger_changed(child, true);
	for (point->passed = 0; WIFSTOPPED(*status);) {
		if (at_front(child)) {
			if ((fresh || !point->states) && left-- == 0)
				break;
			fresh = false;
			point->passed++;
		}
		bool called = advance(child, status);
		if (point->states)
			fresh |= called || ledger_changed(child, called);
	}
	if (!WIFSTOPPED(*status))
		return false;
	kill(child, SIGKILL);
	waitpid(child, status, 0);
	return true;
}

static int run(const struct scenario *scenario, struct point point, long stride, long end)
{
	struct neighbour neighbour;
	long kills = 0;
	int status = 0;

	if (!ranges_find() || !neighbour_start(&neighbour))
		return 2;
	if (scenario->of_a_user) {
		begin();
		expect(cuMemAlloc_v2(&inherited, MIB(10)) == CUDA_SUCCESS);
	}
	if (!neighbour_agrees(&neighbour))
		return 2;
	for (; point.at < end; point.at += stride, kills++) {
		pid_t child = fork();

		if (child == 0) {
			scenario->run();
			_exit(0);
		}
		bool killed = step_and_kill(child, &point, &status);
		if (!neighbour_agrees(&neighbour)) {
			fprintf(stderr, "after a death at %s %ld, instruction %ld\n",
				point.states ? "state" : "instruction", point.at, point.passed);
			return 1;
		}
		if (!killed)
			break;
		if (isatty(STDERR_FILENO))
			fprintf(stderr, "\r%s: %ld killed", scenario->name, kills);
	}
	printf("%ld %ld\n", kills, point.passed);
	if (point.at >= end)
		return 0;
	return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : 1;
}

int main(int argc, char **argv)
{
	struct point point = {.states = argc == 5 && strcmp(argv[2], "states") == 0};
	char **numbers = argv + 2 + point.states;
	long stride = argc >= 4 ? strtol(numbers[0], NULL, 10) : 0, end = LONG_MAX;

	if (!point.states && argc > 4)
		end = strtol(argv[4], NULL, 10);
	for (size_t i = 0; stride > 0 && i < ARRAY_SIZE(scenarios); i++) {
		if (strcmp(argv[1], scenarios[i].name) != 0)
			continue;
		point.at = strtol(numbers[1], NULL, 10);
		return run(&scenarios[i], point, stride, end);
	}
	return 2;
}
