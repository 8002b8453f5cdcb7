/* A shim's process, from the fork to the exec: it gives up root for good before it runs anything.
 */
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <limits.h>
#include <linux/capability.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cgroup.h"
#include "base/file.h"
#include "base/macros.h"
#include "base/process.h"
#include "proto/attach.h"
#include "proto/shim.h"
#include "proto/warden_jobs.h"
#include "warden/jobs.h"

/* Out of the way of the shim's own descriptors. */
#define FDS_FROM 10
#define WORD_FD (SHIM_PERMIT_FD + 1)

/* Out of the way of the numbers that a shim's descriptors have. Takes -errno, and returns it. */
static int far(int fd)
{
	if (fd < 0)
		return fd;
	int moved = fcntl(fd, F_DUPFD_CLOEXEC, FDS_FROM), rc = -errno;

	close(fd);
	return moved < 0 ? rc : moved;
}

/* ---- the child ---------------------------------------------------------------------------- */

static int limits_set(const struct jobs_place *place, const struct warrant *warrant)
{
	for (unsigned i = 0; i < RLIM_NLIMITS && i < WARRANT_LIMITS; i++) {
		rlim_t most =
			warrant->limit[i] == WARRANT_UNLIMITED ? RLIM_INFINITY : warrant->limit[i];
		struct rlimit limit;

		if (i == RLIMIT_NPROC)
			most = MIN(most, jobs_tasks_of_user(place));
		if (getrlimit((__rlimit_resource_t)i, &limit) < 0)
			return -errno;
		struct rlimit wanted = {MIN(limit.rlim_cur, most), most};
		if (setrlimit((__rlimit_resource_t)i, &wanted) == 0)
			continue;
		/* A root without the right to raise one, as in a container, keeps what it has. */
		wanted.rlim_max = MIN(limit.rlim_max, most);
		if (setrlimit((__rlimit_resource_t)i, &wanted) < 0)
			return -errno;
	}
	return 0;
}

/* Nothing is inherited by way of capabilities either. */
static int inheritable_clear(void)
{
	struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct data[2] = {0};

	(void)prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
	if (syscall(SYS_capget, &header, data) < 0)
		return -errno;
	data[0].inheritable = data[1].inheritable = 0;
	return syscall(SYS_capset, &header, data) < 0 ? -errno : 0;
}

static int groups_become(const struct warrant *warrant)
{
	gid_t groups[WARRANT_GROUPS_MAX];

	for (uint32_t i = 0; i < warrant->group_count; i++)
		groups[i] = warrant->group[i];
	int rc = inheritable_clear();
	if (rc < 0)
		return rc;
	return setgroups(warrant->group_count, groups) < 0 ||
			       setresgid(warrant->gid, warrant->gid, warrant->gid) < 0
		       ? -errno
		       : 0;
}

/* Whether the user may run the shim's program. Only the real and the saved user decide who may
 * signal this process, and these stay root's. */
static int program_check(const char *path, uid_t uid)
{
	if (setresuid((uid_t)-1, uid, (uid_t)-1) < 0)
		return -errno;
	int rc = faccessat(AT_FDCWD, path, X_OK, AT_EACCESS) < 0 ? -errno : 0;
	return setresuid((uid_t)-1, 0, (uid_t)-1) < 0 ? -errno : rc;
}

/* For good. */
static bool user_become(uid_t uid)
{
	uid_t real, effective, saved;

	return setresuid(uid, uid, uid) == 0 && getresuid(&real, &effective, &saved) == 0 &&
	       real == uid && effective == uid && saved == uid &&
	       (uid == 0 || setresuid(0, 0, 0) < 0);
}

static int descriptors_set(int spec_fd, int go_fd, int dir_fd, int permit_fd, int word_fd)
{
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);

	if (null < 0)
		return -errno;
	for (int fd = 0; fd <= STDERR_FILENO; fd++)
		if (dup2(null, fd) < 0)
			return -errno;
	if (dup2(spec_fd, SHIM_SPEC_FD) < 0 || dup2(go_fd, SHIM_GO_FD) < 0 ||
	    dup2(dir_fd, SHIM_DIR_FD) < 0 ||
	    (permit_fd >= 0 ? dup2(permit_fd, SHIM_PERMIT_FD) < 0
			    : close_range(SHIM_PERMIT_FD, SHIM_PERMIT_FD, 0) < 0) ||
	    dup3(word_fd, WORD_FD, O_CLOEXEC) < 0 || close_range(WORD_FD + 1, ~0u, 0) < 0)
		return -errno;
	return 0;
}

static void signals_restore(void)
{
	sigset_t none;

	for (int number = 1; number <= SIGRTMAX; number++)
		if (number != SIGKILL && number != SIGSTOP)
			(void)signal(number, SIG_DFL);
	sigemptyset(&none);
	pthread_sigmask(SIG_SETMASK, &none, NULL);
}

