#include "warden/jobs.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/capability.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/host_root.h"
#include "base/macros.h"
#include "base/process.h"
#include "base/socket.h"
#include "proto/shim.h"
#include "proto/warden_jobs.h"
#include "warden/message.h"
#include "warden/run.h"

#define LOOK_MS 1000u
/* A sync that could not begin is tried again. */
#define SOON_MS 20u
#define SEALS (F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE)

/* ---- vouching ----------------------------------------------------------------------------- */

/* A worker's text is read into own memory before it is looked at. malloc'ed. */
static int memfd_read(int fd, size_t least, size_t most, char **ret, size_t *ret_size)
{
	struct stat st;

	if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || st.st_size < (off_t)least ||
	    st.st_size > (off_t)most)
		return -EINVAL;
	size_t size = (size_t)st.st_size;
	cleanup_free char *text = malloc(size + 1);
	if (!text)
		return -ENOMEM;
	if (pread(fd, text, size, 0) != (ssize_t)size)
		return -EIO;
	*ret = steal_ptr(&text);
	*ret_size = size;
	return 0;
}

/* The widths of columns in the kernel's table of limits. It has a line a resource, in the order of
 * their numbers: name, soft and hard limit with a blank between. */
#define LIMITS_NAME 25
#define LIMITS_VALUE 20

/* A process's hard limits hold for its jobs: a job is no way around them. Read from /proc, as
 * prlimit() wants a right that containers' roots have not. */
static int limits_read(pid_t pid, struct warrant *ret)
{
	char path[64], text[4096];

	snprintf(path, sizeof(path), "/proc/%d/limits", (int)pid);
	ssize_t n = file_read(path, text, sizeof(text));
	if (n < 0)
		return (int)n;
	const char *line = strchr(text, '\n'), *end;
	for (unsigned i = 0; line && line[1] && i < WARRANT_LIMITS; i++, line = end) {
		line++;
		end = strchr(line, '\n');
		if (!end || end - line <= LIMITS_NAME + 2 + LIMITS_VALUE)
			return -EPROTO;
		const char *hard = line + LIMITS_NAME + 2 + LIMITS_VALUE;
		ret->limit[i] = strncmp(hard, "unlimited", 9) != 0 ? strtoull(hard, NULL, 10)
								   : WARRANT_UNLIMITED;
	}
	return line && !line[1] ? 0 : -EPROTO;
}

/* The kernel notes a peer for each connection. If a listening socket took it, that is the process
 * that connected. If this end made it, it is the one that listens; for a pair, the one that made
 * both. The worker has some of those by which it would pass for root: the journal's, its own links.
 * A listener has a name, and links are no streams. */
static int is_clients(int socket_fd)
{
	struct sockaddr_un peer;
	int domain = 0, type = 0;
	socklen_t size = sizeof(int), peer_size = sizeof(peer);

	if (getsockopt(socket_fd, SOL_SOCKET, SO_DOMAIN, &domain, &size) < 0 ||
	    getsockopt(socket_fd, SOL_SOCKET, SO_TYPE, &type, &size) < 0)
		return -errno;
	if (domain != AF_UNIX || type != SOCK_STREAM)
		return -EPERM;
	if (getpeername(socket_fd, (struct sockaddr *)&peer, &peer_size) < 0)
		return -errno;
	return peer_size > sizeof(sa_family_t) ? -EPERM : 0;
}

/* The limits are the user's while the process is. A set-user-ID program that it became meanwhile
 * may have raised them for itself. */
static int limits_of_user(pid_t pid, uid_t uid, struct warrant *ret)
{
	uid_t before, after;

	if (!process_user(pid, &before))
		return -ESRCH;
	int rc = limits_read(pid, ret);
	if (rc < 0)
		return rc;
	if (!process_user(pid, &after))
		return -ESRCH;
	return before == uid && after == uid ? 0 : -EPERM;
}

/* As the kernel noted it when the client connected. */
static int identity_read(int socket_fd, struct warrant *ret)
{
	struct ucred credentials;
	socklen_t size = sizeof(credentials), groups = sizeof(ret->group);

	*ret = (struct warrant){.magic = WARRANT_MAGIC, .version = WARRANT_VERSION};
	int rc = is_clients(socket_fd);
	if (rc < 0)
		return rc;
	if (getsockopt(socket_fd, SOL_SOCKET, SO_PEERCRED, &credentials, &size) < 0 ||
	    getsockopt(socket_fd, SOL_SOCKET, SO_PEERGROUPS, ret->group, &groups) < 0)
		return -errno;
	/* Both are -1 on a socket that nobody connected to. */
	if (credentials.pid <= 0 || credentials.uid == UINT32_MAX || credentials.gid == UINT32_MAX)
		return -ENOTCONN;
	ret->uid = credentials.uid;
	ret->gid = credentials.gid;
	ret->group_count = (uint32_t)(groups / sizeof(gid_t));
	/* A job of root's has all of root's rights, which root of a container has not. */
	if (ret->uid == 0 && !host_root_is(credentials.pid))
		return -EPERM;
	rc = limits_of_user(credentials.pid, ret->uid, ret);
	if (rc < 0)
		return rc;
	/* The process with that PID is the one that connected, where the kernel can say so. */
	rc = socket_peer_lives(socket_fd);
	return rc == -ENOPROTOOPT ? 0 : rc;
}

