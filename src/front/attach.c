#include "front/attach.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/trust.h"
#include "front/environment.h"
#include "front/slice_file.h"

/* Descriptors are moved to this number or above, out of the way of programs that use the first ones
 * by number. Below 64, as many as a process starts with room for: making more room takes the kernel
 * 10 ms where the process has threads already. */
#define HIGH_FD 48
#define CONNECT_TRIES 40
#define CONNECT_PAUSE_NS 50000000L
/* Likewise while the daemon says that the session is another user's, or that it is busy: 3 s. */
#define ADMIT_TRIES 60
/* The number of further tries where a daemon is there, and has not yet served earlier processes. */
#define CROWDED_TRIES 5
/* A daemon that accepts and then says nothing must not hang the program. */
#define REPLY_NS 5000000000ull

/* limits, ledger, wake */
#define DESCRIPTORS 3

#define SEALS_REQUIRED (F_SEAL_SHRINK | F_SEAL_GROW)

static int move_high(int *fd)
{
	int high = fcntl(*fd, F_DUPFD_CLOEXEC, HIGH_FD);

	if (high < 0)
		return steal_fd(fd);
	close_fd(fd);
	return high;
}

static uint64_t inode_of(int fd)
{
	struct statx st;

	if (statx(fd, "", AT_EMPTY_PATH, STATX_INO, &st) < 0)
		return 0;
	return st.stx_ino;
}

/* -EAGAIN: too many are waiting to be accepted; the kernel would let this one wait without end.
 * -EPERM: another user's program listens in the daemon's place. */
static int connect_once(const struct sockaddr_un *address)
{
	cleanup_close int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	uid_t ignored;

	if (fd < 0)
		return -errno;
	if (connect(fd, (const struct sockaddr *)address, sizeof(*address)) < 0)
		return -errno;
	/* A path of the environment may be an image's. */
	int r = server_check(fd, address->sun_path, slice_file_exists() ? SERVER_VOUCHED : 0,
			     &ignored);
	return r < 0 ? r : steal_fd(&fd);
}

static int connect_daemon(const char *path, int tries)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};

	if (strlen(path) >= sizeof(address.sun_path))
		return -ENAMETOOLONG;
	memcpy(address.sun_path, path, strlen(path) + 1);
	for (int i = 1;; i++) {
		struct timespec pause = {.tv_nsec = CONNECT_PAUSE_NS};
		int fd = connect_once(&address), most = tries;

		if (fd == -EAGAIN)
			most *= CROWDED_TRIES;
		else if (fd != -ECONNREFUSED && fd != -ENOENT)
			return fd;
		if (i >= most)
			return fd;
		while (nanosleep(&pause, &pause) < 0 && errno == EINTR)
			;
	}
}

static int send_request(int fd, const struct attach_request *request)
{
	struct iovec data = {.iov_base = (void *)request, .iov_len = sizeof(*request)};
	struct msghdr message = {.msg_iov = &data, .msg_iovlen = 1};
	ssize_t n;

	do
		n = sendmsg(fd, &message, MSG_NOSIGNAL);
	while (n < 0 && errno == EINTR);
	/* The daemon may refuse and close before it reads: its reply says why. */
	if (n < 0 && (errno == EPIPE || errno == ECONNRESET))
		return 0;
	return n == sizeof(*request) ? 0 : n < 0 ? -errno : -EPROTO;
}

/* However often the program's signals interrupt it. */
static int wait_for_reply(int fd)
{
	struct pollfd readable = {.fd = fd, .events = POLLIN};
	uint64_t now = now_monotonic_ns();
	const uint64_t end = now + REPLY_NS;

	for (; now < end; now = now_monotonic_ns()) {
		int count = poll(&readable, 1, (int)((end - now) / 1000000) + 1);

		if (count > 0)
			return 0;
		if (count < 0 && errno != EINTR)
			return -errno;
	}
	return -EAGAIN;
}

