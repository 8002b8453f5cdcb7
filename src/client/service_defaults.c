#include "client/service_defaults.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/file.h"
#include "base/macros.h"

/* As many descriptors as the unit has (LimitNOFILE=). */
#define DESCRIPTORS 1048576
/* The default stack size of a main thread, everywhere. */
#define STACK_BYTES (8ul << 20)
/* The kernel's own, of a first process: 50 us. */
#define TIMER_SLACK_NS 50000ul
/* More CPUs than any kernel is built for. */
#define CPUS_MOST 65536u

/* linux/ioprio.h, which older systems lack: the class by which niceness decides. */
#define IOPRIO_WHO_PROCESS 1
#define IOPRIO_NONE 0

static rlim_t descriptors_most(void)
{
	char text[32];

	if (file_read("/proc/sys/fs/nr_open", text, sizeof(text)) <= 0)
		return DESCRIPTORS;
	return MIN((rlim_t)strtoull(text, NULL, 10), (rlim_t)DESCRIPTORS);
}

/* At least `wanted`, or as much as this user may have. */
static void limit_raise(__rlimit_resource_t resource, rlim_t wanted)
{
	struct rlimit limit, raised;

	if (getrlimit(resource, &limit) < 0 || limit.rlim_cur >= wanted)
		return;
	raised = (struct rlimit){.rlim_cur = wanted, .rlim_max = MAX(limit.rlim_max, wanted)};
	if (setrlimit(resource, &raised) == 0)
		return;
	limit.rlim_cur = MIN(limit.rlim_max, wanted);
	(void)setrlimit(resource, &limit);
}

static void limits_raise(void)
{
	static const __rlimit_resource_t endless[] = {RLIMIT_CPU,  RLIMIT_FSIZE, RLIMIT_DATA,
						      RLIMIT_AS,   RLIMIT_RSS,   RLIMIT_NPROC,
						      RLIMIT_LOCKS};

	for (size_t i = 0; i < ARRAY_SIZE(endless); i++)
		limit_raise(endless[i], RLIM_INFINITY);
	limit_raise(RLIMIT_STACK, STACK_BYTES);
	limit_raise(RLIMIT_NOFILE, descriptors_most());
}

static void scheduling_reset(void)
{
	static unsigned char cpus[CPUS_MOST / 8];
	const struct sched_param usual = {0};

	memset(cpus, 0xff, sizeof(cpus));
	(void)sched_setscheduler(0, SCHED_OTHER, &usual);
	(void)setpriority(PRIO_PROCESS, 0, 0);
	(void)syscall(SYS_ioprio_set, IOPRIO_WHO_PROCESS, 0, IOPRIO_NONE);
	/* The kernel takes of it what a cpuset leaves. */
	(void)syscall(SYS_sched_setaffinity, 0, sizeof(cpus), cpus);
	(void)prctl(PR_SET_TIMERSLACK, TIMER_SLACK_NS, 0, 0, 0);
}

/* Only root may go below what root had set. */
static void oom_score_reset(void)
{
	cleanup_close int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);

	if (fd >= 0)
		(void)!write(fd, "0", 1);
}

void service_defaults_restore(void)
{
	sigset_t none;

	/* An ignored signal stays so over an exec: nohup's SIGHUP, a background job's SIGINT. */
	for (int number = 1; number < NSIG; number++)
		(void)signal(number, SIG_DFL);
	sigemptyset(&none);
	(void)pthread_sigmask(SIG_SETMASK, &none, NULL);
	limits_raise();
	scheduling_reset();
	oom_score_reset();
}