int warden_run_job_vouch(struct warden_place *place, const struct warden_message *request,
			 struct warden_result *ret)
{
	const struct warden_vouch *r = (const void *)request->data;
	struct warrant *warrant = (void *)ret->data;
	cleanup_free char *text = NULL;
	size_t size;

	_Static_assert(sizeof(*warrant) <= sizeof(ret->data), "an answer has room for it");
	if (!place->jobs)
		return -EOPNOTSUPP;
	int rc = memfd_read(request->fd[1], 1, WARDEN_TEXT_MAX, &text, &size);
	if (rc == 0)
		rc = identity_read(request->fd[0], warrant);
	warrant->kind = r->kind;
	warrant->count = r->count;
	warrant->attempts = r->attempts;
	if (rc == 0)
		rc = rights_issue(&place->jobs->rights, r->count, &warrant->number);
	return rc < 0 ? rc : warrant_sign(&place->jobs->key, warrant, text, size);
}

/* ---- starting ----------------------------------------------------------------------------- */

#define NAME_SIZE 64

static void name_of(const struct warden_job *r, char ret[static NAME_SIZE])
{
	snprintf(ret, NAME_SIZE, "%" PRIu64 ".%" PRIu32, r->job, r->attempt);
}

/* The owner of the agent says how the job's pod is made, and is the job's user. */
static int owner_check(const struct jobs_place *place, const struct shim_head *head,
		       const char *text)
{
	if (head->kind != SHIM_TASK_POD)
		return head->owner_size ? -EINVAL : 0;
	if (head->owner_warrant.uid != head->warrant.uid)
		return -EPERM;
	int rc = warrant_check(&place->key, &head->owner_warrant, WARRANT_PODS, text,
			       head->owner_size);
	if (rc == 0)
		rc = rights_check(&place->rights, head->owner_warrant.number, 1, true);
	return rc == -EPERM || rc == -EKEYEXPIRED ? -EKEYREVOKED : rc;
}

/* Sealed, so that what was checked is what the shim reads. */
static int spec_check(const struct jobs_place *place, const struct warden_job *r, int fd,
		      struct shim_head *ret)
{
	cleanup_free char *all = NULL;
	struct shim_head head;
	size_t size;

	if (fd < 0 || (fcntl(fd, F_GET_SEALS) & SEALS) != SEALS)
		return -EINVAL;
	int rc = memfd_read(fd, sizeof(head), sizeof(head) + 2 * WARDEN_TEXT_MAX, &all, &size);
	if (rc < 0)
		return rc;
	memcpy(&head, all, sizeof(head));
	rc = shim_head_check(&head, size);
	if (rc == 0 && (head.run.job != r->job || head.run.attempt != r->attempt))
		rc = -EINVAL;
	const char *text = all + sizeof(head);
	if (rc == 0)
		rc = owner_check(place, &head, text + head.text_size);
	if (rc < 0)
		return rc;
	*ret = head;
	rc = warrant_check(&place->key, &head.warrant, WARRANT_JOB, text, head.text_size);
	return rc == -EPERM ? -EKEYREJECTED : rc;
}

/* The shim's end of the socket at which it asks, or -errno. The shim of a pod may come back to it.
 */
static int permit_make(struct jobs_place *place, const struct shim_head *head)
{
	const struct warrant *warrant = &head->warrant;
	const struct shim_run *run = &head->run;
	bool again = head->kind != SHIM_TASK_JOB;
	uint64_t number = warrant->number + run->position;

	if (run->position >= warrant->count)
		return -EINVAL;
	if (run->attempt > warrant->attempts)
		return -EKEYEXPIRED;
	int rc = rights_check(&place->rights, number, run->attempt, again);
	return rc < 0 ? rc : permits_add(&place->permits, number, run->attempt, again);
}

int warden_run_job_start(struct warden_place *all, const struct warden_message *request,
			 struct warden_result *ret)
{
	const struct warden_job *r = (const void *)request->data;
	struct warden_started *started = (void *)ret->data;
	struct jobs_place *place = all->jobs;
	cleanup_close int permit = -1;
	struct process_id process;
	struct shim_head head;
	char name[NAME_SIZE];

	int rc = place ? spec_check(place, r, request->fd[0], &head) : -EOPNOTSUPP;
	if (rc == 0)
		rc = permit_make(place, &head);
	if (rc < 0)
		return rc;
	permit = rc;
	/* Where this fails, so does the start, and says why. */
	(void)jobs_files_make(place, WARDEN_NOBODY);
	name_of(r, name);
	rc = jobs_shim_start(place, &head.warrant, name, request->fd[0], permit, &ret->fd,
			     &process);
	if (rc < 0)
		jobs_left_note(place, name);
	else
		*started = (struct warden_started){.pid = process.pid, .birth = process.birth};
	return rc;
}

