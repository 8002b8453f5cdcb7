#include "daemon/host/limited.h"

#include <errno.h>
#include <inttypes.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/error.h"
#include "base/file.h"
#include "base/macros.h"
#include "daemon/host/log.h"

/* Fewer descriptors are too few for some dozen programs at a time: sessions, processes and clients
 * have two or three each. */
#define DESCRIPTORS_FEW 1024
/* Below, the last ones are kept for questions. */
#define DESCRIPTORS_SCARCE 256
/* Questions have as many as limited_last() says and two more; programs that came before the gate
 * was closed take the rest. */
#define DESCRIPTORS_LAST 8
#define DESCRIPTORS_GATE 12
/* Threads of its own, and those of the driver. */
#define THREADS_FEW 64

/* systemd and desktops give the programs of a user 100 or 200. */
#define OOM_SCORE_USUAL 200

/* More CPUs than any kernel is built for. */
#define CPUS_MOST 65536u

typedef unsigned char cpu_mask[CPUS_MOST / 8];

static const struct {
	__rlimit_resource_t resource;
	rlim_t enough;
	const char *format; /* the format of its value */
} limits[] = {
	{RLIMIT_CPU, RLIM_INFINITY, "it is ended after %" PRIu64 " s of CPU time (ulimit -t)"},
	{RLIMIT_FSIZE, RLIM_INFINITY,
	 "it may write no file of more than %" PRIu64 " bytes (ulimit -f)"},
	{RLIMIT_AS, RLIM_INFINITY, "it may map no more than %" PRIu64 " bytes (ulimit -v)"},
	{RLIMIT_DATA, RLIM_INFINITY, "it may allocate no more than %" PRIu64 " bytes (ulimit -d)"},
	{RLIMIT_NOFILE, DESCRIPTORS_FEW,
	 "it may open no more than %" PRIu64 " descriptors (ulimit -n)"},
	{RLIMIT_NPROC, THREADS_FEW,
	 "its user may have no more than %" PRIu64 " processes and threads (ulimit -u)"},
};

static void text_add(json_t *list, const char *text)
{
	json_array_append_new(list, json_string(text));
}

static void scheduling_add(json_t *list)
{
	char text[64];

	errno = 0;
	int nice = getpriority(PRIO_PROCESS, 0), policy = sched_getscheduler(0);
	if (errno == 0 && nice > 0) {
		snprintf(text, sizeof(text), "it runs with niceness %d", nice);
		text_add(list, text);
	}
	if (policy == SCHED_BATCH || policy == SCHED_IDLE)
		text_add(list, policy == SCHED_IDLE
				       ? "it runs only while a CPU is idle (SCHED_IDLE)"
				       : "it runs as a batch job (SCHED_BATCH)");
}

json_t *limited_list(void)
{
	json_t *list = json_array();
	struct rlimit limit;
	char text[128];

	for (size_t i = 0; i < ARRAY_SIZE(limits); i++) {
		if (getrlimit(limits[i].resource, &limit) < 0 || limit.rlim_cur >= limits[i].enough)
			continue;
		/* NOLINTNEXTLINE(clang-diagnostic-format-nonliteral): of the table above */
		snprintf(text, sizeof(text), limits[i].format, (uint64_t)limit.rlim_cur);
		text_add(list, text);
	}
	scheduling_add(list);
	return list;
}

/* The CPUs that this thread may run on; 0: not known. */
static unsigned cpus_of_thread(cpu_mask mask)
{
	long size = syscall(SYS_sched_getaffinity, 0, sizeof(cpu_mask), mask);
	unsigned count = 0;

	for (long i = 0; i < size; i++)
		count += (unsigned)__builtin_popcount(mask[i]);
	return count;
}

/* A container or a service with fewer CPUs than the host has a cpuset; what the kernel takes of all
 * CPUs is that. So this thread asks for all of them, and then for those of before. */
static void affinity_add(json_t *list)
{
	cpu_mask before = {0}, all, possible = {0};
	char text[64];
	unsigned may = cpus_of_thread(before);

	memset(all, 0xff, sizeof(all));
	if (!may || syscall(SYS_sched_setaffinity, 0, sizeof(all), all) < 0)
		return;
	unsigned could = cpus_of_thread(possible);
	(void)syscall(SYS_sched_setaffinity, 0, sizeof(before), before);
	if (may >= could)
		return;
	snprintf(text, sizeof(text), "it may run on %u of %u CPUs only (taskset)", may, could);
	text_add(list, text);
}

json_t *limited_notes(void)
{
	json_t *list = json_array();
	char text[128];

	affinity_add(list);
	if (file_read("/proc/self/oom_score_adj", text, sizeof(text)) <= 0)
		return list;
	long score = strtol(text, NULL, 10);
	if (score > OOM_SCORE_USUAL) {
		snprintf(text, sizeof(text),
			 "the kernel ends it before other programs when memory is short "
			 "(oom_score_adj %ld)",
			 score);
		text_add(list, text);
	}
	return list;
}

static rlim_t descriptors_most(void)
{
	struct rlimit limit;

	return getrlimit(RLIMIT_NOFILE, &limit) < 0 ? RLIM_INFINITY : limit.rlim_cur;
}

int limited_descriptors_raise(struct error *err)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) < 0)
		return 0;
	limit.rlim_cur = MIN(limit.rlim_max, (rlim_t)1 << 20);
	(void)setrlimit(RLIMIT_NOFILE, &limit);
	if (descriptors_most() >= LIMITED_DESCRIPTORS_LEAST)
		return 0;
	error_set(err, EXIT_CODE_FAILED,
		  "carved needs %d descriptors at least, and may open %" PRIu64 " (ulimit -n)",
		  LIMITED_DESCRIPTORS_LEAST, (uint64_t)descriptors_most());
	error_hint(err, "raise the hard limit: ulimit -Hn, or LimitNOFILE= of a service");
	return -EXIT_CODE_FAILED;
}

unsigned limited_last(void)
{
	return descriptors_most() < DESCRIPTORS_SCARCE ? DESCRIPTORS_LAST : 0;
}

bool limited_is_last(int fd)
{
	return limited_last() && (rlim_t)fd + DESCRIPTORS_GATE >= descriptors_most();
}

const char *limited_descriptors_text(const char *usual)
{
	static char text[160];
	rlim_t most = descriptors_most();

	if (most >= DESCRIPTORS_FEW)
		return usual;
	snprintf(text, sizeof(text),
		 "%s: carved may open no more than %" PRIu64 " descriptors (ulimit -n)", usual,
		 (uint64_t)most);
	return text;
}

void limited_log(void)
{
	json_t *list = limited_list(), *notes = limited_notes(), *item;
	size_t i;

	json_array_extend(list, notes);
	json_decref(notes);
	json_array_foreach(list, i, item)
		log_event(LOG_WARNING, "carved.limited what=\"%s\"", json_string_value(item));
	json_decref(list);
}
