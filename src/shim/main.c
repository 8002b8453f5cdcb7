/* carve-shim: see proto/shim.h. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cgroup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/file.h"
#include "base/kill_point.h"
#include "base/macros.h"
#include "base/process.h"
#include "base/simulated_host.h"
#include "proto/shim.h"
#include "shim/container.h"
#include "shim/record.h"
#include "shim/shim.h"
#include "shim/spec.h"

static const char help[] =
	"carve-shim - holds one job of a queue for carved, and outlives it\n"
	"\n"
	"usage: carve-shim DIR NAME SOCKET     started by carved, with descriptors 3 to 5\n"
	"       carve-shim --help | --version\n"
	"\n"
	"example: pgrep -a carve-shim     lists the shims that run\n";

#define BOOT_ID "/proc/sys/kernel/random/boot_id"

/* Processes that the job left behind are looked for this often, until all are gone. */
#define SWEEPS_MAX 100

/* A container's helpers have this long to end (3 s). */
#define HELPERS_PATIENCE_NS 3000000000ull
/* And a runtime has this long to remove one that is to be killed. */
#define REMOVAL_PATIENCE_NS 5000000000ull
/* A record that cannot be written is tried again this often. */
#define RECORD_EVERY_MS 1000
/* The time if its directory is gone: a daemon that lives makes it anew within that time. */
#define RECORD_GONE_NS 10000000000ull
/* The time if it cannot be written and no daemon waits for it (1 h). */
#define RECORD_UNREAD_NS 3600000000000ull

/* ---- starting ---------------------------------------------------------------------------- */

/* Waits for the daemon's word. False: there is none, and nothing is to run. */
static bool go_wait(struct shim *shim)
{
	struct pollfd fds[] = {{.fd = SHIM_GO_FD, .events = POLLIN},
			       {.fd = shim->signals, .events = POLLIN}};

	while (poll(fds, ARRAY_SIZE(fds), -1) < 0)
		if (errno != EINTR)
			return false;
	if (fds[1].revents)
		return false;
	ssize_t n = read(SHIM_GO_FD, &shim->go, sizeof(shim->go));
	return n == sizeof(shim->go) && shim_go_check(&shim->go) == 0;
}

static int start_record(const struct shim *shim)
{
	struct process_id id = {0};
	char boot[64] = "";

	(void)process_identify(shim->child, &id);
	(void)file_read(BOOT_ID, boot, sizeof(boot));
	boot[strcspn(boot, "\n")] = '\0';
	int rc =
		record_add(shim->record,
			   json_pack("{s:s, s:i, s:I, s:s, s:s, s:I, s:s}", "kind", SHIM_KIND_START,
				     "pid", (int)shim->child, "birth", (json_int_t)id.birth, "boot",
				     boot, "session", shim->go.session, "started",
				     (json_int_t)shim->started, "cgroup", shim->cgroup),
			   true);
	return rc < 0 ? rc : record_sync_name(&shim->place);
}

/* One that this process cannot make, as in most containers, is done without. */
static void cgroup_begin(struct shim *shim)
{
	char own[PATH_MAX], name[128];

	snprintf(name, sizeof(name), CGROUP_JOB "%.64s-%d", shim->place.name, (int)getpid());
	if (cgroup_of(0, own, sizeof(own)) == 0)
		(void)cgroup_make(own, name, shim->cgroup);
}

/* Processes that were killed leave it a moment later. */
static void cgroup_end(const struct shim *shim)
{
	for (int i = 0; *shim->cgroup && i < SWEEPS_MAX &&
			cgroup_remove_until(shim->cgroup, UINT64_MAX) == -EBUSY;
	     i++)
		(void)poll(NULL, 0, 1 + i / 10);
}

static bool is_contained(const struct shim *shim)
{
	return *shim->spec.text.image != '\0' && !shim->spec.pod;
}

