#include "daemon/separate.h"

#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <grp.h>
#include <limits.h>
#include <linux/capability.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "backend/gpus.h"
#include "base/error.h"
#include "base/file.h"
#include "daemon/gpu/claims.h"
#include "daemon/host/filter.h"
#include "daemon/host/log.h"
#include "daemon/host/supervisor.h"
#include "daemon/node.h"
#include "daemon/supervisor/supervise.h"
#include "daemon/warden_make.h"
#include "warden/warden.h"

#define DEVICE_NODES "/dev/nvidia*"
#define GROUPS_MOST 16
/* The lease thread's niceness, and RLIMIT_NICE for it. */
#define LEASES_NICE (-10)
#define NICE_LIMIT 30

enum obstacle {
	OBSTACLE_NONE,
	OBSTACLE_USER,
	OBSTACLE_PROC,
	OBSTACLE_DRIVER,
};

/* The user that the daemon becomes. carve's own supervisor decides it, as the directory of jobs
 * depends on it, and tells its worker. Under systemd the daemon decides it. */
struct worker {
	uid_t uid; /* 0: it stays root */
	gid_t gid;
	gid_t groups[GROUPS_MOST]; /* those that may use the GPUs' device nodes */
	size_t group_count;
	enum obstacle obstacle; /* why it stays root */
	int jobs_error;         /* why the warden starts no jobs: -errno; 0: it does */
	bool has_service;       /* the warden is a service of its own */
	/* As the supervisor's options say, since the directory of jobs is beside it. The worker may
	 * have read a configuration that names another one. */
	char state_dir[PATH_MAX / 2];
};

/* A pipe has room for it at once. */
_Static_assert(sizeof(struct worker) <= PIPE_BUF, "it is written at once");

// NOLINTBEGIN(concurrency-mt-unsafe): all of this runs before there are threads.

/* ---- the user that it becomes ------------------------------------------------------------ */

static bool free_id(uid_t *ret)
{
	for (uid_t id = WARDEN_ID_FIRST; id <= WARDEN_ID_LAST; id++)
		if (!getpwuid(id) && !getgrgid(id)) {
			*ret = id;
			return true;
		}
	return false;
}

/* Device nodes are everybody's by default; an administrator may have made them a group's. */
static void groups_find(struct worker *w)
{
	glob_t nodes = {0};
	struct stat st;

	if (glob(DEVICE_NODES, 0, NULL, &nodes) != 0)
		return;
	for (size_t i = 0; i < nodes.gl_pathc && w->group_count < GROUPS_MOST; i++) {
		bool known = false;

		if (stat(nodes.gl_pathv[i], &st) < 0 || !S_ISCHR(st.st_mode) || st.st_gid == 0 ||
		    (st.st_mode & 0066) != 0060)
			continue;
		for (size_t k = 0; k < w->group_count; k++)
			known |= w->groups[k] == st.st_gid;
		if (!known)
			w->groups[w->group_count++] = st.st_gid;
	}
	globfree(&nodes);
}

static int worker_choose(const char *user, struct worker *ret, struct error *err)
{
	const struct passwd *entry = getpwnam(user ? user : SEPARATE_USER);

	*ret = (struct worker){0};
	if (entry) {
		ret->uid = entry->pw_uid;
		ret->gid = entry->pw_gid;
	} else if (user) {
		return error_set(err, EXIT_CODE_FAILED, "--user: there is no user %.64s", user);
	} else if (free_id(&ret->uid)) {
		ret->gid = ret->uid;
	} else {
		return error_set(err, EXIT_CODE_FAILED,
				 "there is no user " SEPARATE_USER
				 ", and all IDs from %u to %u are taken",
				 WARDEN_ID_FIRST, WARDEN_ID_LAST);
	}
	groups_find(ret);
	return 0;
}

static int worker_become(const struct worker *w)
{
	if (setgroups(w->group_count, w->groups) < 0 || setresgid(w->gid, w->gid, w->gid) < 0 ||
	    setresuid(w->uid, w->uid, w->uid) < 0)
		return -errno;
	return 0;
}

