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
#include "daemon/host/owner.h"
#include "daemon/host/privileges.h"
#include "daemon/host/runtime.h"
#include "daemon/host/supervisor.h"
#include "guard/launcher.h"
#include "proto/launcher.h"
#include "proto/shim.h"
#include "proto/warden.h"

/* Where the directory of jobs was once. */
#define JOBS_DIR_OLD "jobs"
/* Longer than its work takes on a machine that is very busy. A client is told after this time that
 * the launcher does not answer, and so is the log. */
#define PATIENCE_NS 5000000000ull
/* A job that starts has its slice already, and gives it back after this time. */
#define START_PATIENCE_NS 30000000000ull

/* ---- its life ----------------------------------------------------------------------------- */

/* Texts of the place are of this process, which has one. */
static int place_make(const char *state_dir, const struct runtime *runtime, gid_t gid,
		      struct launcher_place *ret)
{
	static char path[PATH_MAX], shim[PATH_MAX], attach[PATH_MAX];
	char old[PATH_MAX];
	int rc = child_program(SHIM_PROGRAM, shim);

	if (rc < 0)
		return rc;
	*ret = (struct launcher_place){
		.jobs_path = path, .shim = shim, .attach = attach, .worker_gid = gid};
	runtime_path(runtime, "attach.sock", attach, sizeof(attach));
	snprintf(path, sizeof(path), "%s" LAUNCHER_JOBS, state_dir);
	snprintf(old, sizeof(old), "%s/" JOBS_DIR_OLD, state_dir);
	ret->jobs_fd = launcher_jobs_open(path, old, gid);
	if (ret->jobs_fd < 0)
		return ret->jobs_fd;
	rc = launcher_secrets_open(ret);
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
	close_fd(&place.rights.fd);
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

/* ---- the link ----------------------------------------------------------------------------- */

static int reply_check(const void *reply, size_t size)
{
	return launcher_reply_check(reply, size);
}

/* Every answer says how jobs are limited. */
static void on_reply(void *context, const void *message)
{
	const struct launcher_reply *reply = message;
	struct launcher *l = context;
	bool of_user = reply->tasks == LAUNCHER_TASKS_OF_USER;

	if (!l->greeted && of_user)
		log_event(LOG_WARNING, "launcher.tasks_of_user most=%" PRIu64, reply->tasks_max);
	l->greeted = true;
	l->tasks_max = reply->tasks_max;
	l->tasks = of_user ? LAUNCHER_TASKS_OF_USER : LAUNCHER_TASKS_OF_JOB;
}

static void connect_again(struct launcher *l);

static void on_ended(void *context, int rc)
{
	struct launcher *l = context;

	log_event(LOG_ERROR, "launcher.gone error=\"%s\"", strerrordesc_np(-rc));
	l->lost = true;
	l->greeted = l->slow = false;
	connect_again(l);
}

static const struct link_kind launcher_kind = {
	.magic = LAUNCHER_MAGIC,
	.version = LAUNCHER_VERSION,
	.size = sizeof(struct launcher_request),
	.reply_check = reply_check,
	.on_reply = on_reply,
	.on_ended = on_ended,
};

_Static_assert(sizeof(struct launcher_request) == sizeof(struct launcher_reply) &&
		       sizeof(struct launcher_request) <= LINK_MESSAGE_MAX,
	       "messages of one size");

static void on_connected(void *context, int fd)
{
	struct launcher *l = context;

	l->connecting = false;
	if (fd < 0 || link_open(&l->link, fd) < 0) {
		link_fail(&l->link, -ENOTCONN);
		return;
	}
	l->lost = false;
	l->why_not[0] = '\0';
	log_event(LOG_INFO, "launcher.connected");
}

/* A service that was started anew. Requests wait until the warden has answered. */
static void connect_again(struct launcher *l)
{
	if (l->connecting)
		return;
	l->connecting = true;
	if (!l->service || !privileges_guarded(l->privileges))
		on_connected(l, -ENOTCONN);
	else
		privileges_file_ask(l->privileges, WARDEN_FILE_LAUNCHER, on_connected, l);
}

void launcher_begin(struct launcher *l, uv_loop_t *loop, struct privileges *privileges)
{
	link_begin(&l->link, &launcher_kind, l, loop);
	l->privileges = privileges;
	if (l->link_fd >= 0 && link_open(&l->link, steal_fd(&l->link_fd)) < 0)
		l->lost = true;
}

void launcher_stop(struct launcher *l)
{
	/* The next program, where there is one, has the connection. */
	if (l->link.fd >= 0)
		l->link_fd = fcntl(l->link.fd, F_DUPFD_CLOEXEC, 0);
	link_end(&l->link);
}

bool launcher_is_there(const struct launcher *l)
{
	return l->link_fd >= 0 || l->link.fd >= 0 || l->lost;
}

bool launcher_is_away(const struct launcher *l)
{
	return l->link_fd < 0 && l->link.fd < 0;
}

unsigned launcher_slow_s(const struct launcher *l)
{
	uint64_t silent = link_silent_ns(&l->link);

	return silent > PATIENCE_NS ? (unsigned)(silent / 1000000000) : 0;
}

static void slow_tell(struct launcher *l)
{
	bool slow = launcher_slow_s(l) > 0;

	if (slow == l->slow)
		return;
	l->slow = slow;
	if (slow)
		log_event(LOG_WARNING, "launcher.slow silent_s=%u", launcher_slow_s(l));
	else
		log_event(LOG_INFO, "launcher.answers");
}

const char *launcher_tick(struct launcher *l)
{
	if (l->link.fd < 0 && l->service)
		connect_again(l);
	/* Any request would do: this one makes nothing where nothing is missing. */
	if (l->link.fd >= 0 && !l->greeted && !link_silent_ns(&l->link))
		(void)launcher_files(l, LAUNCHER_NOBODY, NULL, NULL, NULL);
	link_tick(&l->link);
	slow_tell(l);
	return l->lost && !l->service ? "its launcher ended" : NULL;
}

/* ---- its end ------------------------------------------------------------------------------ */

void launcher_hand_over(const struct launcher *l, struct handover *h)
{
	int fd = l->link.fd >= 0 ? l->link.fd : l->link_fd;

	if (fd >= 0)
		json_object_set_new(h->root, "launcher", handover_fd(h, fd));
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
	*l = (struct launcher){.link_fd = -1, .link.fd = -1};
	if (h)
		l->link_fd = handover_take(h, json_object_get(h->root, "launcher"));
	l->service = h && is_service(l->link_fd);
}

void launcher_leave(struct launcher *l)
{
	close_fd(&l->link_fd);
}

/* ---- asking ------------------------------------------------------------------------------- */

static int ask(struct launcher *l, struct link_ask *ask, link_cb cb, void *arg,
	       struct link_asked **ret)
{
	if (l->link.fd < 0) {
		if (!l->service || !l->lost)
			return -ENOTCONN;
		connect_again(l);
		if (l->link.fd < 0 && !l->connecting)
			return -ENOTCONN;
	}
	ask->cb = cb;
	ask->arg = arg;
	return link_ask(&l->link, ask, ret);
}

int launcher_vouch(struct launcher *l, uid_t owner, int socket_fd, const struct launcher_wish *wish,
		   link_cb cb, void *arg, struct link_asked **ret)
{
	struct launcher_request request = {.op = LAUNCHER_VOUCH,
					   .kind = wish->kind,
					   .job = wish->count,
					   .attempt = wish->attempts};
	cleanup_close int text_fd = memfd_create("carve-text", MFD_CLOEXEC);

	if (text_fd < 0)
		return -errno;
	int rc = write_all(text_fd, wish->text, strlen(wish->text)), fds[] = {socket_fd, text_fd};
	struct link_ask vouch = {.owner = owner,
				 .request = &request,
				 .fds = fds,
				 .fd_count = 2,
				 .patience_ns = PATIENCE_NS};
	return rc < 0 ? rc : ask(l, &vouch, cb, arg, ret);
}

int launcher_warrant_read(int fd, struct warrant *ret)
{
	return fd >= 0 && pread(fd, ret, sizeof(*ret), 0) == sizeof(*ret) ? 0 : -EIO;
}

int launcher_start(struct launcher *l, uid_t owner, int64_t job, uint32_t attempt, int spec_fd,
		   link_cb cb, void *arg, struct link_asked **ret)
{
	struct launcher_request request = {
		.op = LAUNCHER_START, .job = (uint64_t)job, .attempt = attempt};
	struct link_ask start = {.owner = owner,
				 .request = &request,
				 .fds = &spec_fd,
				 .fd_count = 1,
				 .patience_ns = START_PATIENCE_NS};

	return ask(l, &start, cb, arg, ret);
}

int launcher_end(struct launcher *l, uid_t owner, int64_t job, uint32_t attempt, link_cb cb,
		 void *arg, struct link_asked **ret)
{
	struct launcher_request request = {
		.op = LAUNCHER_END, .job = (uint64_t)job, .attempt = attempt};
	struct link_ask end = {.owner = owner, .request = &request};

	return ask(l, &end, cb, arg, ret);
}

int launcher_files(struct launcher *l, uid_t uid, link_cb cb, void *arg, struct link_asked **ret)
{
	struct launcher_request request = {.op = LAUNCHER_FILES, .user = uid};
	struct link_ask files = {.request = &request};

	return ask(l, &files, cb, arg, ret);
}

int launcher_remove(struct launcher *l, uid_t uid, int64_t job, uint32_t attempt, uint32_t files)
{
	struct launcher_request request = {.op = LAUNCHER_REMOVE,
					   .job = (uint64_t)job,
					   .attempt = attempt,
					   .user = uid,
					   .files = files};
	struct link_ask remove = {.owner = owner_of(uid), .request = &request};

	return ask(l, &remove, NULL, NULL, NULL);
}

int launcher_over(struct launcher *l, uint64_t first, uint32_t count, link_cb cb, void *arg,
		  struct link_asked **ret)
{
	struct launcher_request request = {.op = LAUNCHER_OVER, .job = first, .attempt = count};
	struct link_ask over = {.request = &request};

	return ask(l, &over, cb, arg, ret);
}

void launcher_forget(struct launcher *l, struct link_asked *asked)
{
	if (asked)
		link_forget(&l->link, asked);
}
