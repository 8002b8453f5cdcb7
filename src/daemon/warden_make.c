#include "daemon/warden_make.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/error.h"
#include "base/file.h"
#include "daemon/host/child.h"
#include "daemon/host/log.h"
#include "daemon/host/runtime.h"
#include "daemon/host/sole.h"
#include "daemon/host/supervisor.h"
#include "daemon/node.h"
#include "daemon/prepare.h"
#include "daemon/supervisor/worker.h"
#include "proto/shim.h"
#include "warden/jobs.h"
#include "warden/warden.h"

/* Where the directory of jobs was once. */
#define JOBS_DIR_OLD "jobs"

/* Texts of the place are of this process, which has one. 0 or -errno. */
static int jobs_make(const struct warden_making *m, struct jobs_place *ret)
{
	static char path[PATH_MAX], shim[PATH_MAX], attach[PATH_MAX];
	char old[PATH_MAX];
	int rc = child_program(SHIM_PROGRAM, shim);

	if (rc < 0)
		return rc;
	*ret = (struct jobs_place){.jobs_path = path,
				   .shim = shim,
				   .attach = attach,
				   .worker_gid = m->gid,
				   .tasks_wanted = m->job_tasks,
				   .jobs_fd = -1,
				   .rights.fd = -1};
	runtime_path(m->runtime, "attach.sock", attach, sizeof(attach));
	snprintf(path, sizeof(path), "%s" WARDEN_JOBS, m->state_dir);
	snprintf(old, sizeof(old), "%s/" JOBS_DIR_OLD, m->state_dir);
	ret->jobs_fd = jobs_open(path, old, m->gid);
	if (ret->jobs_fd < 0)
		return ret->jobs_fd;
	rc = jobs_secrets_open(ret);
	if (rc < 0)
		jobs_close(ret);
	return rc;
}

/* The descriptor is the caller's. */
static int place_make(const struct warden_making *m, struct jobs_place *jobs,
		      struct warden_place *ret)
{
	*ret = (struct warden_place){
		.dir_fd = open(m->runtime->dir, O_PATH | O_DIRECTORY | O_CLOEXEC),
		.jobs = jobs,
	};
	return ret->dir_fd < 0 ? -errno : 0;
}

static void socket_address(const struct runtime *runtime, struct sockaddr_un *ret)
{
	*ret = (struct sockaddr_un){.sun_family = AF_UNIX};
	runtime_path(runtime, WARDEN_SOCKET, ret->sun_path, sizeof(ret->sun_path));
}

static int peer_user(int fd, uid_t *ret)
{
	struct ucred peer;
	socklen_t size = sizeof(peer);

	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) < 0)
		return -errno;
	*ret = peer.uid;
	return 0;
}

int warden_connect(const struct runtime *runtime)
{
	struct sockaddr_un address;
	uid_t uid = (uid_t)-1;
	cleanup_close int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	socket_address(runtime, &address);
	if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof(address)) < 0)
		return -errno;
	int rc = peer_user(fd, &uid);
	return rc < 0 ? rc : uid == 0 ? steal_fd(&fd) : -EPERM;
}

/* The places of jobs that the warden of this process has. They are closed while it hosts none. */
static struct jobs_place hosted = {.jobs_fd = -1, .rights.fd = -1};
/* The runtime directory that it has open, which may be removed and made anew. */
static struct stat hosted_dir;

static bool is_hosted(const struct warden_making *m)
{
	char path[PATH_MAX];
	struct stat dir;

	snprintf(path, sizeof(path), "%s" WARDEN_JOBS, m->state_dir);
	return hosted.jobs_fd >= 0 && !strcmp(hosted.jobs_path, path) &&
	       hosted.worker_gid == m->gid && stat(m->runtime->dir, &dir) == 0 &&
	       dir.st_dev == hosted_dir.st_dev && dir.st_ino == hosted_dir.st_ino;
}

int warden_host(const struct warden_making *m, struct warden **warden, int *ret_jobs_error)
{
	struct warden_place place;

	*ret_jobs_error = 0;
	if (*warden && is_hosted(m))
		return 0;
	warden_close(*warden);
	*warden = NULL;
	jobs_close(&hosted);
	*ret_jobs_error = jobs_may() ? jobs_make(m, &hosted) : -EACCES;
	int rc = place_make(m, *ret_jobs_error ? NULL : &hosted, &place);
	if (rc == 0 && fstat(place.dir_fd, &hosted_dir) < 0)
		rc = -errno;
	if (rc == 0)
		rc = warden_open(&place, warden);
	return rc;
}

/* ---- the service -------------------------------------------------------------------------- */

/* The file of the socket is looked for this often while there is no worker. */
#define LOOK_MS 1000

struct service {
	struct node *node;
	const struct runtime_start *start;
	struct warden *warden; /* NULL: no worker was there yet */
	int listen_fd;
	int new_fd; /* to a worker that is being prepared; -1: there is none */
	struct worker_preparation preparation;
	int signal_fd; /* children that have ended */
	bool told;
};

