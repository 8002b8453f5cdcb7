#include "guard/launcher.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/capability.h>
#include <poll.h>
#include <signal.h>
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
#include "guard/part.h"
#include "proto/launcher.h"
#include "proto/shim.h"

#define LOOK_MS 1000
#define NAME "carve-launcher"
#define SEALS (F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE)

struct answer {
	int fd; /* goes along; -1: none */
	struct process_id process;
};

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

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77 /* newer than the C library's headers */
#endif

/* The process with that PID is the one that connected, where the kernel (from 6.5 on) can say so.
 */
static int peer_lives(int socket_fd)
{
	int pidfd = -1;
	socklen_t size = sizeof(pidfd);

	if (getsockopt(socket_fd, SOL_SOCKET, SO_PEERPIDFD, &pidfd, &size) < 0)
		return errno == ENOPROTOOPT ? 0 : -ESRCH;
	cleanup_close int owned = pidfd;
	return syscall(SYS_pidfd_send_signal, owned, 0, NULL, 0) < 0 && errno == ESRCH ? -ESRCH : 0;
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

	*ret = (struct warrant){.magic = WARRANT_MAGIC, .version = LAUNCHER_VERSION};
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
	return rc < 0 ? rc : peer_lives(socket_fd);
}

static int memfd_of(const void *data, size_t size)
{
	cleanup_close int fd = memfd_create("carve-warrant", MFD_CLOEXEC);

	if (fd < 0)
		return -errno;
	int rc = write_all(fd, data, size);
	return rc < 0 ? rc : steal_fd(&fd);
}

static int vouch(struct launcher_place *place, const struct launcher_request *r, const int fds[2],
		 struct answer *answer)
{
	struct warrant warrant;
	cleanup_free char *text = NULL;
	size_t size;
	int rc = memfd_read(fds[1], 1, LAUNCHER_TEXT_MAX, &text, &size);

	if (rc == 0)
		rc = identity_read(fds[0], &warrant);
	warrant.kind = r->kind;
	warrant.count = (uint32_t)r->job;
	warrant.attempts = r->attempt;
	if (rc == 0)
		rc = rights_issue(&place->rights, warrant.count, &warrant.number);
	if (rc == 0)
		rc = warrant_sign(&place->key, &warrant, text, size);
	if (rc == 0)
		rc = answer->fd = memfd_of(&warrant, sizeof(warrant));
	return rc < 0 ? rc : 0;
}

/* ---- starting ----------------------------------------------------------------------------- */

#define NAME_SIZE 64

static void name_of(const struct launcher_request *r, char ret[static NAME_SIZE])
{
	snprintf(ret, NAME_SIZE, "%" PRIu64 ".%" PRIu32, r->job, r->attempt);
}

