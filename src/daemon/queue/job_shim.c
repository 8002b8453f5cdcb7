/* Shims are started with a sealed memfd, which says what to run, and with the end of a pipe. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/macros.h"
#include "daemon/host/owner.h"
#include "daemon/mig/mig.h"
#include "daemon/queue/job_entry.h"
#include "daemon/queue/job_files.h"
#include "daemon/queue/job_shim.h"
#include "daemon/queue/queue_context.h"
#include "daemon/queue/queue_pods.h"
#include "daemon/session/session.h"
#include "proto/shim.h"

/* Descriptors of the daemon's that a shim gets are moved out of the way of the shim's own first. */
#define SHIM_FDS_FROM 10

static int spec_write(int fd, const struct shim_head *head, const char *text, const char *owners)
{
	int rc = write_all(fd, head, sizeof(*head));

	if (rc == 0)
		rc = write_all(fd, text, head->text_size);
	if (rc == 0 && owners)
		rc = write_all(fd, owners, head->owner_size);
	if (rc == 0 &&
	    fcntl(fd, F_ADD_SEALS, F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE) < 0)
		rc = -errno;
	return rc;
}

int shim_spec_memfd(struct shim_head *head, const char *text, const char *owners)
{
	cleanup_close int fd = memfd_create("carve-job", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	if (fd < 0)
		return -errno;
	head->magic = SHIM_HEAD_MAGIC;
	head->text_size = (uint32_t)strlen(text);
	head->owner_size = owners ? (uint32_t)strlen(owners) : 0;
	int rc = spec_write(fd, head, text, owners);
	if (rc < 0)
		return rc;
	int moved = fcntl(fd, F_DUPFD_CLOEXEC, SHIM_FDS_FROM);
	return moved < 0 ? -errno : moved;
}

static int spawn(const struct queues *q, const char *dir, const char *name, int spec, int go,
		 pid_t *ret)
{
	char *argv[] = {(char *)q->places.shim, (char *)dir, (char *)name, (char *)q->places.attach,
			NULL};
	posix_spawn_file_actions_t files;
	posix_spawnattr_t attributes;
	sigset_t all, none;
	cleanup_close int opened = open(dir, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	cleanup_close int dir_fd = opened < 0 ? -1 : fcntl(opened, F_DUPFD_CLOEXEC, SHIM_FDS_FROM);

	if (dir_fd < 0)
		return -errno;
	sigfillset(&all);
	sigemptyset(&none);
	posix_spawn_file_actions_init(&files);
	posix_spawnattr_init(&attributes);
	posix_spawn_file_actions_adddup2(&files, spec, SHIM_SPEC_FD);
	posix_spawn_file_actions_adddup2(&files, go, SHIM_GO_FD);
	posix_spawn_file_actions_adddup2(&files, dir_fd, SHIM_DIR_FD);
	posix_spawnattr_setsigmask(&attributes, &none);
	posix_spawnattr_setsigdefault(&attributes, &all);
	/* A signal to the daemon's session or group does not reach the job. */
	posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF |
						      POSIX_SPAWN_SETSID);
	int rc = posix_spawn(ret, q->places.shim, &files, &attributes, argv, environ);
	posix_spawn_file_actions_destroy(&files);
	posix_spawnattr_destroy(&attributes);
	return -rc;
}

/* As this process's own child. */
static int shim_spawn(const struct queues *q, const struct job_record *record, int spec,
		      int *ret_go, struct process_id *ret)
{
	char dir[PATH_MAX], name[64];
	int ends[2];
	pid_t pid = 0;
	int rc = job_directory_make(q, record->uid, dir);

	if (rc < 0)
		return rc;
	snprintf(name, sizeof(name), "%" PRId64 ".%u", record->id, record->attempt);
	if (pipe2(ends, O_CLOEXEC) < 0)
		return -errno;
	cleanup_close int in = ends[0], out = ends[1];
	cleanup_close int go = fcntl(in, F_DUPFD_CLOEXEC, SHIM_FDS_FROM);
	rc = go < 0 ? -errno : spawn(q, dir, name, spec, go, &pid);
	if (rc == 0 && (rc = process_identify(pid, ret)) < 0)
		(void)waitpid(pid, NULL, 0);
	if (rc == 0)
		*ret_go = steal_fd(&out);
	return rc;
}

int shim_launch(struct job *job, int spec, warden_cb cb)
{
	const struct job_record *record = &job->record;
	struct launcher *launcher = job->queues->host.launcher;
	struct process_id shim;
	cleanup_close int go = -1;

	if (launcher_is_there(launcher))
		return launcher_start(launcher, owner_of(record->uid), record->id, record->attempt,
				      spec, cb, job, &job->asked);
	/* Enqueued when this daemon had a launcher. */
	if (record->uid != geteuid())
		return -EPERM;
	int rc = shim_spawn(job->queues, record, spec, &go, &shim);
	if (rc < 0)
		return rc;
	const struct warden_started reply = {.pid = shim.pid, .birth = shim.birth};
	cb(job, 0, &reply, &go);
	return 0;
}

int shim_of_answer(int rc, const void *reply, int fd, struct process_id *ret)
{
	const struct warden_started *said = reply;

	if (rc < 0)
		return rc;
	*ret = (struct process_id){.pid = said->pid, .birth = said->birth};
	return fd < 0 || said->pid <= 1 ? -EIO : 0;
}