/* ---- the end ------------------------------------------------------------------------------ */

int warden_run_job_end(struct warden_place *place, const struct warden_message *request,
		       struct warden_result *ret)
{
	const struct warden_job *r = (const void *)request->data;
	char name[NAME_SIZE];

	if (!place->jobs)
		return -EOPNOTSUPP;
	name_of(r, name);
	if (r->below)
		jobs_command_kill(place->jobs, name);
	else
		jobs_shim_end(place->jobs, name);
	return 0;
}

int warden_run_job_files(struct warden_place *place, const struct warden_message *request,
			 struct warden_result *ret)
{
	const struct warden_job_files *r = (const void *)request->data;
	struct warden_job_limits *limits = (void *)ret->data;

	if (!place->jobs)
		return -EOPNOTSUPP;
	*limits = (struct warden_job_limits){.tasks_max = place->jobs->tasks_max,
					     .tasks = place->jobs->tasks};
	return jobs_files_make(place->jobs, r->uid);
}

int warden_run_job_remove(struct warden_place *place, const struct warden_message *request,
			  struct warden_result *ret)
{
	const struct warden_job_remove *r = (const void *)request->data;
	const struct warden_job job = {.job = r->job, .attempt = r->attempt};
	char name[NAME_SIZE];

	if (!place->jobs)
		return -EOPNOTSUPP;
	name_of(&job, name);
	return jobs_files_remove(place->jobs, r->uid, name, r->files);
}

/* A bounded number of rights, so that others wait for about a millisecond. */
int warden_run_job_over(struct warden_place *place, const struct warden_message *request,
			struct warden_result *ret)
{
	const struct warden_job_over *r = (const void *)request->data;
	int rc = place->jobs ? 0 : -EOPNOTSUPP;

	for (uint32_t i = 0; place->jobs && i < r->count; i++) {
		int one = rights_end(&place->jobs->rights, r->first + i);

		rc = rc < 0 ? rc : one;
	}
	return rc;
}

/* ---- between requests --------------------------------------------------------------------- */

bool jobs_sync_is_due(const struct jobs_place *place)
{
	if (place->syncs)
		return false;
	if (permits_ask(&place->permits))
		return true;
	/* Rights that are over go to the disk a second later, many at once: nobody waits for that.
	 */
	return place->rights.dirty && now_monotonic_ns() - place->synced_ns >= LOOK_MS * 1000000ull;
}

int jobs_sync_begin(struct jobs_place *place)
{
	int fd = fcntl(place->rights.fd, F_DUPFD_CLOEXEC, 0);
	if (fd < 0)
		return -errno;
	place->syncs = true;
	place->synced_ns = now_monotonic_ns();
	rights_syncing(&place->rights);
	permits_syncing(&place->permits);
	return fd;
}

int warden_run_own_sync(struct warden_place *place, const struct warden_message *request,
			struct warden_result *ret)
{
	return fdatasync(request->fd[0]) < 0 ? -errno : 0;
}

void jobs_synced(struct jobs_place *place, int rc)
{
	place->syncs = false;
	rights_synced(&place->rights, rc);
	permits_synced(&place->permits, &place->rights, rc);
}

void jobs_close(struct jobs_place *place)
{
	for (unsigned i = 0; i < place->permits.count; i++)
		close_fd(&place->permits.permit[i].fd);
	place->permits.count = 0;
	jobs_left_end(place);
	close_fd(&place->rights.fd);
	close_fd(&place->jobs_fd);
	explicit_bzero(&place->key, sizeof(place->key));
}

void jobs_step(struct jobs_place *place, const struct pollfd *fds, unsigned count)
{
	if (count == place->permits.count)
		permits_run(&place->permits, &place->rights, fds);
	jobs_left_step(place);
}

int jobs_wait_ms(const struct jobs_place *place)
{
	int wait_ms = jobs_left_wait_ms(place);

	/* The end of the sync that goes on is an event. */
	if (place->syncs)
		return wait_ms;
	if (permits_ask(&place->permits))
		return MIN((unsigned)wait_ms, SOON_MS);
	return place->rights.dirty ? (int)MIN((unsigned)wait_ms, LOOK_MS) : wait_ms;
}

/* ---- rights ------------------------------------------------------------------------------- */

bool jobs_may(void)
{
	static const int needed[] = {CAP_CHOWN, CAP_DAC_OVERRIDE, CAP_FOWNER,
				     CAP_KILL,  CAP_SETGID,       CAP_SETUID};
	struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct had[2] = {0};

	if (geteuid() != 0 || syscall(SYS_capget, &header, had) < 0)
		return false;
	for (size_t i = 0; i < ARRAY_SIZE(needed); i++)
		if (!(had[needed[i] / 32].effective & 1u << needed[i] % 32))
			return false;
	/* A job could use no set-user-ID program, as rootless containers do. */
	return prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 0;
}
