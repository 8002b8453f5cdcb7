/* carve-shim: see proto/shim.h. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cgroup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/file.h"
#include "base/json_text.h"
#include "base/kill_point.h"
#include "base/macros.h"
#include "base/process.h"
#include "proto/attach.h"
#include "proto/shim.h"
#include "shim/container.h"
#include "shim/pod.h"
#include "shim/record.h"
#include "shim/spec.h"
#include "slice/driver_find.h"
#include "slice/isolation.h"
#include "slice/places.h"
#include "slice/slice_env.h"
#include "slice/slice_register.h"

static const char help[] =
	"carve-shim - holds one job of a queue for carved, and outlives it\n"
	"\n"
	"usage: carve-shim DIR NAME     started by carved, with descriptors 3 and 4\n"
	"       carve-shim " SHIM_DRIVER "     says where the driver is, for carved\n"
	"       carve-shim --help | --version\n"
	"\n"
	"example: pgrep -a carve-shim     lists the shims that run\n";

/* For so long a daemon that died is waited for, when a job begins. */
#define DAEMON_PATIENCE_NS (300ull * 1000000000)

#define BOOT_ID "/proc/sys/kernel/random/boot_id"

/* Processes that the job left behind are looked for so often, until all are gone. */
#define SWEEPS_MAX 100

/* A container's helpers have so long to end (3 s). */
#define HELPERS_PATIENCE_NS 3000000000ull
/* And a runtime has so long to remove one that is to be killed. */
#define REMOVAL_PATIENCE_NS 5000000000ull

/* Terminated: its processes were asked to end. Removed: its container is being removed. */
enum stage { STAGE_RUNNING, STAGE_TERMINATED, STAGE_REMOVED, STAGE_KILLED };

struct shim {
	struct record_place place;
	struct shim_spec spec;
	struct shim_go go;
	int record;        /* its file */
	const char *paths; /* LD_LIBRARY_PATH as this program was started; "": none */
	pid_t parent;      /* the daemon that started it */
	int signals;       /* a signalfd */
	sigset_t mask;
	pid_t child;
	enum stage stage;
	const char *why;  /* the shim ended the job: "timeout", "cancelled"; NULL: it did not */
	uint64_t next_ns; /* CLOCK_MONOTONIC: when the next stage begins; UINT64_MAX: not by time */
	int64_t started;
	int daemon;            /* a pidfd of the user's own daemon; -1: not watched now */
	char cgroup[PATH_MAX]; /* of the job's processes; "": they have none of their own */
	uint64_t revive_ns;    /* when a daemon is to be looked for; UINT64_MAX: one is watched */
};

/* The words of a child that could not become the command. */
struct failure {
	int code;
	char text[512];
};

/* ---- the child --------------------------------------------------------------------------- */

static int fail(struct failure *failure, int code, const char *what, int error)
{
	failure->code = code;
	snprintf(failure->text, sizeof(failure->text), "%.300s: %s", what, strerrordesc_np(error));
	return -1;
}

static int fail_error(struct failure *failure, const struct error *err)
{
	failure->code = EXIT_CODE_RUN_FAILED;
	snprintf(failure->text, sizeof(failure->text), "%.500s", err->message);
	return -1;
}

static void runtime_of(const struct shim *shim, char buf[static PATH_MAX])
{
	const char *slash = strrchr(shim->spec.attach, '/');

	snprintf(buf, PATH_MAX, "%.*s", slash ? (int)(slash - shim->spec.attach) : 0,
		 shim->spec.attach);
}

/* A user's own daemon is started by whoever needs it; a system daemon by root alone. */
static bool runtime_is_mine(const struct shim *shim)
{
	char runtime[PATH_MAX];
	struct stat st;

	runtime_of(shim, runtime);
	return stat(runtime, &st) == 0 && st.st_uid == geteuid();
}

static void daemon_revive(const struct shim *shim)
{
	char dir[PATH_MAX], carve[PATH_MAX + 8], runtime[PATH_MAX];

	runtime_of(shim, runtime);
	if (!runtime_is_mine(shim))
		return;
	pid_t child = executable_dir(dir, sizeof(dir)) == 0 ? fork() : -1;

	if (child != 0) {
		while (child > 0 && waitpid(child, NULL, 0) < 0 && errno == EINTR)
			;
		return;
	}
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);
	for (int fd = 0; fd < 3; fd++)
		(void)dup2(null, fd);
	pthread_sigmask(SIG_SETMASK, &shim->mask, NULL);
	// NOLINTNEXTLINE(concurrency-mt-unsafe): a child of one thread
	setenv("CARVE_RUNTIME_DIR", runtime, 1);
	snprintf(carve, sizeof(carve), "%s/carve", dir);
	execl(carve, "carve", "queue", "list", NULL);
	execlp("carve", "carve", "queue", "list", NULL);
	_exit(EXIT_CODE_FAILED);
}

