/* Times driver calls: loops of one call each, in batches. Run without and with an interposer
 * before the driver, the difference is what the interposer costs.
 *
 *   calls [--calls N] [--batches N] [--live N]... [--pause MS] [--real | --instructions] [LOOP]...
 *
 * LOOP is a name from the table below; alloc loops run once for every --live count of other living
 * allocations (default 0; ascending). A batch has N calls (--calls), or as many as take about half
 * a millisecond. After a first launch it pauses (--pause), for what happens once in the background.
 * --real: the driver is no null driver. Launches are of a kernel that does nothing, few enough in a
 * batch that the driver never has to wait for room in its queue; batches end before the next.
 * cuInit and the making of a context are always timed, once: they come first. Prints
 * a JSON array of {"loop", "live", "calls", "ns": [of one call, by batch]}.
 * --instructions: times nothing, but counts what each of --calls calls (9) executes (step.h), after
 * some that are not counted: {"loop", "live", "calls", "instructions", "locked", "syscalls": [by
 * call]}.
 *
 * A second thread does nothing: every program has more than one that uses a real driver, and locks
 * that cost nothing without it would flatter. Before and after each series, write(2) is called with
 * a descriptor that cannot be: a system call tracer sees where the series begins and ends. Exit
 * status 1: a call failed. */
#include <dlfcn.h>
#include <getopt.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/cuda_abi.h"
#include "base/macros.h"
#include "step.h"

#define BATCH_NS 5e5
#define BATCHES_MOST 64
#define LIVE_COUNTS_MOST 16
#define LIVE_BYTES 1024
#define REAL_CALLS_MOST 512l
#define STEPPED 9l
#define STEPPED_MOST 64
#define WARM 1000

static long fixed_calls;
static long batches = 5;
static bool instructions;
static _Atomic unsigned long counter;
static const char *separator = "";

static double now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static void must(CUresult result, const char *what)
{
	if (result == CUDA_SUCCESS)
		return;
	fprintf(stderr, "calls: %s: error %d\n", what, (int)result);
	exit(1);
}

static void loop_forwarded(long n)
{
	int version;

	while (n--)
		cuDriverGetVersion(&version);
}

/* A yardstick: the driver's function as a linked program calls it, with one jump through memory
 * more on the way, the least that can stand before it. */
CUresult (*jump_first)(int *version);
CUresult (*jump_second)(int *version);
CUresult jump_trampoline(int *version);
CUresult jump_again(int *version);
__asm__(".text; .balign 16; jump_trampoline: jmp *jump_first(%rip);"
	".balign 16; jump_again: jmp *jump_second(%rip)");

static void loop_jump(long n)
{
	int version;

	jump_first = jump_again;
	jump_second = (CUresult(*)(int *))dlsym(RTLD_DEFAULT, "cuDriverGetVersion");
	while (n--)
		jump_trampoline(&version);
}

/* As the CUDA runtime and what is built on it call the driver. */
static void loop_looked_up(long n)
{
	static CUresult (*get_version)(int *version);
	int version;

	if (!get_version)
		must(cuGetProcAddress_v2("cuDriverGetVersion", (void **)&get_version,
					 CUDA_ABI_VERSION, 0, NULL),
		     "cuGetProcAddress");
	while (n--)
		get_version(&version);
}

static void loop_launch(long n)
{
	while (n--)
		must(cuLaunchKernel(NULL, 0, 0, 0, 0, 0, 0, 0, NULL, NULL, NULL), "cuLaunchKernel");
}

static void loop_graph_launch(long n)
{
	static CUgraphExec exec;
	CUgraph graph;

	if (!exec) {
		must(cuGraphCreate(&graph, 0), "cuGraphCreate");
		must(cuGraphInstantiateWithFlags(&exec, graph, 0), "cuGraphInstantiate");
	}
	while (n--)
		must(cuGraphLaunch(exec, NULL), "cuGraphLaunch");
}

/* ---- over a real driver ------------------------------------------------------------------- */