/* ---- whether it can ---------------------------------------------------------------------- */

static bool driver_starts(void)
{
	struct error err = {0};
	struct gpus *gpus;

	return gpus_open(&gpus, &err) == 0;
}

/* In a child, as the worker. */
static enum obstacle obstacle_find(const struct worker *w)
{
	if (worker_become(w) < 0)
		return OBSTACLE_USER;
	if (access("/proc/1/stat", R_OK) < 0)
		return OBSTACLE_PROC;
	return driver_starts() ? OBSTACLE_NONE : OBSTACLE_DRIVER;
}

/* In a child, as root: a driver that starts for nobody is no obstacle. */
static enum obstacle obstacle_driver(const struct worker *w)
{
	(void)w;
	return driver_starts() ? OBSTACLE_DRIVER : OBSTACLE_NONE;
}

static const char *obstacle_text(enum obstacle obstacle)
{
	switch (obstacle) {
	case OBSTACLE_NONE:
		break;
	case OBSTACLE_USER:
		return "it may not change its user: this user namespace does not map the one that "
		       "it "
		       "would become, or its service's unit is an older one, and a restart helps";
	case OBSTACLE_PROC:
		return "/proc hides others' processes (hidepid), and it has to see who lives";
	case OBSTACLE_DRIVER:
		return "the driver does not start for the user that it would become: its files, or "
		       "the simulated host's, are root's alone";
	}
	return "";
}

/* In a child of its own: what it changes and opens ends with it. */
static enum obstacle obstacle_ask(const struct worker *w,
				  enum obstacle (*find)(const struct worker *w))
{
	int status = 0;
	pid_t pid = fork();

	if (pid == 0) {
		/* The driver gets none of the supervisor's descriptors. */
		(void)close_range(STDERR_FILENO + 1, ~0u, 0);
		_exit((int)find(w));
	}
	while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	return pid < 0 || !WIFEXITED(status) ? OBSTACLE_USER : (enum obstacle)WEXITSTATUS(status);
}

/* ---- directories that are made before ---------------------------------------------------- */

/* The log is the worker's to write and to turn; what was in it before is in a second file. */
static int log_give(const struct worker *w)
{
	char old[PATH_MAX];
	int length = log_path() ? snprintf(old, sizeof(old), "%s.old", log_path()) : 0;

	if (length <= 0 || (size_t)length >= sizeof(old))
		return 0;
	cleanup_close int fd = open(old, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0 || fchown(fd, w->uid, w->gid) < 0 || fchown(STDERR_FILENO, w->uid, w->gid) < 0)
		return -errno;
	return 0;
}

static int directories_make(struct node *node, const struct worker *w, struct error *err)
{
	int rc = state_prepare(&node->state, &node->runtime, w->uid, w->gid, err);

	if (rc < 0)
		return rc;
	rc = claims_open(&node->pool.claims, w->uid);
	if (rc < 0)
		log_event(LOG_WARNING, "claims.failed dir=" CLAIMS_DIR " error=\"%s\"",
			  strerrordesc_np(-rc));
	return 0;
}

static int places_make(struct node *node, const struct worker *w, struct error *err)
{
	if (directories_make(node, w, err) < 0)
		return -1;
	int rc = log_give(w);
	if (rc < 0)
		return error_set(err, EXIT_CODE_FAILED, "cannot give %s to user %u: %s", log_path(),
				 w->uid, strerrordesc_np(-rc));
	/* Clients believe root's sockets: who listens first is asked by the kernel now. */
	return runtime_listen(&node->runtime, node->options.system, err);
}

static struct warden_making making_of(const struct node *node, const struct worker *w)
{
	return (struct warden_making){.runtime = &node->runtime,
				      .state_dir = node->state.wanted,
				      .job_tasks = node->config.job_tasks,
				      .uid = w->uid,
				      .gid = w->gid};
}

/* ---- the decision ------------------------------------------------------------------------ */