/* The process that serves the attach socket; 0: none does; -1: not known. */
static pid_t daemon_pid(const struct shim *shim)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	cleanup_close int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	struct ucred peer;
	socklen_t size = sizeof(peer);

	if (fd < 0 || strlen(shim->spec.attach) >= sizeof(address.sun_path))
		return -1;
	memcpy(address.sun_path, shim->spec.attach, strlen(shim->spec.attach));
	if (connect(fd, (struct sockaddr *)&address, sizeof(address)) < 0)
		return errno == EAGAIN ? -1 : 0;
	return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 ? peer.pid : -1;
}

static bool daemon_is_unreachable(const struct shim *shim)
{
	return daemon_pid(shim) == 0;
}

static bool daemon_is_away(int rc)
{
	return rc == -ECONNREFUSED || rc == -ECONNRESET || rc == -ENOENT || rc == -EPIPE;
}

/* The daemon may have died since it said go. The next one knows of the job: the shim starts it, as
 * this child may be in the slice's mounts already, where the driver is the front. */
static int register_patiently(const struct shim *shim, uint32_t flags, struct attach_reply *ret)
{
	uint64_t end = now_monotonic_ns() + DAEMON_PATIENCE_NS;
	int rc = slice_register(shim->spec.attach, shim->go.session, flags, ret);

	while (daemon_is_away(rc) && now_monotonic_ns() < end) {
		(void)poll(NULL, 0, 100);
		rc = slice_register(shim->spec.attach, shim->go.session, flags, ret);
	}
	return rc;
}

static int register_or_fail(const struct shim *shim, uint32_t flags, struct failure *failure)
{
	struct attach_reply reply = {0};
	int rc = register_patiently(shim, flags, &reply);

	if (rc < 0)
		return fail(failure, EXIT_CODE_RUN_FAILED, "the daemon does not take the job up",
			    -rc);
	reply.message[sizeof(reply.message) - 1] = '\0';
	if (reply.status == ATTACH_OK)
		return 0;
	failure->code = EXIT_CODE_RUN_FAILED;
	snprintf(failure->text, sizeof(failure->text), "%s", reply.message);
	return -1;
}

/* The daemon's finding holds where ld.so would look in the same places for this program. */
static int driver_look(const struct shim *shim, struct driver_libs *ret, struct error *err)
{
	struct driver_libs links;

	if (!shim->spec.driver || strcmp(json_text(shim->spec.driver, "paths"), shim->paths) != 0)
		return driver_find(ret, err);
	snprintf(links.cuda, sizeof(links.cuda), "%s", json_text(shim->spec.driver, "cuda"));
	snprintf(links.nvml, sizeof(links.nvml), "%s", json_text(shim->spec.driver, "nvml"));
	return driver_find_by(&links, ret, err);
}

/* As `carve run` does it: root's jobs get a mount namespace where one can be made. */
static int slice_enter(const struct shim *shim, struct failure *failure)
{
	struct isolation_mount mount = {0};
	struct driver_libs driver;
	struct places places;
	struct error err = {0};
	enum isolation isolation;

	if (places_find(&places, &err) < 0 || driver_look(shim, &driver, &err) < 0 ||
	    isolation_parse(NULL, &isolation, &err) < 0)
		return fail_error(failure, &err);
	if (isolation == ISOLATION_MOUNT &&
	    isolation_mount_or_not(&mount, &places, &driver, &err) < 0)
		isolation = ISOLATION_PRELOAD;
	if (slice_env_enter(shim->go.session, shim->spec.attach, &places, &driver, &err) < 0)
		return fail_error(failure, &err);
	if (isolation != ISOLATION_MOUNT)
		return 0;
	(void)register_or_fail(shim, ATTACH_FLAG_NAMESPACE, &(struct failure){0});
	return isolation_mount_environment(&mount, &err) < 0 ? fail_error(failure, &err) : 0;
}

