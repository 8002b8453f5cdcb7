#include "daemon/queue/launcher.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/file.h"
#include "base/socket.h"
#include "daemon/host/child.h"
#include "daemon/host/handover.h"
#include "daemon/host/log.h"
#include "daemon/host/privileges.h"
#include "daemon/host/runtime.h"
#include "daemon/host/supervisor.h"
#include "guard/launcher.h"
#include "proto/guard.h"
#include "proto/launcher.h"
#include "proto/shim.h"

#define JOBS_DIR "jobs"
/* Longer than its work takes on a machine that is very busy. */
#define PATIENCE_MS 5000
/* One that did not answer is left alone for this long: the daemon waits for nobody that often. */
#define HUNG_NS 30000000000ull

/* ---- its life ----------------------------------------------------------------------------- */

/* Texts of the place are of this process, which has one. */
static int place_make(const char *state_dir, const struct runtime *runtime, gid_t gid,
		      struct launcher_place *ret)
{
	static char path[PATH_MAX], shim[PATH_MAX], attach[PATH_MAX];
	int rc = child_program(SHIM_PROGRAM, shim);

	if (rc < 0)
		return rc;
	*ret = (struct launcher_place){
		.jobs_path = path, .shim = shim, .attach = attach, .worker_gid = gid};
	runtime_path(runtime, "attach.sock", attach, sizeof(attach));
	snprintf(path, sizeof(path), "%s/" JOBS_DIR, state_dir);
	ret->jobs_fd = launcher_jobs_open(path, gid);
	if (ret->jobs_fd < 0)
		return ret->jobs_fd;
	rc = warrant_key_get(ret->jobs_fd, &ret->key);
	if (rc < 0)
		close_fd(&ret->jobs_fd);
	return rc;
}

static int fork_one(struct launcher *l, const char *state_dir, const struct runtime *runtime,
		    gid_t gid, uint32_t job_tasks)
{
	struct launcher_place place;
	int rc = place_make(state_dir, runtime, gid, &place);

	if (rc < 0)
		return rc;
	place.tasks_wanted = job_tasks;
	rc = launcher_fork(&place, &l->link_fd);
	explicit_bzero(&place.key, sizeof(place.key));
	close_fd(&place.jobs_fd);
	return rc;
}

static void socket_address(const struct runtime *runtime, struct sockaddr_un *ret)
{
	*ret = (struct sockaddr_un){.sun_family = AF_UNIX};
	runtime_path(runtime, LAUNCHER_SOCKET, ret->sun_path, sizeof(ret->sun_path));
}

/* To one that is a service of its own. Before this process gives root up: only root can connect. */
static int connect_one(struct launcher *l, const struct runtime *runtime)
{
	struct sockaddr_un address;
	struct ucred credentials;
	socklen_t size = sizeof(credentials);
	cleanup_close int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	socket_address(runtime, &address);
	if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof(address)) < 0 ||
	    getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &credentials, &size) < 0)
		return -errno;
	if (credentials.uid != 0)
		return -EPERM;
	l->link_fd = steal_fd(&fd);
	return 0;
}

static int make(struct launcher *l, const char *state_dir, const struct runtime *runtime, gid_t gid,
		uint32_t job_tasks)
{
	l->link_fd = -1;
	l->service = !launcher_may();
	if (!l->service)
		return fork_one(l, state_dir, runtime, gid, job_tasks);
	return connect_one(l, runtime) == 0 ? 0 : -EACCES;
}

static int listen_at(void *arg, int *listen_fd)
{
	const struct runtime *runtime = arg;
	struct sockaddr_un address;

	socket_address(runtime, &address);
	if (*listen_fd >= 0 && access(address.sun_path, F_OK) == 0)
		return 0;
	cleanup_close int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	(void)mkdir(runtime->dir, 0755);
	(void)unlink(address.sun_path);
	/* Under an umask of 077: for root alone. */
	if (fd < 0 || bind(fd, (struct sockaddr *)&address, sizeof(address)) < 0 ||
	    listen(fd, 8) < 0)
		return -errno;
	bool first = *listen_fd < 0;
	close_fd(listen_fd);
	*listen_fd = steal_fd(&fd);
	if (first)
		supervisor_tell("READY=1");
	return 0;
}

