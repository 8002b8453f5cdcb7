#include "daemon/warden_make.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/error.h"
#include "base/file.h"
#include "daemon/host/child.h"
#include "daemon/host/log.h"
#include "daemon/host/runtime.h"
#include "daemon/host/supervisor.h"
#include "daemon/queue/launcher.h"
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
				   .tasks_wanted = m->job_tasks};
	runtime_path(m->runtime, "attach.sock", attach, sizeof(attach));
	snprintf(path, sizeof(path), "%s" WARDEN_JOBS, m->state_dir);
	snprintf(old, sizeof(old), "%s/" JOBS_DIR_OLD, m->state_dir);
	ret->jobs_fd = jobs_open(path, old, m->gid);
	if (ret->jobs_fd < 0)
		return ret->jobs_fd;
	rc = jobs_secrets_open(ret);
	if (rc < 0)
		close_fd(&ret->jobs_fd);
	return rc;
}

/* The descriptor is the caller's. */
static int place_make(const struct warden_making *m, struct jobs_place *jobs,
		      struct warden_place *ret)
{
	*ret = (struct warden_place){
		.dir_fd = open(m->runtime->dir, O_PATH | O_DIRECTORY | O_CLOEXEC),
		/* The worker's user may signal it meanwhile, which ends the worker, too. */
		.real_uid = m->uid ? m->uid : WARDEN_ID_FIRST,
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

/* ---- the worker's side -------------------------------------------------------------------- */

static int warden_connect(const struct runtime *runtime)
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

static int warden_fork_one(const struct warden_making *m, struct launcher *l, int *ret_link_fd)
{
	struct jobs_place jobs = {.jobs_fd = -1, .rights.fd = -1};
	struct warden_place place;
	int why = jobs_may() ? jobs_make(m, &jobs) : -EACCES;

	l->there = why == 0;
	if (why < 0)
		snprintf(l->why_not, sizeof(l->why_not), "%s",
			 why == -EACCES ? "it was started without the rights to become other "
					  "users, and carve-warden.service does not run"
					: strerrordesc_np(-why));
	int rc = place_make(m, l->there ? &jobs : NULL, &place);
	if (rc == 0)
		rc = warden_fork(&place, ret_link_fd);
	explicit_bzero(&jobs.key, sizeof(jobs.key));
	close_fd(&jobs.jobs_fd);
	close_fd(&jobs.rights.fd);
	close_fd(&place.dir_fd);
	return rc;
}

int warden_make(const struct warden_making *m, struct launcher *l, int *ret_link_fd,
		struct error *err)
{
	int link_fd = warden_connect(m->runtime), rc = 0;

	l->service = l->there = link_fd >= 0;
	/* systemd starts both, and this process has few rights there. */
	if (link_fd < 0 && supervisor_keeps() && !supervisor_is_own())
		return error_set(err, EXIT_CODE_FAILED,
				 "carve-warden.service, which does what takes root's rights, does "
				 "not answer: %s",
				 strerrordesc_np(-link_fd));
	if (link_fd < 0)
		rc = warden_fork_one(m, l, &link_fd);
	if (rc < 0)
		return error_set(err, EXIT_CODE_FAILED, "cannot start the warden: %s",
				 strerrordesc_np(-rc));
	if (!l->there)
		log_event(LOG_WARNING, "launcher.none reason=\"%s\"", l->why_not);
	*ret_link_fd = link_fd;
	return 0;
}

/* ---- the service -------------------------------------------------------------------------- */

struct listener {
	const struct warden_making *making;
	bool told;
};

/* The worker and root can connect, and whoever is in the worker's group, which is refused then. */
static int listen_at(void *arg, int *listen_fd)
{
	struct listener *listener = arg;
	struct sockaddr_un address;

	socket_address(listener->making->runtime, &address);
	if (*listen_fd >= 0 && access(address.sun_path, F_OK) == 0)
		return 0;
	cleanup_close int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	(void)mkdir(listener->making->runtime->dir, 0755);
	(void)unlink(address.sun_path);
	/* Under an umask of 077: others cannot connect meanwhile. */
	if (fd < 0 || bind(fd, (struct sockaddr *)&address, sizeof(address)) < 0 ||
	    chown(address.sun_path, 0, listener->making->gid) < 0 ||
	    chmod(address.sun_path, 0660) < 0 || listen(fd, 8) < 0)
		return -errno;
	close_fd(listen_fd);
	*listen_fd = steal_fd(&fd);
	if (!listener->told)
		supervisor_tell("READY=1");
	listener->told = true;
	return 0;
}

/* By the kernel: the worker, or root, which becomes it. */
static bool may_link(void *arg, int fd)
{
	const struct listener *listener = arg;
	uid_t uid = (uid_t)-1;

	return peer_user(fd, &uid) == 0 && (uid == 0 || uid == listener->making->uid);
}

int warden_main(const struct warden_making *m, struct error *err)
{
	struct listener at = {.making = m};
	const struct warden_listener listener = {
		.listen = listen_at, .may_link = may_link, .arg = &at};
	struct jobs_place jobs = {.jobs_fd = -1, .rights.fd = -1};
	struct warden_place place;
	int rc = jobs_may() ? jobs_make(m, &jobs) : -EPERM;

	(void)mkdir(m->runtime->dir, 0755);
	if (rc == 0)
		rc = place_make(m, &jobs, &place);
	if (rc == 0)
		rc = warden_serve(&place, &listener);
	return -error_set(err, EXIT_CODE_FAILED, "cannot serve as the warden of %s: %s",
			  m->runtime->dir, strerrordesc_np(-rc));
}