static struct {
	bool wanted;
	CUfunction kernel;
	CUgraphExec graph;
	CUdeviceptr buffer;
	CUresult (*synchronize)(void);
} real;

/* Functions that the null driver does not have are looked up. */
#define REAL(name, ...) ((CUresult(*)(__VA_ARGS__))real_find(#name))

static void *real_find(const char *name)
{
	void *function = dlsym(RTLD_DEFAULT, name);

	must(function ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND, name);
	return function;
}

static void real_launch(long n)
{
	while (n--)
		must(cuLaunchKernel(real.kernel, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL),
		     "cuLaunchKernel");
}

static void real_graph_launch(long n)
{
	while (n--)
		must(cuGraphLaunch(real.graph, NULL), "cuGraphLaunch");
}

static void real_memcpy(long n)
{
	char from[16] = {0};

	while (n--)
		must(cuMemcpyHtoD_v2(real.buffer, from, sizeof(from)), "cuMemcpyHtoD");
}

static void real_start(void)
{
	static const char ptx[] = ".version 7.0\n.target sm_70\n.address_size 64\n"
				  ".visible .entry nothing()\n{\n\tret;\n}\n";
	CUmodule module;
	CUstream stream;
	CUgraph graph;

	real.synchronize = (CUresult(*)(void))real_find("cuCtxSynchronize");
	must(REAL(cuModuleLoadData, CUmodule *, const void *)(&module, ptx), "cuModuleLoadData");
	must(REAL(cuModuleGetFunction, CUfunction *, CUmodule, const char *)(&real.kernel, module,
									     "nothing"),
	     "cuModuleGetFunction");
	must(cuMemAlloc_v2(&real.buffer, LIVE_BYTES), "cuMemAlloc");
	must(REAL(cuStreamCreate, CUstream *, unsigned int)(&stream, CU_STREAM_NON_BLOCKING),
	     "cuStreamCreate");
	must(REAL(cuStreamBeginCapture_v2, CUstream,
		  CUstreamCaptureMode)(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL),
	     "cuStreamBeginCapture");
	must(cuLaunchKernel(real.kernel, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL),
	     "cuLaunchKernel");
	must(REAL(cuStreamEndCapture, CUstream, CUgraph *)(stream, &graph), "cuStreamEndCapture");
	must(cuGraphInstantiateWithFlags(&real.graph, graph, 0), "cuGraphInstantiate");
}

static void loop_memcpy(long n)
{
	char from[16] = {0};

	while (n--)
		must(cuMemcpyHtoD_v2(GIB(1), from, sizeof(from)), "cuMemcpyHtoD");
}

static void alloc_free(long n, size_t bytes)
{
	while (n--) {
		CUdeviceptr ptr;

		must(cuMemAlloc_v2(&ptr, bytes), "cuMemAlloc");
		must(cuMemFree_v2(ptr), "cuMemFree");
	}
}

/* A size that is charged by itself: every call changes the session's books. */
static void loop_alloc_free(long n)
{
	alloc_free(n, MIB(2));
}

/* A size of which the driver packs many into one block. */
static void loop_alloc_free_small(long n)
{
	alloc_free(n, LIVE_BYTES);
}

static void loop_get_proc_address(long n)
{
	while (n--) {
		void *function;

		must(cuGetProcAddress_v2("cuMemAlloc", &function, CUDA_ABI_VERSION, 0, NULL),
		     "cuGetProcAddress");
	}
}

/* A yardstick: no driver call, but an instruction that books in shared memory are made of. */
static void loop_locked_add(long n)
{
	while (n--)
		atomic_fetch_add(&counter, 1);
}

struct loop {
	const char *name;
	void (*run)(long n);
	bool allocates;
	void (*real)(long n); /* over a real driver; NULL: the same */
};