/* All but the exec itself. */
static int command_prepare(const struct shim *shim, char ***ret_argv, struct failure *failure)
{
	char path[PATH_MAX] = "", log[PATH_MAX];
	const char *what = "";

	/* In the daemon's environment, as it may have to be started. A pod has no slice here. */
	if (!shim->spec.pod && register_or_fail(shim, 0, failure) < 0)
		return -1;
	int rc = shim_spec_enter(&shim->spec, &what);
	if (rc < 0)
		return fail(failure, EXIT_CODE_RUN_FAILED, what, -rc);
	snprintf(log, sizeof(log), "%s/%s" SHIM_LOG, shim->place.dir, shim->place.name);
	if ((rc = shim_spec_output(&shim->spec, log, path)) < 0)
		return fail(failure, EXIT_CODE_RUN_FAILED, path, -rc);
	if (shim->spec.pod) {
		struct error err = {0};

		*ret_argv = shim_pod_argv(&shim->spec, &shim->place, &err);
		return *ret_argv ? 0 : fail_error(failure, &err);
	}
	if (*shim->spec.image) {
		struct error err = {0};

		*ret_argv = shim_container_argv(&shim->spec, &shim->place, shim->go.session, &err);
		return *ret_argv ? 0 : fail_error(failure, &err);
	}
	if (slice_enter(shim, failure) < 0)
		return -1;
	*ret_argv = shim_spec_argv(&shim->spec);
	return *ret_argv ? 0 : fail(failure, EXIT_CODE_RUN_FAILED, "the command", ENOMEM);
}

static void signals_restore(const struct shim *shim)
{
	for (int number = 1; number <= SIGRTMAX; number++)
		if (number != SIGKILL && number != SIGSTOP)
			(void)signal(number, SIG_DFL);
	pthread_sigmask(SIG_SETMASK, &shim->mask, NULL);
}

/* Nothing ran: the daemon may start the job anew. */
static void leave_unstarted(const struct shim *shim)
{
	(void)record_add(shim->record, json_pack("{s:s}", "kind", SHIM_KIND_UNSTARTED), true);
}

_Noreturn static void command_become(const struct shim *shim, int gate, int failures)
{
	struct failure failure = {0};
	char **argv = NULL, byte;

	setsid();
	int rc = command_prepare(shim, &argv, &failure);
	(void)!write(failures, "r", 1);
	/* The start is recorded before anything of the job can run. */
	if (read(gate, &byte, 1) != 1) {
		leave_unstarted(shim);
		_exit(EXIT_CODE_RUN_FAILED);
	}
	kill_point("shim.released");
	if (rc == 0) {
		signals_restore(shim);
		execvp(argv[0], argv);
		fail(&failure, errno == ENOENT ? EXIT_CODE_NOT_FOUND : EXIT_CODE_NOT_EXECUTABLE,
		     argv[0], errno);
	}
	dprintf(STDERR_FILENO, "carve: %s\n", failure.text);
	(void)write_all(failures, &failure, sizeof(failure));
	_exit(failure.code);
}

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
	shim->go.session[sizeof(shim->go.session) - 1] = '\0';
	return n == sizeof(shim->go) && shim->go.magic == SHIM_GO_MAGIC;
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
	for (int i = 0; *shim->cgroup && i < SWEEPS_MAX && cgroup_remove(shim->cgroup) == -EBUSY;
	     i++)
		(void)poll(NULL, 0, 1 + i / 10);
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
		command_become(shim, gate[0], failures[1]);
	}
	close(gate[0]);
	close(failures[1]);
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
	static const char *const names[] = {"carved\n", "carve-keeper\n", "carve-shim\n"};
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
	bool mine = runtime_is_mine(shim);
	unsigned count = 0;

	snprintf(path, sizeof(path), "/proc/self/task/%d/children", (int)getpid());
	cleanup_close int fd = open(path, O_RDONLY | O_CLOEXEC);
	/* Of more than this holds, the rest is seen by the next sweep. */
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