/* The gate, which the command waits for, and the descriptor of failures; negative: nothing ran. */
static int command_fork(struct shim *shim, int *ret_failures)
{
	int gate[2], failures[2];

	if (pipe2(gate, O_CLOEXEC) < 0 || pipe2(failures, O_CLOEXEC) < 0)
		return -errno;
	cgroup_begin(shim);
	shim->child = cgroup_fork(shim->cgroup);
	if (shim->child < 0)
		return -errno;
	if (shim->child == 0) {
		close(gate[1]);
		close(failures[0]);
		shim_command_become(shim, gate[0], failures[1]);
	}
	close(gate[0]);
	close(failures[1]);
	if (is_contained(shim))
		shim_remover_start(shim);
	shim->started = now_realtime_ns();
	kill_point("shim.forked");
	*ret_failures = failures[0];
	return gate[1];
}

/* ---- ending ------------------------------------------------------------------------------ */

/* A daemon that this process or the job's command had to start, and what came from it, other jobs'
 * shims among them, may be children of this process, too. They are the user's, as is the job: a
 * name that lies costs nobody else. */
static bool is_daemons(pid_t pid)
{
	static const char *const names[] = {"carved\n", "carve-supervise\n", "carve-keeper\n",
					    "carve-shim\n", "carve-remover\n"};
	char path[32], name[32];

	snprintf(path, sizeof(path), "/proc/%d/comm", (int)pid);
	ssize_t n = file_read(path, name, sizeof(name));
	for (size_t i = 0; n > 0 && i < ARRAY_SIZE(names); i++)
		if ((size_t)n == strlen(names[i]) && !memcmp(name, names[i], (size_t)n))
			return true;
	return false;
}

/* Processes that descend from this one and are the job's, beside its session's group. */
static unsigned children_signal(const struct shim *shim, int number)
{
	char path[64], line[16384];
	bool mine = shim_runtime_is_mine(shim);
	unsigned count = 0;

	snprintf(path, sizeof(path), "/proc/self/task/%d/children", (int)getpid());
	cleanup_close int fd = open(path, O_RDONLY | O_CLOEXEC);
	/* The next sweep sees the children that this has no room for. */
	ssize_t n = fd < 0 ? -1 : read(fd, line, sizeof(line) - 1);
	if (n <= 0)
		return 0;
	line[n] = '\0';
	for (char *at = line, *end; *at; at = end) {
		long pid = strtol(at, &end, 10);

		if (end == at || !*end)
			break; /* the last, which a space follows, may be cut off */
		if (mine && is_daemons((pid_t)pid))
			continue;
		count++;
		(void)kill((pid_t)pid, number);
	}
	return count;
}

static void job_signal(const struct shim *shim, int number)
{
	if (number == SIGKILL && *shim->cgroup)
		(void)cgroup_kill(shim->cgroup);
	if (kill(-shim->child, number) < 0)
		(void)kill(shim->child, number);
	/* A runtime's helpers watch the container's end: they are not asked to end before. */
	if (!is_contained(shim) || number == SIGKILL)
		(void)children_signal(shim, number);
}

pid_t shim_container_kill(const struct shim *shim, bool stays)
{
	const char *what;
	pid_t pid = fork();

	if (pid != 0)
		return pid;
	pthread_sigmask(SIG_SETMASK, &shim->mask, NULL);
	if (shim_spec_enter(&shim->spec, &what) == 0)
		shim_container_end(shim->place.dir, shim->place.name, stays);
	_exit(EXIT_CODE_OK);
}

void shim_stage_next(struct shim *shim, uint64_t now)
{
	if (shim->stage == STAGE_RUNNING) {
		shim->stage = STAGE_TERMINATED;
		shim->next_ns = now + shim->spec.run.grace_ns;
		job_signal(shim, SIGTERM);
		/* A job that is stopped would not hear of it. */
		job_signal(shim, SIGCONT);
	} else if (shim->stage == STAGE_TERMINATED && is_contained(shim)) {
		shim->stage = STAGE_REMOVED;
		shim->next_ns = now + REMOVAL_PATIENCE_NS;
		(void)shim_container_kill(shim, false);
	} else {
		shim->stage = STAGE_KILLED;
		shim->next_ns = now + 1000000000ull; /* for those that it forked meanwhile */
		job_signal(shim, SIGKILL);
	}
}