int launcher_main(const char *state_dir, struct runtime *runtime, gid_t gid, uint32_t job_tasks,
		  struct error *err)
{
	struct launcher_place place = {.jobs_fd = -1};
	int rc = launcher_may() ? place_make(state_dir, runtime, gid, &place) : -EPERM;

	place.tasks_wanted = job_tasks;
	if (rc == 0)
		rc = launcher_serve(&place, listen_at, runtime);
	return error_set(err, EXIT_CODE_FAILED, "cannot start users' jobs from %s: %s", state_dir,
			 strerrordesc_np(-rc));
}

void launcher_make(struct launcher *l, const char *state_dir, const struct runtime *runtime,
		   gid_t gid, uint32_t job_tasks)
{
	int rc = make(l, state_dir, runtime, gid, job_tasks);

	if (rc == 0)
		return;
	snprintf(l->why_not, sizeof(l->why_not), "%s",
		 rc == -EACCES ? "it was started without the rights to become other users, "
				 "and carve-launcher.service does not run"
			       : strerrordesc_np(-rc));
	log_event(LOG_WARNING, "launcher.none reason=\"%s\"", l->why_not);
}

bool launcher_is_there(const struct launcher *l)
{
	return l->link_fd >= 0 || l->lost;
}

bool launcher_is_away(const struct launcher *l)
{
	return l->link_fd < 0;
}

void launcher_hand_over(const struct launcher *l, struct handover *h)
{
	if (l->link_fd >= 0)
		json_object_set_new(h->root, "launcher", handover_fd(h, l->link_fd));
}