static bool is_contained(const struct shim *shim)
{
	return *shim->spec.image != '\0' && !shim->spec.pod;
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

/* By its runtime, in the job's environment, which may say where that has its containers. */
static void container_remove(const struct shim *shim)
{
	const char *what;

	if (fork() != 0)
		return;
	pthread_sigmask(SIG_SETMASK, &shim->mask, NULL);
	if (shim_spec_enter(&shim->spec, &what) == 0)
		shim_container_remove(shim->place.dir, shim->place.name);
	_exit(EXIT_CODE_FAILED);
}

static void stage_next(struct shim *shim, uint64_t now)
{
	if (shim->stage == STAGE_RUNNING) {
		shim->stage = STAGE_TERMINATED;
		shim->next_ns = now + shim->spec.grace_ns;
		job_signal(shim, SIGTERM);
		/* A job that is stopped would not hear of it. */
		job_signal(shim, SIGCONT);
	} else if (shim->stage == STAGE_TERMINATED && is_contained(shim)) {
		shim->stage = STAGE_REMOVED;
		shim->next_ns = now + REMOVAL_PATIENCE_NS;
		container_remove(shim);
	} else {
		shim->stage = STAGE_KILLED;
		shim->next_ns = now + 1000000000ull; /* what it forked meanwhile */
		job_signal(shim, SIGKILL);
	}
}

/* From one start of a daemon to the next: one that ends so often has a reason. */
#define REVIVE_EVERY_NS 3000000000ull
/* Shims of one daemon look one after the other, so that one starts it and the others find it. */
#define REVIVE_APART_NS 5000000ull
#define REVIVE_PLACES 20

/* One that ends in order leaves its lock's file empty: somebody wants it so. One that is only about
 * to serve has the lock. */
static bool daemon_was_killed(const struct shim *shim)
{
	char runtime[PATH_MAX], lock[PATH_MAX + 8];
	struct stat st;

	runtime_of(shim, runtime);
	snprintf(lock, sizeof(lock), "%s/lock", runtime);
	cleanup_close int fd = open(lock, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	return fd >= 0 && fstat(fd, &st) == 0 && st.st_size > 0 &&
	       flock(fd, LOCK_SH | LOCK_NB) == 0;
}

/* A simulated host ends with all that is on it, and its directory goes. Set for every program
 * there. */
static bool host_is_gone(void)
{
	const char *host = secure_getenv("SIMGPU_HOST");

	return host && access(host, F_OK) < 0 && errno == ENOENT;
}

/* Watches the user's own daemon while the job runs, as `carve run` does: what the job starts later
 * has to attach. */
static void daemon_look(struct shim *shim)
{
	pid_t pid = daemon_pid(shim);

	if (pid == 0 && host_is_gone() && shim->stage == STAGE_RUNNING) {
		shim->why = "cancelled";
		stage_next(shim, now_monotonic_ns());
	}

	shim->revive_ns = UINT64_MAX;
	if (pid == 0 && daemon_was_killed(shim)) {
		daemon_revive(shim);
		pid = daemon_pid(shim);
	}
	shim->daemon = pid > 0 ? (int)syscall(SYS_pidfd_open, pid, 0) : -1;
	if (shim->daemon < 0)
		shim->revive_ns = now_monotonic_ns() + REVIVE_EVERY_NS;
}

static void daemon_ended(struct shim *shim)
{
	close_fd(&shim->daemon);
	shim->revive_ns =
		now_monotonic_ns() + (uint64_t)(getpid() % REVIVE_PLACES) * REVIVE_APART_NS;
}

static void signal_take(struct shim *shim)
{
	struct signalfd_siginfo info;

	while (read(shim->signals, &info, sizeof(info)) == sizeof(info)) {
		if (info.ssi_signo == SIGCHLD || shim->stage != STAGE_RUNNING)
			continue;
		shim->why = "cancelled";
		stage_next(shim, now_monotonic_ns());
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
	uint64_t now = now_monotonic_ns(), next = MIN(shim->next_ns, shim->revive_ns);

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
			daemon_ended(shim);
	}
	if (now_monotonic_ns() >= shim->revive_ns)
		daemon_look(shim);
	if (now_monotonic_ns() < shim->next_ns)
		return false;
	if (shim->stage == STAGE_RUNNING)
		shim->why = "timeout";
	stage_next(shim, now_monotonic_ns());
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
	if (runtime_is_mine(shim) || host_is_gone())
		daemon_look(shim);
	/* A process that the command leaves behind becomes a child of this process. */
	bool ready = ready_wait(shim, *ret_failures);
	prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
	if (ready)
		(void)!write(gate, "g", 1);
	return 0;
}

/* A runtime's helpers that tidy up after a container end by themselves. */
static void helpers_await(void)
{
	uint64_t end = now_monotonic_ns() + HELPERS_PATIENCE_NS;

	while (now_monotonic_ns() < end) {
		pid_t pid = waitpid(-1, NULL, WNOHANG);

		if (pid < 0)
			return; /* none is left */
		if (pid == 0)
			(void)poll(NULL, 0, 5);
	}
}

/* Processes that the command left behind end with it: its slice is given to others. */
static void leftovers_end(struct shim *shim)
{
	if (is_contained(shim) && shim->stage != STAGE_KILLED)
		helpers_await();
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
		leave_unstarted(shim);
		return EXIT_CODE_FAILED;
	}
	kill_point("shim.running");
	int status = command_wait(shim, &usage);
	leftovers_end(shim);
	cgroup_end(shim);
	if (read(failures, &failure, sizeof(failure)) != sizeof(failure))
		failure = (struct failure){0};
	kill_point("shim.ended");
	/* A full disk: the daemon learns of the end all the same, and waits for its cause as long
	 * as this process lives. Where the daemon lives it takes the record at once, and removes
	 * it: the next job's start need not wait for the disk. */
	while (record_look(&shim->place, &shim->record) < 0 ||
	       record_add(shim->record, exit_object(shim, status, &usage, &failure),
			  getppid() != shim->parent) < 0)
		(void)poll(NULL, 0, 1000);
	kill_point("shim.exit_recorded");
	/* The daemon that started it died since, and perhaps nobody has needed one: jobs that wait
	 * for this one's place do. */
	if (getppid() != shim->parent && daemon_is_unreachable(shim))
		daemon_revive(shim);
	return EXIT_CODE_OK;
}

/* A program that is told of jobs' changes. Nobody waits for its end: the parent ends at once. */
static int hook_become(const struct shim *shim)
{
	char path[PATH_MAX] = "", log[PATH_MAX], **argv = shim_spec_argv(&shim->spec);
	const char *what = "";

	if (!argv || fork() != 0)
		return EXIT_CODE_OK;
	setsid();
	snprintf(log, sizeof(log), "%s/%s" SHIM_LOG, shim->place.dir, shim->place.name);
	int rc = shim_spec_enter(&shim->spec, &what);
	if (rc == 0)
		rc = shim_spec_output(&shim->spec, log, path);
	if (rc < 0 || dup2(SHIM_GO_FD, STDIN_FILENO) < 0)
		return EXIT_CODE_FAILED;
	signals_restore(shim);
	execvp(argv[0], argv);
	dprintf(STDERR_FILENO, "carve: the hook cannot be run: %s: %s\n", argv[0],
		strerrordesc_np(errno));
	return EXIT_CODE_FAILED;
}

/* Says where ld.so finds the driver, and ends without unloading it. */
_Noreturn static void driver_say(void)
{
	static struct driver_libs links;
	const char *paths = secure_getenv("LD_LIBRARY_PATH");

	driver_links(&links);
	json_t *object = json_pack("{s:s, s:s, s:s}", "cuda", links.cuda, "nvml", links.nvml,
				   "paths", paths ? paths : "");
	cleanup_free char *text = json_dumps(object, JSON_COMPACT);
	bool said = text && write_all(STDOUT_FILENO, text, strlen(text)) == 0;
	_exit(said ? EXIT_CODE_OK : EXIT_CODE_FAILED);
}

static char *paths_keep(void)
{
	const char *now = secure_getenv("LD_LIBRARY_PATH");
	char *copy = strdup(now ? now : "");

	return copy ? copy : "";
}

int main(int argc, char **argv)
{
	struct shim shim = {.next_ns = UINT64_MAX, .revive_ns = UINT64_MAX, .daemon = -1};

	if (argc == 2 && !strcmp(argv[1], "--help")) {
		fputs(help, stdout);
		return EXIT_CODE_OK;
	}
	if (argc == 2 && !strcmp(argv[1], "--version")) {
		puts("carve-shim " CARVE_VERSION);
		return EXIT_CODE_OK;
	}
	if (argc == 2 && !strcmp(argv[1], SHIM_DRIVER))
		driver_say();
	if (argc != 3 || fcntl(SHIM_SPEC_FD, F_GETFD) < 0 || fcntl(SHIM_GO_FD, F_GETFD) < 0) {
		fputs("carve-shim: it is started by carved; see carve-shim --help\n", stderr);
		return EXIT_CODE_USAGE;
	}
	shim.place = (struct record_place){argv[1], argv[2]};
	(void)fcntl(SHIM_SPEC_FD, F_SETFD, FD_CLOEXEC);
	(void)fcntl(SHIM_GO_FD, F_SETFD, FD_CLOEXEC);
	shim.parent = getppid();
	shim.paths = paths_keep();
	signals_begin(&shim);
	prctl(PR_SET_NAME, "carve-shim", 0, 0, 0);
	if (shim.signals < 0 || shim_spec_read(SHIM_SPEC_FD, &shim.spec) < 0)
		return EXIT_CODE_OK;
	if (shim.spec.hook)
		return hook_become(&shim);
	if (!go_wait(&shim))
		return EXIT_CODE_OK;
	kill_point("shim.go");
	shim.record = record_open(&shim.place);
	if (shim.record < 0)
		return EXIT_CODE_FAILED; /* nothing ran, and nothing says that it did */
	if (shim.spec.limit_ns)
		shim.next_ns = now_monotonic_ns() + shim.spec.limit_ns;
	return shim_run(&shim);
}