static void signal_take(struct shim *shim)
{
	struct signalfd_siginfo info;

	while (read(shim->signals, &info, sizeof(info)) == sizeof(info)) {
		if (info.ssi_signo == SIGCHLD || shim->stage != STAGE_RUNNING)
			continue;
		shim->why = "cancelled";
		shim_stage_next(shim, now_monotonic_ns());
	}
}

/* Reaps what ended. True: the command has, with its status. */
static bool command_ended(const struct shim *shim, int *ret_status, struct rusage *ret_usage)
{
	struct rusage usage;
	int status;
	pid_t pid;

	while ((pid = wait4(-1, &status, WNOHANG, &usage)) > 0)
		if (pid == shim->child) {
			*ret_status = status;
			*ret_usage = usage;
			return true;
		}
	return false;
}

static int wait_ms(const struct shim *shim)
{
	uint64_t now = now_monotonic_ns(), next = MIN(shim->next_ns, shim->look_ns);

	if (next == UINT64_MAX)
		return -1;
	if (next <= now)
		return 0;
	return (int)MIN((next - now) / 1000000 + 1, 3600000);
}

/* Waits for what is next, and does it. True: there is something to read from `fd` (-1: none). */
static bool wait_step(struct shim *shim, int fd)
{
	struct pollfd fds[] = {{.fd = shim->signals, .events = POLLIN},
			       {.fd = shim->daemon, .events = POLLIN},
			       {.fd = fd, .events = POLLIN}};

	if (poll(fds, ARRAY_SIZE(fds), wait_ms(shim)) > 0) {
		if (fds[2].revents)
			return true;
		if (fds[0].revents)
			signal_take(shim);
		if (fds[1].revents)
			shim_daemon_ended(shim);
	}
	if (now_monotonic_ns() >= shim->look_ns)
		shim_daemon_look(shim);
	if (now_monotonic_ns() < shim->next_ns)
		return false;
	if (shim->stage == STAGE_RUNNING)
		shim->why = "timeout";
	shim_stage_next(shim, now_monotonic_ns());
	return false;
}

static int command_wait(struct shim *shim, struct rusage *ret_usage)
{
	int status;

	while (!command_ended(shim, &status, ret_usage))
		(void)wait_step(shim, -1);
	return status;
}

/* Until the child has all that it needs, or has ended. False: it has. */
static bool ready_wait(struct shim *shim, int failures)
{
	char byte;

	while (!wait_step(shim, failures))
		;
	return read(failures, &byte, 1) == 1;
}

/* Whether the launcher lets the command run: the job's user gave the right to, once. */
static bool permit_ask(struct shim *shim)
{
	const char asks = SHIM_ASKS;
	char word = 0;

	if (!shim->spec.asks)
		return true;
	if (write(SHIM_PERMIT_FD, &asks, 1) != 1)
		return false;
	while (!wait_step(shim, SHIM_PERMIT_FD))
		;
	bool may = read(SHIM_PERMIT_FD, &word, 1) == 1 && word == SHIM_MAY;
	close(SHIM_PERMIT_FD);
	return may;
}

/* 0 with the descriptor of failures; negative: nothing ran. */
static int command_start(struct shim *shim, int *ret_failures)
{
	cleanup_close int gate = command_fork(shim, ret_failures);

	if (gate < 0)
		return gate;
	int rc = start_record(shim);
	kill_point("shim.recorded");
	if (rc < 0) {
		close_fd(&gate);
		waitpid(shim->child, NULL, 0);
		return rc;
	}
	/* Now, as the child attaches before it is ready. A system daemon is root's to start. */
	if (shim_runtime_is_mine(shim) || simulated_host_is_gone())
		shim_daemon_look(shim);
	/* A process that the command leaves behind becomes a child of this process. */
	bool ready = ready_wait(shim, *ret_failures);
	prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
	if (ready && !permit_ask(shim)) {
		close_fd(&gate);
		waitpid(shim->child, NULL, 0);
		return -EKEYEXPIRED;
	}
	if (ready)
		(void)!write(gate, "g", 1);
	return 0;
}