/* The owner of the agent says how the job's pod is made, and is the job's user. */
static int owner_check(const struct launcher_place *place, const struct shim_head *head,
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
static int spec_check(const struct launcher_place *place, const struct launcher_request *r, int fd,
		      struct shim_head *ret)
{
	cleanup_free char *all = NULL;
	struct shim_head head;
	size_t size;

	if (fd < 0 || (fcntl(fd, F_GET_SEALS) & SEALS) != SEALS)
		return -EINVAL;
	int rc = memfd_read(fd, sizeof(head), sizeof(head) + 2 * LAUNCHER_TEXT_MAX, &all, &size);
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
	rc = warrant_check(&place->key, &head.warrant,
			   head.kind == SHIM_TASK_HOOK ? WARRANT_HOOK : WARRANT_JOB, text,
			   head.text_size);
	return rc == -EPERM ? -EKEYREJECTED : rc;
}

/* The shim's end of the socket at which it asks, or -errno. A hook has none: it runs as long as its
 * agent. The shim of a pod may come back to it. */
static int permit_make(struct launcher_place *place, const struct shim_head *head)
{
	const struct warrant *warrant = &head->warrant;
	const struct shim_run *run = &head->run;
	bool is_hook = head->kind == SHIM_TASK_HOOK, again = head->kind != SHIM_TASK_JOB;
	uint64_t number = warrant->number + run->position;
	uint32_t attempt = is_hook ? 1 : run->attempt;

	if (run->position >= warrant->count)
		return -EINVAL;
	if (attempt > warrant->attempts)
		return -EKEYEXPIRED;
	int rc = rights_check(&place->rights, number, attempt, again);
	return rc < 0 || is_hook ? rc : permits_add(&place->permits, number, attempt, again);
}

static int start(struct launcher_place *place, const struct launcher_request *r, int fd,
		 struct answer *answer)
{
	struct shim_head head;
	char name[NAME_SIZE];
	int rc = spec_check(place, r, fd, &head);

	if (rc < 0)
		return rc;
	cleanup_close int permit = -1;
	if ((rc = permit_make(place, &head)) < 0)
		return rc;
	permit = head.kind == SHIM_TASK_HOOK ? -1 : rc;
	/* Where this fails, so does the start, and says why. */
	(void)launcher_files_make(place, LAUNCHER_NOBODY);
	name_of(r, name);
	rc = launcher_shim_start(place, &head.warrant, name, fd, permit, &answer->fd,
				 &answer->process);
	if (rc < 0)
		launcher_left_note(place, name);
	return rc;
}

static int end(struct launcher_place *place, const struct launcher_request *r)
{
	char name[NAME_SIZE];

	name_of(r, name);
	launcher_shim_end(place, name);
	return 0;
}

/* A bounded number of them, so that others wait for about a millisecond. */
static int over(struct launcher_place *place, const struct launcher_request *r)
{
	int rc = 0;

	for (uint32_t i = 0; i < r->attempt; i++) {
		int one = rights_end(&place->rights, r->job + i);

		rc = rc < 0 ? rc : one;
	}
	return rc;
}

static int files_remove(const struct launcher_place *place, const struct launcher_request *r)
{
	char name[NAME_SIZE];

	name_of(r, name);
	return launcher_files_remove(place, r->user, name, r->files);
}

/* ---- the loop ----------------------------------------------------------------------------- */

static int obey(struct launcher_place *place, const struct launcher_request *r, const int fds[2],
		struct answer *answer)
{
	switch ((enum launcher_op)r->op) {
	case LAUNCHER_VOUCH:
		return vouch(place, r, fds, answer);
	case LAUNCHER_START:
		return start(place, r, fds[0], answer);
	case LAUNCHER_END:
		return end(place, r);
	case LAUNCHER_FILES:
		return launcher_files_make(place, r->user);
	case LAUNCHER_REMOVE:
		return files_remove(place, r);
	case LAUNCHER_OVER:
		return over(place, r);
	}
	return -EOPNOTSUPP;
}

/* Rights that are over go to the disk a second later, many at once: nobody waits for that. */
static void register_look(struct launcher_place *place)
{
	uint64_t now = now_monotonic_ns();

	if (now - place->synced_ns < LOOK_MS * 1000000ull)
		return;
	place->synced_ns = now;
	if (place->rights.dirty)
		(void)rights_sync(&place->rights);
}

/* Waits for a descriptor for up to `wait_ms` (-1: any time), and meanwhile answers shims. 1: it is
 * readable; 0: the time is over; or -errno (-EINTR: shims were answered). */
static int ready_await(struct launcher_place *place, int fd, int wait_ms)
{
	struct pollfd fds[1 + PERMITS_MOST];
	unsigned count = permits_poll(&place->permits, fds + 1);

	fds[0] = (struct pollfd){.fd = fd, .events = POLLIN};
	if (place->rights.dirty && (wait_ms < 0 || wait_ms > LOOK_MS))
		wait_ms = LOOK_MS;
	int ready = poll(fds, 1 + count, wait_ms);
	if (ready < 0)
		return -errno;
	if (ready > 0)
		permits_run(&place->permits, &place->rights, fds + 1);
	register_look(place);
	if (!ready)
		return 0;
	return fds[0].revents ? 1 : -EINTR;
}

/* False: the worker is gone, or broken. */
static bool turn(struct launcher_place *place)
{
	struct launcher_request request;
	struct answer answer = {.fd = -1};
	int fds[2];

	int ready = ready_await(place, place->link_fd, launcher_left_wait_ms(place));
	if (ready < 0)
		return ready == -EINTR;
	launcher_left_step(place);
	if (!ready)
		return true;
	ssize_t n = descriptors_receive(place->link_fd, &request, sizeof(request), fds, 2);
	if (n == -EAGAIN || n == -EINTR)
		return true;
	int rc = n <= 0 ? -EPROTO : launcher_request_check(&request, (size_t)n);
	if (rc == 0)
		rc = obey(place, &request, fds, &answer);
	close_fd(&fds[0]);
	close_fd(&fds[1]);
	if (rc == -EPROTO)
		return false;
	struct launcher_reply reply = {
		.magic = LAUNCHER_MAGIC,
		.version = LAUNCHER_VERSION,
		.op = request.op,
		.number = request.number,
		.error = rc < 0 ? -rc : 0,
		.pid = answer.process.pid,
		.birth = answer.process.birth,
		.tasks_max = place->tasks_max,
		.tasks = place->tasks,
	};
	bool goes_on = descriptors_send_wait(place->link_fd, &reply, sizeof(reply), &answer.fd,
					     answer.fd >= 0) == 0;
	close_fd(&answer.fd);
	return goes_on;
}

/* ---- its life ----------------------------------------------------------------------------- */

bool launcher_may(void)
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

static bool is_root(int fd)
{
	struct ucred credentials;
	socklen_t size = sizeof(credentials);

	return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &credentials, &size) == 0 &&
	       credentials.pid > 0 && credentials.uid == 0;
}

int launcher_serve(struct launcher_place *place, launcher_listen *listen_at, void *arg)
{
	cleanup_close int listen_fd = -1;

	prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
	signal(SIGPIPE, SIG_IGN);
	signal(SIGCHLD, SIG_IGN); /* shims are nobody's to wait for */
	launcher_shims_begin(place);
	for (;;) {
		int rc = listen_at(arg, &listen_fd);

		if (rc < 0)
			return rc;
		/* Each daemon connects once, when it starts: so long the file is looked for. */
		if (ready_await(place, listen_fd, LOOK_MS) <= 0)
			continue;
		cleanup_close int fd = accept4(listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

		if (fd < 0 && errno != EINTR && errno != ECONNABORTED && errno != EAGAIN)
			return -errno;
		place->link_fd = fd;
		while (fd >= 0 && is_root(fd) && turn(place))
			;
	}
}

static int launcher_run(void *arg, int link_fd)
{
	struct launcher_place *place = arg;

	place->link_fd = link_fd;
	signal(SIGCHLD, SIG_IGN); /* shims are nobody's to wait for */
	int rc = part_descriptors_keep(
		(int *const[]){&place->link_fd, &place->jobs_fd, &place->rights.fd}, 3);
	launcher_shims_begin(place);
	while (rc == 0 && turn(place))
		;
	return rc;
}

int launcher_fork(struct launcher_place *place, int *ret_link_fd)
{
	return part_fork(NAME, SOCK_NONBLOCK, launcher_run, place, ret_link_fd);
}