static int worker_decide(const char *user, struct worker *ret, struct error *err)
{
	struct worker w;

	if (worker_choose(user, &w, err) < 0)
		return -1;
	enum obstacle obstacle = w.uid ? obstacle_ask(&w, obstacle_find) : OBSTACLE_NONE;
	if (obstacle == OBSTACLE_DRIVER)
		obstacle = obstacle_ask(&w, obstacle_driver);
	*ret = obstacle == OBSTACLE_NONE ? w : (struct worker){.obstacle = obstacle};
	return 0;
}

/* Hosts the warden, where it is no service. The directory of jobs is beside that of the state,
 * which the worker prepares, too: the second time there is nothing to do. */
static int warden_hosted_link(struct supervise *supervise, struct worker *w, int *ret_fd,
			      struct error *err)
{
	struct node *node = supervise->arg;
	struct state state = node->state;

	if (state_prepare(&state, &node->runtime, w->uid, w->gid, err) < 0)
		return -1;
	struct warden_making making = making_of(node, w);
	making.state_dir = state.wanted;
	int rc = warden_host(&making, &supervise->warden, &w->jobs_error);
	if (rc == 0)
		rc = warden_host_link(supervise->warden, ret_fd);
	return rc < 0 ? error_set(err, EXIT_CODE_FAILED, "cannot make the warden: %s",
				  strerrordesc_np(-rc))
		      : 0;
}

int separate_begin(struct supervise *supervise, struct supervise_ends *ret, struct error *err)
{
	const struct node *node = supervise->arg;
	struct worker w;
	int ends[2];

	if (worker_decide(node->options.user, &w, err) < 0)
		return -1;
	cleanup_close int link_fd = warden_connect(&node->runtime);
	w.has_service = link_fd >= 0;
	if (!w.has_service && warden_hosted_link(supervise, &w, &link_fd, err) < 0)
		return -1;
	if (pipe2(ends, O_CLOEXEC) < 0)
		return error_set(err, EXIT_CODE_FAILED, "cannot make a pipe to the worker: %s",
				 strerrordesc_np(errno));
	snprintf(w.state_dir, sizeof(w.state_dir), "%s", node->state.wanted);
	(void)!write(ends[1], &w, sizeof(w));
	close(ends[1]);
	*ret = (struct supervise_ends){.warden_fd = steal_fd(&link_fd), .separation_fd = ends[0]};
	return 0;
}

/* The worker and the link to its warden, from the supervisor. */
static int worker_receive(struct node *node, struct worker *ret, int *ret_link_fd,
			  struct error *err)
{
	cleanup_close int fd = supervisor_socket(SUPERVISOR_SEPARATION);

	*ret_link_fd = supervisor_socket(SUPERVISOR_WARDEN);
	if (fd < 0 || *ret_link_fd < 0 || read(fd, ret, sizeof(*ret)) != sizeof(*ret))
		return error_set(err, EXIT_CODE_FAILED,
				 "the supervisor did not say what this worker is to become");
	snprintf(node->state.wanted, sizeof(node->state.wanted), "%s", ret->state_dir);
	return 0;
}

/* Under systemd, which starts the daemon and the warden, and leaves this process few rights. */
static int worker_find(const struct node *node, const char *user, struct worker *ret,
		       int *ret_link_fd, struct error *err)
{
	if (worker_decide(user, ret, err) < 0)
		return -1;
	*ret_link_fd = warden_connect(&node->runtime);
	if (*ret_link_fd < 0)
		return error_set(err, EXIT_CODE_FAILED,
				 "carve-warden.service, which does what takes root's rights, does "
				 "not answer: %s",
				 strerrordesc_np(-*ret_link_fd));
	ret->has_service = true;
	return 0;
}

static void launcher_note(struct launcher *l, const struct worker *w)
{
	l->service = w->has_service;
	l->there = w->jobs_error == 0;
	if (l->there)
		return;
	snprintf(l->why_not, sizeof(l->why_not), "%s",
		 w->jobs_error == -EACCES ? "it was started without the rights to become other "
					    "users, and carve-warden.service does not run"
					  : strerrordesc_np(-w->jobs_error));
	log_event(LOG_WARNING, "launcher.none reason=\"%s\"", l->why_not);
}