/* A runtime's helpers that tidy up after a container end by themselves. False: some go on. */
static bool helpers_end(uint64_t patience_ns)
{
	uint64_t end = now_monotonic_ns() + patience_ns;

	while (now_monotonic_ns() < end) {
		pid_t pid = waitpid(-1, NULL, WNOHANG);

		if (pid < 0)
			return true; /* none is left */
		if (pid == 0)
			(void)poll(NULL, 0, 5);
	}
	return false;
}

/* The client of the container's runtime has ended, with this status. A client that a signal ended,
 * or that lost its daemon, leaves the container running, and with it the helpers that look after
 * it. */
static void container_end(struct shim *shim, int status)
{
	bool failed = WIFSIGNALED(status) || WEXITSTATUS(status) == EXIT_CODE_RUN_FAILED;

	if (!failed && (shim->stage == STAGE_KILLED || helpers_end(HELPERS_PATIENCE_NS)))
		return;
	/* One that has ended is kept if the job's options say so (--rm=false). */
	(void)shim_container_kill(shim, !failed);
	(void)helpers_end(REMOVAL_PATIENCE_NS);
}

/* Processes that the command left behind end with it: its slice is given to others. */
static void leftovers_end(struct shim *shim, int status)
{
	if (is_contained(shim))
		container_end(shim, status);
	if (*shim->cgroup)
		(void)cgroup_kill(shim->cgroup);
	for (int i = 0; i < SWEEPS_MAX; i++) {
		(void)kill(-shim->child, SIGKILL);
		unsigned left = children_signal(shim, SIGKILL);

		while (waitpid(-1, NULL, WNOHANG) > 0)
			;
		if (!left)
			return;
		(void)poll(NULL, 0, 1 + i / 10);
	}
}

static json_t *exit_object(const struct shim *shim, int status, const struct rusage *usage,
			   const struct failure *failure)
{
	json_t *object = json_pack(
		"{s:s, s:i, s:I, s:I, s:I, s:I, s:s}", "kind",
		WIFSIGNALED(status) ? SHIM_KIND_SIGNAL : SHIM_KIND_EXIT, "code",
		WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status), "started",
		(json_int_t)shim->started, "ended", (json_int_t)now_realtime_ns(), "rss",
		(json_int_t)usage->ru_maxrss * 1024, "cpu_ns",
		((json_int_t)usage->ru_utime.tv_sec + usage->ru_stime.tv_sec) * 1000000000 +
			(usage->ru_utime.tv_usec + usage->ru_stime.tv_usec) * 1000,
		"why", shim->why ? shim->why : "");

	if (failure->text[0])
		json_object_set_new(object, "error", json_string(failure->text));
	return object;
}

/* A second request to end, of a job that has ended. */
static bool end_is_asked(const struct shim *shim, int timeout_ms)
{
	struct pollfd fd = {.fd = shim->signals, .events = POLLIN};
	struct signalfd_siginfo info;
	bool asked = false;

	(void)poll(&fd, 1, timeout_ms);
	while (read(shim->signals, &info, sizeof(info)) == sizeof(info))
		asked |= info.ssi_signo != SIGCHLD;
	return asked;
}

/* A full disk: the daemon learns of the end all the same, and waits for its cause as long as this
 * process lives. Where the daemon lives it takes the record at once, and removes it: the next job's
 * start need not wait for the disk. False: nobody will read it. The object is the function's. */
static bool exit_record(struct shim *shim, json_t *object)
{
	uint64_t since = now_monotonic_ns();

	(void)end_is_asked(shim, 0); /* it has ended */
	for (int rc;;) {
		rc = record_look(&shim->place, &shim->record);
		if (rc == 0)
			rc = record_add(shim->record, json_incref(object),
					getppid() != shim->parent);
		if (rc == 0)
			break;
		uint64_t now = now_monotonic_ns();
		uint64_t patience = rc == -ENOENT ? RECORD_GONE_NS : RECORD_UNREAD_NS;

		if (rc != -ENOENT && !shim_daemon_is_unreachable(shim))
			since = now;
		if (!simulated_host_is_gone() && now - since < patience &&
		    !end_is_asked(shim, RECORD_EVERY_MS))
			continue;
		fprintf(stderr, "carve-shim: the end of job %s is not recorded: %s/%s%s: %s\n",
			shim->spec.job, shim->place.dir, shim->place.name, SHIM_RECORD,
			strerrordesc_np(-rc));
		record_give_up(&shim->place, rc);
		json_decref(object);
		return false;
	}
	json_decref(object);
	return true;
}