static const struct loop loops[] = {
	{"forwarded", loop_forwarded},
	{"jump", loop_jump},
	{"looked_up", loop_looked_up},
	{"launch", loop_launch, .real = real_launch},
	{"graph_launch", loop_graph_launch, .real = real_graph_launch},
	{"memcpy", loop_memcpy, .real = real_memcpy},
	{"get_proc_address", loop_get_proc_address},
	{"alloc_free", loop_alloc_free, true},
	{"alloc_free_small", loop_alloc_free_small, true},
	{"locked_add", loop_locked_add},
};

static void mark(const char *what, const char *name, long live, long calls)
{
	char text[96];
	int length =
		snprintf(text, sizeof(text), "%s %s live=%ld calls=%ld", what, name, live, calls);

	if (write(-1, text, (size_t)length) >= 0)
		exit(1);
}

static void print_series(const char *name, long live, long calls, const double *ns, long count)
{
	printf("%s{\"loop\": \"%s\", \"live\": %ld, \"calls\": %ld, \"ns\": [", separator, name,
	       live, calls);
	for (long i = 0; i < count; i++)
		printf("%s%.4f", i ? ", " : "", ns[i]);
	printf("]}");
	separator = ",\n ";
}

static void run_loop(const struct loop *loop, long calls)
{
	(real.wanted && loop->real ? loop->real : loop->run)(calls);
}

static double time_batch(const struct loop *loop, long calls)
{
	double begin = now_ns();

	run_loop(loop, calls);
	double ns = now_ns() - begin;
	if (real.wanted)
		must(real.synchronize(), "cuCtxSynchronize");
	return ns;
}

/* How many calls make a batch. Finding out makes some: what is set up once was, then. */
static long batch_calls(const struct loop *loop)
{
	long calls = 16;

	long most = real.wanted && loop->real ? REAL_CALLS_MOST : 1l << 30;

	if (fixed_calls) {
		(void)time_batch(loop, fixed_calls);
		return fixed_calls;
	}
	while (time_batch(loop, calls) < BATCH_NS / 2 && calls < most)
		calls *= 2;
	return calls;
}

static void run_series(const struct loop *loop, long live)
{
	double ns[BATCHES_MOST];
	long calls = batch_calls(loop);

	mark("begin", loop->name, live, calls * batches);
	for (long i = 0; i < batches; i++)
		ns[i] = time_batch(loop, calls) / (double)calls;
	mark("end", loop->name, live, calls * batches);
	print_series(loop->name, live, calls, ns, batches);
}

/* ---- instructions -------------------------------------------------------------------------- */

static struct step_count step_calls(const struct loop *loop, long calls)
{
	step_begin();
	loop->run(calls);
	return step_end();
}

/* Without what counting and the loop around the call take. */
static struct step_count step_call(const struct loop *loop)
{
	struct step_count none = step_calls(loop, 0), one = step_calls(loop, 1);

	return (struct step_count){
		.instructions = one.instructions - none.instructions,
		.locked = one.locked - none.locked,
		.syscalls = one.syscalls - none.syscalls,
	};
}

static void print_counts(const char *name, const struct step_count *counts, long calls,
			 size_t field)
{
	printf(", \"%s\": [", name);
	for (long i = 0; i < calls; i++)
		printf("%s%ld", i ? ", " : "", *(const long *)((const char *)&counts[i] + field));
	printf("]");
}

static void step_series(const struct loop *loop, long live)
{
	struct step_count counts[STEPPED_MOST];
	long calls = fixed_calls ? fixed_calls : STEPPED;

	loop->run(WARM);
	for (long i = 0; i < calls; i++)
		counts[i] = step_call(loop);
	printf("%s{\"loop\": \"%s\", \"live\": %ld, \"calls\": %ld", separator, loop->name, live,
	       calls);
	print_counts("instructions", counts, calls, offsetof(struct step_count, instructions));
	print_counts("locked", counts, calls, offsetof(struct step_count, locked));
	print_counts("syscalls", counts, calls, offsetof(struct step_count, syscalls));
	printf("}");
	separator = ",\n ";
}