/* The variables of a shim. By some it finds the host's driver, where that is not in the usual
 * place. Others are those of kill points, for tests, and the one by which the warden knows
 * processes of slices. */
static void environment_make(char *ret[static 6])
{
	static char texts[4][PATH_MAX];
	static const char *const kept[] = {"LD_LIBRARY_PATH", "SIMGPU_HOST", "CARVE_KILL_POINT",
					   "PATH"};
	size_t count = 0;

	for (size_t i = 0; i < ARRAY_SIZE(kept); i++) {
		const char *value = secure_getenv(kept[i]);

		if (value && snprintf(texts[i], sizeof(texts[i]), "%s=%s", kept[i], value) <
				     (int)sizeof(texts[i]))
			ret[count++] = texts[i];
	}
	ret[count++] = ATTACH_ENV_SESSION "=";
	ret[count] = NULL;
}

_Noreturn static void child_run(const struct jobs_place *place, const struct warrant *warrant,
				const char *name, const char *tasks_cgroup, int spec_fd, int go_fd,
				int permit_fd, int word_fd)
{
	char dir[PATH_MAX], *environment[6];
	char *argv[] = {(char *)place->shim, dir, (char *)name, (char *)place->attach, NULL};
	int rc;

	setsid();
	if (*tasks_cgroup)
		(void)cgroup_write(tasks_cgroup, "cgroup.procs", "0");
	int dir_fd = far(jobs_user_directory(place, warrant->uid, dir, sizeof(dir)));
	rc = dir_fd < 0 ? dir_fd : descriptors_set(spec_fd, go_fd, dir_fd, permit_fd, word_fd);
	environment_make(environment);
	word_fd = rc == 0 ? WORD_FD : word_fd;
	if (rc == 0)
		rc = limits_set(place, warrant);
	if (rc == 0)
		rc = chdir("/") < 0 ? -errno : groups_become(warrant);
	if (rc == 0)
		rc = program_check(place->shim, warrant->uid);
	umask(022); /* the worker reads records; the directory is closed to others */
	signals_restore();
	/* From the next line on its user may stop this process: nobody waits for it any more. A
	 * failure there leaves no record, so that nothing ran of the job. */
	if (write_all(word_fd, &rc, sizeof(rc)) == 0 && rc == 0 && user_become(warrant->uid))
		execve(place->shim, argv, environment);
	_exit(EXIT_FAILURE);
}

/* ---- the parent --------------------------------------------------------------------------- */

static int pipe_far(int ret[2])
{
	if (pipe2(ret, O_CLOEXEC) < 0)
		return -errno;
	ret[0] = far(ret[0]);
	ret[1] = far(ret[1]);
	return ret[0] < 0 || ret[1] < 0 ? -EMFILE : 0;
}

/* The child's word: 0, once it has all but its user; or -errno. */
static int word_read(int fd)
{
	int word = 0;
	ssize_t n;

	while ((n = read(fd, &word, sizeof(word))) < 0 && errno == EINTR)
		;
	return n == sizeof(word) ? word : -ECHILD;
}

int jobs_shim_start(const struct jobs_place *place, const struct warrant *warrant, const char *name,
		    int spec_fd, int permit_fd, int *ret_go, struct process_id *ret)
{
	int go[2] = {-1, -1}, word[2] = {-1, -1};
	int rc = pipe_far(go);

	if (rc == 0)
		rc = pipe_far(word);
	cleanup_close int spec = fcntl(spec_fd, F_DUPFD_CLOEXEC, FDS_FROM);
	cleanup_close int permit = permit_fd < 0 ? -1 : fcntl(permit_fd, F_DUPFD_CLOEXEC, FDS_FROM);
	cleanup_close int go_in = go[0], go_out = go[1], in = word[0], out = word[1];
	if (rc < 0 || spec < 0)
		return rc < 0 ? rc : -EMFILE;
	char cgroup[PATH_MAX], tasks_cgroup[PATH_MAX];
	jobs_cgroup_make(place, name, cgroup);
	jobs_tasks_limit(place, name, cgroup, tasks_cgroup);
	pid_t pid = cgroup_fork(cgroup);
	if (pid == 0)
		child_run(place, warrant, name, tasks_cgroup, spec, go_in, permit, out);
	if (pid < 0)
		return -errno;
	close_fd(&out);
	rc = word_read(in);
	/* Not before: its owner may freeze what is in it, and the child's word is waited for. */
	if (rc == 0)
		jobs_cgroup_give(cgroup, warrant);
	if (rc == 0)
		rc = process_identify(pid, ret);
	if (rc < 0) {
		/* Its pipe ends, and so does it. The next sweep removes its cgroup. */
		*ret = (struct process_id){0};
		return rc;
	}
	*ret_go = steal_fd(&go_out);
	return 0;
}