/* The worker and root can connect, and whoever is in the worker's group, which is refused then. */
static int listen_hold(struct service *s, struct error *err)
{
	struct sockaddr_un address;
	struct worker_user user;

	socket_address(&s->node->runtime, &address);
	if (s->listen_fd >= 0 && access(address.sun_path, F_OK) == 0)
		return 0;
	if (prepare_user(s->node, &user, err) < 0 || runtime_make(&s->node->runtime, true, err) < 0)
		return -1;
	cleanup_close int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	(void)unlink(address.sun_path);
	/* Under an umask of 077: others cannot connect meanwhile. */
	if (fd < 0 || bind(fd, (struct sockaddr *)&address, sizeof(address)) < 0 ||
	    chown(address.sun_path, 0, user.gid) < 0 || chmod(address.sun_path, 0660) < 0 ||
	    listen(fd, 8) < 0)
		return error_set(err, EXIT_CODE_FAILED, "cannot listen on %s: %s", address.sun_path,
				 strerrordesc_np(errno));
	close_fd(&s->listen_fd);
	s->listen_fd = steal_fd(&fd);
	if (!s->told)
		supervisor_tell("READY=1");
	s->told = true;
	return 0;
}

/* By the kernel: the worker, or root. */
static int may_link(const struct service *s, int fd, struct error *err)
{
	struct worker_user user;
	uid_t uid = (uid_t)-1;

	if (prepare_user(s->node, &user, err) < 0)
		return -1;
	return peer_user(fd, &uid) == 0 && (uid == 0 || uid == user.uid)
		       ? 0
		       : error_set(err, EXIT_CODE_NOT_PERMITTED,
				   "user %u is not the daemon's, which is %u", uid, user.uid);
}

static void worker_refuse(struct service *s, const struct error *err)
{
	log_event(LOG_ERROR, "worker.refused error=\"%s\"", err->message);
	prepare_refuse(s->new_fd, err);
	runtime_let_go(&s->node->runtime);
	close_fd(&s->new_fd);
	prepare_forget(&s->preparation);
}

/* A worker that connects while another is served waits in the socket until that one has hung up. */
static void worker_accept(struct service *s)
{
	struct error err = {0};

	s->new_fd = accept4(s->listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	if (s->new_fd >= 0 &&
	    (may_link(s, s->new_fd, &err) < 0 || prepare_ask(s->node, &s->preparation, &err) < 0))
		worker_refuse(s, &err);
}

/* The question that was asked for the new worker has its answer. */
static void worker_take(struct service *s)
{
	struct error err = {0};

	if (runtime_hold(&s->node->runtime, s->start, &err) < 0 ||
	    prepare(s->node, &s->warden, s->new_fd, &s->preparation, &err) < 0) {
		worker_refuse(s, &err);
		return;
	}
	s->new_fd = -1; /* it is the warden's */
	prepare_forget(&s->preparation);
}

/* A second daemon was started, and finds this one: files may have been removed. The worker is to
 * have what is made of them. */
static void second_take(struct service *s)
{
	struct error err = {0};
	cleanup_close int fd = sole_accept(s->node->runtime.sole_fd);

	if (fd < 0 || runtime_hold(&s->node->runtime, s->start, &err) <= 0)
		return;
	warden_link(s->warden, -1);
	runtime_let_go(&s->node->runtime);
}

static int turn(struct service *s, struct error *err)
{
	bool linked = s->warden && warden_is_linked(s->warden), prepares = s->new_fd >= 0;
	int rc = linked ? 0 : listen_hold(s, err), timeout_ms = linked ? -1 : LOOK_MS;
	int worker_fd = prepares ? s->preparation.answer_fd : s->listen_fd;
	struct signalfd_siginfo info;
	struct pollfd fds[3 + WARDEN_POLLS_MAX] = {
		{.fd = s->signal_fd, .events = POLLIN},
		{.fd = s->node->runtime.sole_fd, .events = POLLIN},
		{.fd = linked ? -1 : worker_fd, .events = POLLIN},
	};
	unsigned count = s->warden ? warden_poll_fill(s->warden, fds + 3, &timeout_ms) : 0;

	if (rc < 0 || poll(fds, 3 + count, timeout_ms) < 0)
		return rc;
	if (s->warden)
		warden_poll_run(s->warden, fds + 3, count);
	if (linked && !warden_is_linked(s->warden))
		runtime_let_go(&s->node->runtime);
	if (fds[0].revents && read(s->signal_fd, &info, sizeof(info)) > 0)
		while (waitpid(-1, NULL, WNOHANG) > 0)
			;
	if (fds[1].revents)
		second_take(s);
	if (fds[2].revents)
		(prepares ? worker_take : worker_accept)(s);
	return 0;
}

int warden_main(struct node *node, const struct runtime_start *start, struct error *err)
{
	struct service s = {.node = node, .start = start, .listen_fd = -1, .new_fd = -1};
	sigset_t child;

	if (!prepare_wanted(node))
		return -error_set(err, EXIT_CODE_USAGE,
				  "--warden is for a system daemon, and for root");
	sigemptyset(&child);
	sigaddset(&child, SIGCHLD);
	sigprocmask(SIG_BLOCK, &child, NULL); // NOLINT(concurrency-mt-unsafe): there is one thread
	signal(SIGPIPE, SIG_IGN);
	s.signal_fd = signalfd(-1, &child, SFD_CLOEXEC | SFD_NONBLOCK);
	prctl(PR_SET_NAME, WARDEN_NAME, 0, 0, 0);
	prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
	/* Where they can be reached, the sockets are systemd's. */
	node->runtime.handed_over = true;
	while (turn(&s, err) == 0)
		;
	return EXIT_CODE_FAILED;
}