/* The other end of a part of this process's was made by this process. */
static bool is_service(int link_fd)
{
	struct ucred peer = {0};
	socklen_t size = sizeof(peer);

	return link_fd < 0 || (getsockopt(link_fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 &&
			       peer.pid != getpid());
}

void launcher_take_over(struct launcher *l, struct handover *h)
{
	*l = (struct launcher){.link_fd = -1};
	if (h)
		l->link_fd = handover_take(h, json_object_get(h->root, "launcher"));
	l->service = h && is_service(l->link_fd);
	/* Numbers that the last program gave out: answers to those are nobody's. */
	l->number = now_monotonic_ns();
}

void launcher_leave(struct launcher *l)
{
	close_fd(&l->link_fd);
}

/* ---- asking ------------------------------------------------------------------------------- */

static void limit_take(struct launcher *l, const struct launcher_reply *reply)
{
	bool of_user = reply->tasks == LAUNCHER_TASKS_OF_USER;

	if (!l->greeted && of_user)
		log_event(LOG_WARNING, "launcher.tasks_of_user most=%" PRIu64, reply->tasks_max);
	l->greeted = true;
	l->tasks_max = reply->tasks_max;
	l->tasks = of_user ? LAUNCHER_TASKS_OF_USER : LAUNCHER_TASKS_OF_JOB;
}

/* 0 with the answer to this request, whatever it says. */
static int answer_await(struct launcher *l, uint64_t number, struct launcher_reply *ret,
			int *ret_fd)
{
	struct pollfd readable = {.fd = l->link_fd, .events = POLLIN};
	uint64_t end = now_monotonic_ns() + PATIENCE_MS * 1000000ull;

	while (now_monotonic_ns() < end) {
		if (poll(&readable, 1, PATIENCE_MS) < 0 && errno != EINTR)
			return -errno;
		ssize_t n = descriptor_receive(l->link_fd, ret, sizeof(*ret), ret_fd);

		if (n == -EAGAIN || n == -EINTR)
			continue;
		if (n <= 0 || launcher_reply_check(ret, (size_t)n) < 0) {
			close_fd(ret_fd);
			return -EPIPE;
		}
		if (ret->number == number) {
			limit_take(l, ret);
			return 0;
		}
		close_fd(ret_fd);
	}
	return -ETIMEDOUT;
}

/* Not from here: the jobs that a call is about would end with the daemon. */
static int gone(struct launcher *l, int rc)
{
	log_event(LOG_ERROR, "launcher.gone error=\"%s\"", strerrordesc_np(-rc));
	close_fd(&l->link_fd);
	l->lost = true;
	l->greeted = false;
	l->connect_ns = rc == -ETIMEDOUT ? now_monotonic_ns() + HUNG_NS : 0;
	return rc;
}

static bool hung_up(int fd)
{
	struct pollfd end = {.fd = fd};

	return poll(&end, 1, 0) > 0 && end.revents & (POLLHUP | POLLERR);
}

static int connect_again(struct launcher *l)
{
	if (!l->service || !l->privileges || !privileges_guarded(l->privileges) ||
	    now_monotonic_ns() < l->connect_ns)
		return -ENOTCONN;
	int fd = privileges_file(l->privileges, GUARD_FILE_LAUNCHER);
	if (fd < 0)
		return -ENOTCONN;
	l->link_fd = fd;
	l->lost = false;
	l->why_not[0] = '\0';
	log_event(LOG_INFO, "launcher.connected");
	return 0;
}

/* One that was started anew is found when it is asked: no call fails for the old one's end. */
static int link_look(struct launcher *l)
{
	if (l->link_fd >= 0 && hung_up(l->link_fd))
		gone(l, -EPIPE);
	return l->link_fd >= 0 ? 0 : connect_again(l);
}

const char *launcher_tick(struct launcher *l)
{
	if (l->link_fd >= 0 || l->service)
		(void)link_look(l);
	/* Any request would do: this one makes nothing where nothing is missing. */
	if (l->link_fd >= 0 && !l->greeted)
		(void)launcher_files(l, LAUNCHER_NOBODY);
	return l->lost && !l->service ? "its launcher ended" : NULL;
}

static int ask(struct launcher *l, struct launcher_request *request, const int *fds, unsigned count,
	       struct launcher_reply *ret, int *ret_fd)
{
	*ret_fd = -1;
	*ret = (struct launcher_reply){0};
	int rc = link_look(l);
	if (rc < 0)
		return rc;
	request->magic = LAUNCHER_MAGIC;
	request->version = LAUNCHER_VERSION;
	request->number = ++l->number;
	rc = descriptors_send(l->link_fd, request, sizeof(*request), fds, count);
	if (rc == 0)
		rc = answer_await(l, request->number, ret, ret_fd);
	if (rc < 0)
		return rc == -EAGAIN ? rc : gone(l, rc);
	if (!ret->error)
		return 0;
	close_fd(ret_fd);
	return -ret->error;
}

int launcher_vouch(struct launcher *l, int socket_fd, enum warrant_kind kind, const char *text,
		   struct warrant *ret)
{
	struct launcher_request request = {.op = LAUNCHER_VOUCH, .kind = kind};
	struct launcher_reply reply;
	cleanup_close int text_fd = memfd_create("carve-text", MFD_CLOEXEC), fd = -1;

	if (text_fd < 0)
		return -errno;
	int rc = write_all(text_fd, text, strlen(text)), fds[] = {socket_fd, text_fd};
	if (rc == 0)
		rc = ask(l, &request, fds, 2, &reply, &fd);
	if (rc == 0 && (fd < 0 || pread(fd, ret, sizeof(*ret), 0) != sizeof(*ret)))
		rc = -EIO;
	return rc;
}

int launcher_start(struct launcher *l, int64_t job, uint32_t attempt, int spec_fd, int *ret_go,
		   struct process_id *ret)
{
	struct launcher_request request = {
		.op = LAUNCHER_START, .job = (uint64_t)job, .attempt = attempt};
	struct launcher_reply reply;
	cleanup_close int go = -1;
	int rc = ask(l, &request, &spec_fd, 1, &reply, &go);

	if (rc < 0)
		return rc;
	if (go < 0 || reply.pid <= 1)
		return -EIO;
	*ret = (struct process_id){.pid = reply.pid, .birth = reply.birth};
	*ret_go = steal_fd(&go);
	return 0;
}

int launcher_end(struct launcher *l, int64_t job, uint32_t attempt)
{
	struct launcher_request request = {
		.op = LAUNCHER_END, .job = (uint64_t)job, .attempt = attempt};
	struct launcher_reply reply;
	int none;
	int rc = ask(l, &request, NULL, 0, &reply, &none);

	close_fd(&none);
	return rc;
}

int launcher_files(struct launcher *l, uid_t uid)
{
	struct launcher_request request = {.op = LAUNCHER_FILES, .job = uid};
	struct launcher_reply reply;
	int none;
	int rc = ask(l, &request, NULL, 0, &reply, &none);

	close_fd(&none);
	return rc;
}