/* Receives a reply and descriptors; fds not received are left alone. */
static int receive_reply(int fd, struct attach_reply *reply, int fds[DESCRIPTORS])
{
	union {
		struct cmsghdr header;
		char bytes[CMSG_SPACE(DESCRIPTORS * sizeof(int))];
	} control = {0};
	struct iovec data = {.iov_base = reply, .iov_len = sizeof(*reply)};
	struct msghdr message = {.msg_iov = &data,
				 .msg_iovlen = 1,
				 .msg_control = &control,
				 /* The padding that CMSG_SPACE adds would hold one more. */
				 .msg_controllen = CMSG_LEN(DESCRIPTORS * sizeof(int))};
	int r = wait_for_reply(fd);

	if (r < 0)
		return r;
	ssize_t n = recvmsg(fd, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
	/* An unread request is told once, before the reply. */
	if (n < 0 && errno == ECONNRESET)
		n = recvmsg(fd, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
	if (n < 0)
		return -errno;
	/* The caller closes them, whatever the rest is. */
	for (struct cmsghdr *c = CMSG_FIRSTHDR(&message); c; c = CMSG_NXTHDR(&message, c))
		if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS)
			memcpy(fds, CMSG_DATA(c), c->cmsg_len - CMSG_LEN(0));
	if (n == 0)
		return -ECONNRESET;
	return n == sizeof(*reply) && reply->magic == ATTACH_MAGIC ? 0 : -EPROTO;
}

static struct attach_request request_make(enum attach_kind kind, uint32_t slot)
{
	struct attach_request request = {.magic = ATTACH_MAGIC,
					 .version = ATTACH_VERSION,
					 .kind = (uint16_t)kind,
					 .slot = slot};
	const char *session = environment_get(ATTACH_ENV_SESSION);

	if (session && strlen(session) < sizeof(request.session))
		memcpy(request.session, session, strlen(session) + 1);
	return request;
}

/* Maps a descriptor that the daemon sent, if it is sealed so that nobody can take its pages away.
 * NULL: it is not, or cannot be mapped. */
static void *map_sealed(int fd, int protection, size_t *ret_size)
{
	struct statx st;
	int seals = fcntl(fd, F_GET_SEALS);

	if (seals < 0 || (seals & SEALS_REQUIRED) != SEALS_REQUIRED)
		return NULL;
	if (statx(fd, "", AT_EMPTY_PATH, STATX_SIZE, &st) < 0 ||
	    st.stx_size < sizeof(struct ledger_header) || st.stx_size > SIZE_MAX / 2)
		return NULL;
	void *at = mmap(NULL, st.stx_size, protection, MAP_SHARED, fd, 0);
	if (at == MAP_FAILED)
		return NULL;
	*ret_size = st.stx_size;
	return at;
}

/* The content may be hostile and change meanwhile: what is checked is a copy. */
static int check_ledger(struct attachment *a, enum attach_kind kind, size_t limits_size,
			size_t ledger_bytes)
{
	/* Only who observes has the daemon's slot, which it does not write to. */
	const uint32_t first = kind == ATTACH_OBSERVE ? LEDGER_SLOT_DAEMON : 1;

	a->shape = *a->ledger.header;
	a->gpu_count = a->ledger.limits->gpu_count;
	int r = ledger_limits_check(a->ledger.limits, limits_size);

	if (r == 0)
		r = ledger_check(&a->shape, ledger_bytes);
	if (r < 0)
		return r;
	return a->gpu_count && a->gpu_count <= a->shape.gpu_count && a->slot >= first &&
			       a->slot < a->shape.slot_count
		       ? 0
		       : -EPROTO;
}

/* The next name in a stamp's list of GPUs, and its length; 0: there is none. */
static size_t stamp_next(const char **at)
{
	*at += **at == ',' || **at == ':';
	return strcspn(*at, ",");
}

/* The environment of a program, and the device nodes of a container, are of the GPUs that the
 * session had when they were made. False: the session has others now. */
static bool stamp_holds(const struct attachment *a)
{
	const char *stamp = environment_get(ATTACH_ENV_STAMP);
	const char *at = stamp ? strchr(stamp, ':') : NULL;

	for (uint32_t i = 0; at && i < a->gpu_count; i++) {
		const char *name = a->ledger.limits->gpu[i].uuid_text;
		size_t length = stamp_next(&at);

		if (strncmp(at, name, length) != 0 || name[length])
			return false;
		at += length;
	}
	return !stamp || (at && !*at);
}

static int map_ledger(struct attachment *a, enum attach_kind kind, int limits_fd, int ledger_fd)
{
	size_t limits_size = 0, header_size = 0;
	void *limits = map_sealed(limits_fd, PROT_READ, &limits_size);
	void *header = map_sealed(ledger_fd, PROT_READ | PROT_WRITE, &header_size);
	int r = -EPROTO;

	if (limits && header) {
		a->ledger = (struct ledger){.limits = limits, .header = header};
		r = check_ledger(a, kind, limits_size, header_size);
		if (r == 0 && !stamp_holds(a))
			r = -ESTALE;
		if (r == 0)
			return 0;
	}
	if (limits)
		munmap(limits, limits_size);
	if (header)
		munmap(header, header_size);
	return r;
}

static int unusable(char *why, size_t size, const char *text, int error)
{
	char buf[64];

	snprintf(why, size, "%s: %s", text, strerror_r(-error, buf, sizeof(buf)));
	return error;
}

/* Moves the descriptor, -1 for none, into the attachment. */
static void wake_take(struct attachment *a, int *fd)
{
	int before = a->wake;

	if (*fd < 0)
		return;
	int wake = move_high(fd);
	a->wake_inode = inode_of(wake);
	a->wake = wake;
	if (before >= 0 && inode_of(before) == a->wake_inode)
		close(before);
}

/* The daemon's words are one line, whatever it sent. */
static void told(char *why, size_t size, struct attach_reply *reply)
{
	reply->message[sizeof(reply->message) - 1] = '\0';
	snprintf(why, size, "%s", reply->message[0] ? reply->message : "the daemon refused it");
	/* Control characters, and the bytes that may be those of C1, in UTF-8 or alone. */
	for (unsigned char *c = (unsigned char *)why; *c; c++)
		if (*c < ' ' || (*c >= 0x7f && *c < 0xa0))
			*c = '?';
}

static bool is_filtered(void)
{
	return prctl(PR_GET_SECCOMP, 0, 0, 0, 0) != 0;
}

int attach_receive(enum attach_kind kind, int *fd, struct attachment *ret, char *why,
		   size_t why_size)
{
	struct attach_reply reply = {0};
	int fds[DESCRIPTORS] = {-1, -1, -1};
	int r = receive_reply(*fd, &reply, fds);
	cleanup_close int limits_fd = fds[0];
	cleanup_close int ledger_fd = fds[1];
	cleanup_close int wake_fd = fds[2];

	if (r < 0)
		return unusable(why, why_size, "the daemon did not answer", r);
	if (reply.status != ATTACH_OK) {
		told(why, why_size, &reply);
		return reply.status == ATTACH_NOT_PERMITTED ? -EKEYREJECTED
		       : reply.status == ATTACH_BUSY        ? -EBUSY
		       : reply.status == ATTACH_NO_SESSION  ? -ESRCH
							    : -EPERM;
	}
	if (limits_fd < 0 || ledger_fd < 0)
		return unusable(why, why_size, "the daemon sent no ledger", -EPROTO);
	struct attachment a = {.slot = reply.slot, .wake = -1};
	r = map_ledger(&a, kind, limits_fd, ledger_fd);
	if (r == -ESTALE) {
		snprintf(why, why_size,
			 "its session has another GPU or MIG instance now than when this program, "
			 "or "
			 "its container, was made; start a new one");
		return r;
	}
	if (r < 0)
		return unusable(why, why_size,
				r == -EPROTONOSUPPORT ? "the daemon is of another version"
						      : "the daemon's ledger is unusable",
				r);
	a.socket = move_high(fd);
	a.socket_inode = inode_of(a.socket);
	wake_take(&a, &wake_fd);
	a.generation = atomic_load(&a.ledger.limits->generation);
	a.filtered = is_filtered();
	*ret = a;
	ret->ledger.shape = &ret->shape;
	return 0;
}

static int attach_once(enum attach_kind kind, const char *path, struct attachment *ret, char *why,
		       size_t why_size)
{
	struct attach_request request = request_make(kind, LEDGER_SLOT_DAEMON);
	cleanup_close int fd = connect_daemon(path, CONNECT_TRIES);
	if (fd == -EPERM) {
		snprintf(why, why_size,
			 "the process that listens at %s is neither root's nor its own user's",
			 path);
		return fd;
	}
	if (fd == -SERVER_UNKNOWN) {
		snprintf(why, why_size,
			 "nobody can tell in this user namespace whose daemon is at %s; make the "
			 "namespace with carve run --isolation mount",
			 path);
		return -EPERM;
	}
	if (fd < 0)
		return unusable(why, why_size, "the daemon cannot be reached", fd);
	int r = send_request(fd, &request);
	if (r < 0)
		return unusable(why, why_size, "the daemon did not answer", r);
	return attach_receive(kind, &fd, ret, why, why_size);
}

/* In a container of a slice. */
static bool is_in_container(const char *path)
{
	return !strncmp(path, ATTACH_SLICE_DIR "/", strlen(ATTACH_SLICE_DIR "/"));
}

int attach_open(enum attach_kind kind, struct attachment *ret, char *why, size_t why_size)
{
	const char *session = environment_get(ATTACH_ENV_SESSION),
		   *path = environment_get(ATTACH_ENV_SOCKET);
	int r = 0;

	if (!session || !session[0] || !path || !path[0]) {
		snprintf(why, why_size,
			 "it is in no session; start it with `carve run`, and where a sandbox has "
			 "a /run of its own, keep " ATTACH_SLICE_DIR " in it");
		return -ENOENT;
	}
	/* The daemon may not know yet that the container's users are in the slice: of docker's it
	 * is told while these start. Or it is too busy to learn who asks. */
	for (int i = 0; i < ADMIT_TRIES; i++) {
		struct timespec pause = {.tv_nsec = CONNECT_PAUSE_NS};

		r = attach_once(kind, path, ret, why, why_size);
		if (r != -EBUSY && (r != -EKEYREJECTED || !is_in_container(path)))
			break;
		while (nanosleep(&pause, &pause) < 0 && errno == EINTR)
			;
	}
	if (r == -ESRCH && is_in_container(path))
		snprintf(why, why_size,
			 "the slice of this container, %.39s, has ended; make a new container, or "
			 "have `carve hook install` give it its slice at each start",
			 session);
	return r;
}

static int exchange(struct attachment *a, const struct attach_request *request,
		    struct attach_reply *reply)
{
	int fds[DESCRIPTORS] = {-1, -1, -1};
	int r = send_request(a->socket, request);

	if (r == 0)
		r = receive_reply(a->socket, reply, fds);
	close_fd(&fds[0]);
	close_fd(&fds[1]);
	if (r == 0)
		wake_take(a, &fds[2]);
	close_fd(&fds[2]);
	if (r < 0)
		return r;
	return reply->status == ATTACH_OK ? 0 : -EPERM;
}

/* A new daemon took over: this process goes on with the slot that it has. */
static bool resume(struct attachment *a, int tries)
{
	const char *path = environment_get(ATTACH_ENV_SOCKET);
	cleanup_close int fd = path ? connect_daemon(path, tries) : -1;

	a->unreachable = fd < 0;
	if (fd < 0)
		return false;
	a->unanswered = false;
	/* The old number, if it is still the dead connection, goes to the new one. */
	if (inode_of(a->socket) == a->socket_inode)
		close(a->socket);
	a->socket = move_high(&fd);
	a->socket_inode = inode_of(a->socket);
	struct attach_request request = request_make(ATTACH_RESUME, a->slot);
	struct attach_reply reply = {0};
	int r = exchange(a, &request, &reply);
	/* A daemon that took up the ledger by this has counted it up. Should another one have come
	 * since, the connection has ended. */
	a->generation = atomic_load(&a->ledger.limits->generation);
	return r == 0;
}

bool attach_settle(struct attachment *a, struct attach_settling *s)
{
	struct attach_request request = request_make(ATTACH_SETTLE, a->slot);
	struct attach_reply reply = {0};

	request.flags =
		(s->exact ? 0 : ATTACH_FLAG_INEXACT) | (s->leaving ? ATTACH_FLAG_LEAVING : 0);
	request.reserved[0] = (uint32_t)(s->gpu + 1);
	request.reserved[1] = (uint32_t)(s->leaving / LEDGER_GRANULE);
	s->asked = s->taken_over = s->sure = false;
	s->over = 0;
	if ((a->unanswered || inode_of(a->socket) != a->socket_inode ||
	     exchange(a, &request, &reply) < 0) &&
	    (!resume(a, a->unreachable ? 1 : CONNECT_TRIES) || exchange(a, &request, &reply) < 0))
		return false;
	s->asked = true;
	s->over = reply.reserved[0] | (uint64_t)reply.reserved[1] << 32;
	s->taken_over = reply.reserved[2] == ATTACH_TAKEN_OVER;
	s->sure = reply.reserved[2] == ATTACH_SURE;
	return true;
}

static bool connected(const struct attachment *a)
{
	struct pollfd poll_socket = {.fd = a->socket, .events = POLLIN};

	if (inode_of(a->socket) != a->socket_inode)
		return false;
	/* Nothing comes unasked: what can be read is the end, or what was not waited for. */
	return poll(&poll_socket, 1, 0) == 0;
}

/* -EAGAIN: it does not answer. */
static int sweep(struct attachment *a)
{
	struct attach_request request = request_make(ATTACH_SWEEP, a->slot);
	struct attach_reply reply = {0};
	int r = exchange(a, &request, &reply);

	a->unanswered = r == -EAGAIN;
	return r;
}

bool attach_sweep(struct attachment *a)
{
	/* A filter made for what the driver needs may end the process for more than that. */
	if (is_filtered() && !a->filtered)
		return false;
	if (a->unanswered && connected(a))
		return false;
	int r = a->unanswered || inode_of(a->socket) != a->socket_inode ? -ECONNRESET : sweep(a);
	/* A daemon of an earlier version that does not know the question refuses. */
	if (r == 0 || r == -EPERM || r == -EAGAIN)
		return r == 0;
	return resume(a, 1) && sweep(a) == 0;
}

void attach_wake(const struct attachment *a)
{
	const uint64_t one = 1;
	int fd = a->wake;

	/* All eventfds have one inode; a file of the program's has another. */
	if (fd >= 0 && inode_of(fd) == a->wake_inode && write(fd, &one, sizeof(one)) < 0)
		return; /* full: it has been told */
}

bool attach_refresh(struct attachment *a)
{
	if (atomic_load(&a->ledger.limits->generation) == a->generation && connected(a))
		return true;
	return resume(a, 1);
}