/* ---- the whole --------------------------------------------------------------------------- */

static void signals_begin(struct shim *shim)
{
	static const int taken[] = {SIGCHLD, SIGTERM, SIGINT, SIGHUP, SIGQUIT};
	sigset_t set;

	sigemptyset(&set);
	for (size_t i = 0; i < ARRAY_SIZE(taken); i++) {
		(void)signal(taken[i], SIG_DFL);
		sigaddset(&set, taken[i]);
	}
	(void)signal(SIGXFSZ, SIG_IGN); /* its record may not grow; the job has the default again */
	(void)signal(SIGPIPE, SIG_IGN); /* a child that ends before it was let run */
	pthread_sigmask(SIG_BLOCK, &set, NULL);
	sigemptyset(&shim->mask);
	shim->signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

static int shim_run(struct shim *shim)
{
	struct failure failure = {0};
	struct rusage usage = {0};
	int failures = -1;

	if (command_start(shim, &failures) < 0) {
		cgroup_end(shim);
		shim_leave_unstarted(shim);
		return EXIT_CODE_FAILED;
	}
	kill_point("shim.running");
	int status = command_wait(shim, &usage);
	leftovers_end(shim, status);
	if (shim->remover >= 0)
		(void)!write(shim->remover, "e", 1);
	cgroup_end(shim);
	if (read(failures, &failure, sizeof(failure)) != sizeof(failure))
		failure = (struct failure){0};
	kill_point("shim.ended");
	if (!exit_record(shim, exit_object(shim, status, &usage, &failure)))
		return EXIT_CODE_FAILED;
	kill_point("shim.exit_recorded");
	return EXIT_CODE_OK;
}

int main(int argc, char **argv)
{
	struct shim shim = {
		.next_ns = UINT64_MAX, .look_ns = UINT64_MAX, .daemon = -1, .remover = -1};

	if (argc == 2 && !strcmp(argv[1], "--help")) {
		fputs(help, stdout);
		return EXIT_CODE_OK;
	}
	if (argc == 2 && !strcmp(argv[1], "--version")) {
		puts("carve-shim " CARVE_VERSION);
		return EXIT_CODE_OK;
	}
	if (argc != 4 || fcntl(SHIM_SPEC_FD, F_GETFD) < 0 || fcntl(SHIM_GO_FD, F_GETFD) < 0 ||
	    fcntl(SHIM_DIR_FD, F_GETFD) < 0) {
		fputs("carve-shim: it is started by carved; see carve-shim --help\n", stderr);
		return EXIT_CODE_USAGE;
	}
	shim.place = (struct record_place){SHIM_DIR_FD, argv[1], argv[2]};
	(void)fcntl(SHIM_SPEC_FD, F_SETFD, FD_CLOEXEC);
	(void)fcntl(SHIM_GO_FD, F_SETFD, FD_CLOEXEC);
	(void)fcntl(SHIM_DIR_FD, F_SETFD, FD_CLOEXEC);
	(void)fcntl(SHIM_PERMIT_FD, F_SETFD, FD_CLOEXEC);
	shim.parent = getppid();
	signals_begin(&shim);
	prctl(PR_SET_NAME, "carve-shim", 0, 0, 0);
	if (shim.signals < 0 || shim_spec_read(SHIM_SPEC_FD, argv[3], &shim.spec) < 0)
		return EXIT_CODE_OK;
	if (!go_wait(&shim))
		return EXIT_CODE_OK;
	kill_point("shim.go");
	shim.record = record_open(&shim.place);
	if (shim.record < 0)
		return EXIT_CODE_FAILED; /* nothing ran, and nothing says that it did */
	if (shim.spec.run.limit_ns)
		shim.next_ns = now_monotonic_ns() + shim.spec.run.limit_ns;
	return shim_run(&shim);
}
