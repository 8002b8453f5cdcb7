#include "daemon/host/limited.h"

#include <errno.h>
#include <inttypes.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/resource.h>

#include "base/macros.h"
#include "daemon/host/log.h"

/* Fewer descriptors are too few for some dozen programs at a time: sessions, processes and clients
 * have two or three each. */
#define DESCRIPTORS_FEW 1024
/* Threads of its own, and those of the driver. */
#define THREADS_FEW 64

static const struct {
	__rlimit_resource_t resource;
	rlim_t enough;
	const char *format; /* of its value */
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

void limited_log(void)
{
	json_t *list = limited_list(), *item;
	size_t i;

	json_array_foreach(list, i, item)
		log_event(LOG_WARNING, "carved.limited what=\"%s\"", json_string_value(item));
	json_decref(list);
}
