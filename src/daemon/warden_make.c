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
#include "daemon/host/runtime.h"
#include "daemon/host/supervisor.h"
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

/* ---- in the supervisor -------------------------------------------------------------------- */

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

int warden_host_link(struct warden *warden, int *ret_link_fd)
{
	int ends[2];

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) < 0)
		return -errno;
	warden_link(warden, ends[0]);
	*ret_link_fd = ends[1];
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