/* ---- becoming it ------------------------------------------------------------------------- */

/* Nothing is left that could be had back. */
static int rights_drop(const struct worker *w)
{
	struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct none[2] = {0};
	struct rlimit nice = {NICE_LIMIT, NICE_LIMIT};

	/* Where the limit cannot be raised, as in a container, the thread inherits it. */
	if (setrlimit(RLIMIT_NICE, &nice) < 0)
		(void)setpriority(PRIO_PROCESS, 0, LEASES_NICE);
	for (unsigned capability = 0; capability <= CAP_LAST_CAP; capability++)
		(void)prctl(PR_CAPBSET_DROP, capability, 0, 0, 0);
	(void)prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
	int rc = worker_become(w);
	supervisor_follow();
	if (rc == 0 && syscall(SYS_capset, &header, none) < 0)
		rc = -errno;
	if (rc == 0 && prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
		rc = -errno;
	if (rc == 0 && prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0)
		rc = -errno;
	if (rc == 0)
		rc = filter_apply();
	/* A kernel that would give it back is not to be served under. */
	if (rc == 0 && (setresuid(0, 0, 0) == 0 || geteuid() != w->uid))
		rc = -EPERM;
	return rc;
}

void separate_settle(void)
{
	if (getpriority(PRIO_PROCESS, 0) == LEASES_NICE)
		(void)setpriority(PRIO_PROCESS, 0, 0);
}

bool separate_wanted(const struct node *node)
{
	return node->options.system && geteuid() == 0;
}

static void separation_note(struct separation *separation, enum obstacle obstacle)
{
	if (obstacle == OBSTACLE_NONE)
		return;
	snprintf(separation->why_not, sizeof(separation->why_not), "%s", obstacle_text(obstacle));
	log_event(LOG_WARNING, "carved.not_separated reason=\"%s\"", separation->why_not);
}

int separate(struct node *node, const char *user, struct error *err)
{
	struct worker w = {0};
	int link_fd = -1;
	int rc = supervisor_is_own() ? worker_receive(node, &w, &link_fd, err)
				     : worker_find(node, user, &w, &link_fd, err);

	if (rc < 0)
		return -1;
	separation_note(&node->separation, w.obstacle);
	launcher_note(&node->launcher, &w);
	privileges_init(&node->privileges, link_fd);
	if (places_make(node, &w, err) < 0)
		return -1;
	rc = w.uid ? rights_drop(&w) : 0;
	if (rc < 0)
		return error_set(err, EXIT_CODE_FAILED, "cannot become user %u: %s", w.uid,
				 strerrordesc_np(-rc));
	node->separation.separated = w.uid != 0;
	log_event(LOG_INFO, "carved.user uid=%u separated=%d", w.uid, w.uid != 0);
	return 0;
}

int separate_prepare(struct node *node, const char *user, struct error *err)
{
	struct worker w;

	if (!separate_wanted(node))
		return -error_set(err, EXIT_CODE_USAGE,
				  "--prepare is for a system daemon, and for root");
	if (runtime_lock(&node->runtime, true, node->options.config_path, err) < 0 ||
	    worker_choose(user, &w, err) < 0 || directories_make(node, &w, err) < 0)
		return EXIT_CODE_FAILED;
	runtime_leave(&node->runtime);
	return EXIT_CODE_OK;
}

int separate_warden(struct node *node, const char *user, struct error *err)
{
	struct worker w;

	if (!separate_wanted(node))
		return -error_set(err, EXIT_CODE_USAGE,
				  "--warden is for a system daemon, and for root");
	if (worker_choose(user, &w, err) < 0)
		return EXIT_CODE_FAILED;
	/* As for the daemon: its state in its runtime directory is in a directory there. */
	int rc = state_prepare(&node->state, &node->runtime, w.uid, w.gid, err);
	struct warden_making making = making_of(node, &w);
	return rc < 0 ? EXIT_CODE_FAILED : warden_main(&making, err);
}

// NOLINTEND(concurrency-mt-unsafe)