static void start_driver(void)
{
	CUcontext context;
	double begin = now_ns();

	must(cuInit(0), "cuInit");
	double ns = now_ns() - begin;
	print_series("init", 0, 1, &ns, 1);
	begin = now_ns();
	must(cuDevicePrimaryCtxRetain(&context, 0), "cuDevicePrimaryCtxRetain");
	must(cuCtxSetCurrent(context), "cuCtxSetCurrent");
	ns = now_ns() - begin;
	print_series("context", 0, 1, &ns, 1);
}

static void fill(long *live, long wanted)
{
	CUdeviceptr ptr;

	for (; *live < wanted; (*live)++)
		must(cuMemAlloc_v2(&ptr, LIVE_BYTES), "cuMemAlloc");
}

static bool wanted(const struct loop *loop, char **names)
{
	for (; *names; names++)
		if (strcmp(*names, loop->name) == 0)
			return true;
	return false;
}

static bool known(const char *name)
{
	for (size_t i = 0; i < ARRAY_SIZE(loops); i++)
		if (strcmp(loops[i].name, name) == 0)
			return true;
	return false;
}

static void run_loops(char **names, bool allocating, long live)
{
	for (size_t i = 0; i < ARRAY_SIZE(loops); i++)
		if (loops[i].allocates == allocating && wanted(&loops[i], names))
			(instructions ? step_series : run_series)(&loops[i], live);
}

static void *sleep_for_ever(void *unused)
{
	for (;;)
		pause();
	return NULL;
}

static int usage(void)
{
	fprintf(stderr, "usage: calls [--calls N] [--batches N] [--live N]... [--pause MS] "
			"[--real | --instructions] [LOOP]...\n");
	return 2;
}

/* The options of the command line; the loops' names are left over, from argv[optind] on. */
struct plan {
	long live_counts[LIVE_COUNTS_MOST];
	int live_count;
	long pause_ms;
};

static bool parse(struct plan *plan, int argc, char **argv)
{
	static const struct option options[] = {
		{"calls", 1, NULL, 'c'},
		{"batches", 1, NULL, 'b'},
		{"live", 1, NULL, 'l'},
		{"pause", 1, NULL, 'p'},
		{"real", 0, NULL, 'r'},
		{"instructions", 0, NULL, 'i'},
		{0},
	};

	for (int c; (c = getopt_long(argc, argv, "", options, NULL)) != -1;) {
		if (c == 'c')
			fixed_calls = strtol(optarg, NULL, 10);
		else if (c == 'b')
			batches = strtol(optarg, NULL, 10);
		else if (c == 'l' && plan->live_count < LIVE_COUNTS_MOST)
			plan->live_counts[plan->live_count++] = strtol(optarg, NULL, 10);
		else if (c == 'p')
			plan->pause_ms = strtol(optarg, NULL, 10);
		else if (c == 'r')
			real.wanted = true;
		else if (c == 'i')
			instructions = true;
		else
			return false;
	}
	if (instructions && (real.wanted || fixed_calls < 0 || fixed_calls > STEPPED_MOST))
		return false;
	for (char **name = argv + optind; *name; name++)
		if (!known(*name))
			return false;
	return batches >= 1 && batches <= BATCHES_MOST;
}

int main(int argc, char **argv)
{
	struct plan plan = {0};
	long live = 0;

	if (!parse(&plan, argc, argv))
		return usage();
	if (instructions && !step_init()) {
		fprintf(stderr, "calls: this machine does not trap after single instructions\n");
		return 1;
	}
	pthread_t second;
	if (pthread_create(&second, NULL, sleep_for_ever, NULL) != 0)
		return 1;
	printf("[");
	start_driver();
	if (real.wanted)
		real_start();
	if (plan.pause_ms > 0) {
		(real.wanted ? real_launch : loop_launch)(1);
		usleep((useconds_t)plan.pause_ms * 1000);
	}
	run_loops(argv + optind, false, 0);
	for (int i = 0; i < MAX(plan.live_count, 1); i++) {
		fill(&live, plan.live_counts[i]);
		run_loops(argv + optind, true, live);
	}
	printf("]\n");
	return 0;
}
