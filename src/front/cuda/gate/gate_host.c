/* Host functions that the program puts into its streams (cuLaunchHostFunc, cuStreamAddCallback).
 * Work behind one waits for it. It may itself wait for a lock that a thread holds which the gate,
 * or the bound, holds up in a launch. Most frameworks launch under a lock that their callbacks
 * take, too. So it is known which of them run, and whether the thread of one sleeps; launches pass
 * then, up to a bound (GATE_HOST_NS_MOST).
 *
 * Why the state of a thread is looked at: the front cannot see which lock a callback waits for.
 * Without this file such a program stands still for good as soon as its GPU is sliced. */
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "front/cuda/gate/gate_parts.h"
#include "front/cuda/hooks.h"

#define CALLS_AT_ONCE 1024u
#define STAT_TEXT 512

/* The function that the driver is given in place of the program's. */
struct gate_host_call {
	struct gate_host_call *next;
	CUhostFn function;
	CUstreamCallback callback;
	void *data;
};

/* ---- calls that wait in streams -------------------------------------------------------------- */

/* Holding the lock. They are never given back: as many as ever waited at a time. */
static void calls_make(struct gate *g)
{
	struct gate_host_call *calls =
		mmap(NULL, CALLS_AT_ONCE * sizeof(*calls), PROT_READ | PROT_WRITE,
		     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	for (uint32_t i = 0; calls != MAP_FAILED && i < CALLS_AT_ONCE; i++) {
		calls[i].next = g->host_calls;
		g->host_calls = &calls[i];
	}
}

/* NULL: there is no memory for it. */
static struct gate_host_call *call_take(struct gate *g)
{
	lock_acquire(&g->host_lock);
	if (!g->host_calls)
		calls_make(g);
	struct gate_host_call *call = g->host_calls;
	if (call)
		g->host_calls = call->next;
	lock_release(&g->host_lock);
	return call;
}

static void call_give(struct gate *g, struct gate_host_call *call)
{
	lock_acquire(&g->host_lock);
	call->next = g->host_calls;
	g->host_calls = call;
	lock_release(&g->host_lock);
}

/* ---- those that run -------------------------------------------------------------------------- */

static void waiters_wake(const struct gate *g)
{
	if (atomic_load(&g->page->waiting))
		syscall(SYS_futex, (uint32_t *)gate_at, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

/* NULL: there is no place for it, and nobody knows of it. */
static _Atomic uint32_t *run_begin(struct gate *g)
{
	uint32_t self = (uint32_t)syscall(SYS_gettid);

	for (uint32_t i = 0; i < GATE_HOSTS_MAX; i++) {
		uint32_t nobody = 0;

		if (atomic_compare_exchange_strong(&g->hosts[i], &nobody, self)) {
			atomic_fetch_add(&g->host_count, 1);
			waiters_wake(g);
			return &g->hosts[i];
		}
	}
	return NULL;
}

static void run_end(struct gate *g, _Atomic uint32_t *place)
{
	if (!place)
		return;
	atomic_store(place, 0);
	atomic_fetch_sub(&g->host_count, 1);
}

/* Its state as proc(5) has it; 0: not known. */
static char thread_state(uint32_t thread)
{
	char path[48], text[STAT_TEXT];

	/* Under a filter of system calls these may be the process's end. No cancellation points. */
	if (prctl(PR_GET_SECCOMP, 0, 0, 0, 0) != 0)
		return 0;
	snprintf(path, sizeof(path), "/proc/self/task/%u/stat", thread);
	long fd = syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return 0;
	long n = syscall(SYS_read, fd, text, sizeof(text) - 1);
	syscall(SYS_close, fd);
	if (n <= 0)
		return 0;
	text[n] = 0;
	/* Behind the name, which may have anything in it. */
	const char *end = strrchr(text, ')');
	return (char)(end && end[1] == ' ' ? end[2] : '\0');
}

bool gate_host_waits(struct gate *g)
{
	for (uint32_t i = 0; gate_host_runs(g) && i < GATE_HOSTS_MAX; i++) {
		uint32_t thread = atomic_load(&g->hosts[i]);

		if (thread && thread_state(thread) == 'S')
			return true;
	}
	return false;
}

/* ---- the driver's calls ---------------------------------------------------------------------- */

static void run_function(void *data)
{
	struct gate *g = gate_peek();
	const struct gate_host_call call = *(struct gate_host_call *)data;

	if (!g) {
		call.function(call.data);
		return;
	}
	call_give(g, data);
	_Atomic uint32_t *place = run_begin(g);
	call.function(call.data);
	run_end(g, place);
}

static void run_callback(CUstream stream, CUresult status, void *data)
{
	struct gate *g = gate_peek();
	const struct gate_host_call call = *(struct gate_host_call *)data;

	if (!g) {
		call.callback(stream, status, call.data);
		return;
	}
	call_give(g, data);
	_Atomic uint32_t *place = run_begin(g);
	call.callback(stream, status, call.data);
	run_end(g, place);
}

/* NULL: it goes to the driver as it is, as into a graph, which may call it any number of times. */
static struct gate_host_call *wrap(CUstream stream, const struct gate_host_call *given)
{
	struct gate *g = gate_is_off() ? NULL : gate_peek();
	CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;

	/* The driver is asked always: a record in a graph would be used more than once. */
	if (!g || real_cuStreamIsCapturing(stream, &status) != CUDA_SUCCESS ||
	    status != CU_STREAM_CAPTURE_STATUS_NONE)
		return NULL;
	struct gate_host_call *call = call_take(g);
	if (call)
		*call = *given;
	return call;
}

/* The driver does not call a function that it refused. */
static CUresult wrapped(struct gate_host_call *call, CUresult result)
{
	if (result != CUDA_SUCCESS)
		call_give(gate_peek(), call);
	return result;
}

#define LAUNCH(name, own_stream)                                                          \
	CUresult hook_##name(CUstream stream, CUhostFn function, void *data)              \
	{                                                                                 \
		const struct gate_host_call given = {.function = function, .data = data}; \
		struct gate_host_call *call = function ? wrap(own_stream, &given) : NULL; \
		return call ? wrapped(call, real_##name(stream, run_function, call))      \
			    : real_##name(stream, function, data);                        \
	}

LAUNCH(cuLaunchHostFunc, gate_stream_of(stream))
LAUNCH(cuLaunchHostFunc_ptsz, gate_stream_ptsz(stream))

/* With the way in which the driver's thread waits for it (CUDA 13.2). */
#define LAUNCH_V2(name, own_stream)                                                             \
	CUresult hook_##name(CUstream stream, CUhostFn function, void *data, unsigned int mode) \
	{                                                                                       \
		const struct gate_host_call given = {.function = function, .data = data};       \
		struct gate_host_call *call = function ? wrap(own_stream, &given) : NULL;       \
		return call ? wrapped(call, real_##name(stream, run_function, call, mode))      \
			    : real_##name(stream, function, data, mode);                        \
	}

LAUNCH_V2(cuLaunchHostFunc_v2, gate_stream_of(stream))
LAUNCH_V2(cuLaunchHostFunc_v2_ptsz, gate_stream_ptsz(stream))

#define ADD(name, own_stream)                                                               \
	CUresult hook_##name(CUstream stream, CUstreamCallback callback, void *data,        \
			     unsigned int flags)                                            \
	{                                                                                   \
		const struct gate_host_call given = {.callback = callback, .data = data};   \
		struct gate_host_call *call = callback ? wrap(own_stream, &given) : NULL;   \
		return call ? wrapped(call, real_##name(stream, run_callback, call, flags)) \
			    : real_##name(stream, callback, data, flags);                   \
	}

ADD(cuStreamAddCallback, gate_stream_of(stream))
ADD(cuStreamAddCallback_ptsz, gate_stream_ptsz(stream))
