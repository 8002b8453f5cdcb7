/* The attach socket as the daemon reads it. Every answer is well-formed, whatever a client sends,
 * descriptors come with a granted ledger only, and slots are those of clients that got one.
 *
 * An input is a row of messages on one connection. One kind is a byte 0, a length and so many bytes
 * as they are. The other is another byte, and six that say kind and slot of a request that is right
 * otherwise (an odd byte: of another session). With bit 6 of that byte up to three descriptors go
 * with it: they are refused, or dropped. */
#include <fcntl.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/error.h"
#include "base/macros.h"
#include "daemon/attach/attach.h"
#include "daemon/node.h"
#include "daemon/node_hooks.h"
#include "daemon/session/books.h"
#include "daemon/session/process.h"
#include "daemon/session/session.h"
#include "proto/attach.h"

#define SESSION "s-fuzz01"
#define WITH_DESCRIPTORS 0x40
#define MESSAGES_MAX 300
/* Runs of the loop in which what was sent is read and answered. */
#define TURNS 3

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct node node;
static struct session session;
static struct store_gpu gpu;
static int position;
static struct sockaddr_un address = {.sun_family = AF_UNIX};
static socklen_t address_size;

static void check(int right)
{
	if (!right)
		abort();
}

static void store_begin(void)
{
	static char dir[] = "/tmp/carve-fuzz-XXXXXX";
	char path[64];
	struct error err = {0};

	check(mkdtemp(dir) != NULL);
	snprintf(path, sizeof(path), "%s/db", dir);
	check(store_open(&node.store, path, false, &err) == 0);
	/* Open, and gone from the directory. */
	for (const char *const *tail = (const char *const[]){"", "-wal", "-shm", NULL}; *tail;
	     tail++) {
		snprintf(path, sizeof(path), "%s/db%s", dir, *tail);
		(void)unlink(path);
	}
	(void)rmdir(dir);
}

static void server_begin(void)
{
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

	address_size =
		(socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 +
			    (size_t)snprintf(address.sun_path + 1, sizeof(address.sun_path) - 1,
					     "carve-fuzz-attach-%d", (int)getpid()));
	check(bind(fd, (struct sockaddr *)&address, address_size) == 0 && listen(fd, 8) == 0);
	check(attach_server_start(&node.sessions, &node.turns, fd, &node.attach) == 0);
}

static void begin(void)
{
	struct books_gpu of = {
		.uuid_text = "GPU-0", .pci_bus_id = "0", .limit_bytes = GIB(4), .context_bytes = 0};

	check(uv_loop_init(&node.loop) == 0);
	node.sessions.loop = &node.loop;
	node.sessions.pool = &node.pool;
	node.sessions.hooks = &node_session_hooks;
	node.sessions.context = &node;
	store_begin();
	node.sessions.store = node.store;
	node.sessions.privileges = &node.privileges;
	session = (struct session){
		.sessions = &node.sessions, .books = BOOKS_NONE, .pool_gpu = &position};
	snprintf(session.record.id, sizeof(session.record.id), SESSION);
	session.record.uid = geteuid();
	session.record.gpu_count = 1;
	session.record.gpu = &gpu;
	check(books_create(&session.books, SESSION, &of, 1) == 0);
	/* Found by its ID whichever bucket that falls into. */
	for (size_t i = 0; i < SESSIONS_BUCKETS; i++)
		node.sessions.by_id[i] = &session;
	node.sessions.attached = &session; /* without leases: no GPU here divides its time */
	server_begin();
}

static int dial(void)
{
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	check(fd >= 0 && connect(fd, (struct sockaddr *)&address, address_size) == 0);
	return fd;
}

/* Reads all answers that are there. Negative: the daemon hung up. */
static int answers_check(int fd)
{
	for (;;) {
		struct attach_reply reply;
		_Alignas(struct cmsghdr) char control[CMSG_SPACE(8 * sizeof(int))];
		struct iovec part = {.iov_base = &reply, .iov_len = sizeof(reply)};
		struct msghdr message = {.msg_iov = &part,
					 .msg_iovlen = 1,
					 .msg_control = control,
					 .msg_controllen = sizeof(control)};
		ssize_t n = recvmsg(fd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
		size_t fds = 0;

		if (n <= 0)
			return n == 0 ? -1 : 0;
		check(n == sizeof(reply) && reply.magic == ATTACH_MAGIC &&
		      reply.version == ATTACH_VERSION && reply.status <= ATTACH_BUSY &&
		      memchr(reply.message, '\0', sizeof(reply.message)) != NULL &&
		      reply.slot < BOOKS_SLOTS);
		for (struct cmsghdr *c = CMSG_FIRSTHDR(&message); c; c = CMSG_NXTHDR(&message, c))
			for (size_t i = 0; i < (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
			     i++, fds++) {
				int got;

				memcpy(&got, CMSG_DATA(c) + i * sizeof(int), sizeof(got));
				close(got);
			}
		check(reply.status == ATTACH_OK ? fds == 0 || fds >= 2 : fds == 0);
		check(reply.status == ATTACH_OK || reply.message[0]);
	}
}

static void turn(void)
{
	for (int i = 0; i < TURNS; i++) {
		uv_run(&node.loop, UV_RUN_NOWAIT);
		while (fair_run(&node.turns))
			;
	}
}

static void send_with(int fd, struct attach_request *request, unsigned count)
{
	_Alignas(struct cmsghdr) char control[CMSG_SPACE(3 * sizeof(int))] = {0};
	const int fds[3] = {fd, fd, fd};
	struct iovec data = {.iov_base = request, .iov_len = sizeof(*request)};
	struct msghdr message = {.msg_iov = &data,
				 .msg_iovlen = 1,
				 .msg_control = control,
				 .msg_controllen = CMSG_SPACE(count * sizeof(int))};
	struct cmsghdr *header = CMSG_FIRSTHDR(&message);

	header->cmsg_level = SOL_SOCKET;
	header->cmsg_type = SCM_RIGHTS;
	header->cmsg_len = CMSG_LEN(count * sizeof(int));
	memcpy(CMSG_DATA(header), fds, count * sizeof(int));
	(void)sendmsg(fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
}

/* Sends the next message of the input; how much of the input it was. */
static size_t message_send(int fd, const uint8_t *data, size_t size)
{
	struct attach_request request = {.magic = ATTACH_MAGIC, .version = ATTACH_VERSION};

	if (data[0] == 0 || size < 7) {
		size_t length = size > 1 ? MIN(data[1], size - 2) : 0;

		(void)send(fd, data + MIN(size, 2u), length, MSG_NOSIGNAL | MSG_DONTWAIT);
		return 2 + length;
	}
	memcpy(&request.kind, data + 1, sizeof(request.kind));
	memcpy(&request.slot, data + 3, sizeof(request.slot));
	snprintf(request.session, sizeof(request.session), data[0] & 1 ? "s-other" : SESSION);
	if (data[0] & WITH_DESCRIPTORS)
		send_with(fd, &request, 1 + data[0] / 2 % 3);
	(void)send(fd, &request, sizeof(request), MSG_NOSIGNAL | MSG_DONTWAIT);
	return 7;
}

/* Besides those of holders, which stay. */
static uint32_t descriptors(void)
{
	uint32_t count = 0;

	for (const struct holder *h = session.holders; h; h = h->next)
		count--;
	for (int fd = 0; fd < 256; fd++)
		count += fcntl(fd, F_GETFD) >= 0;
	return count;
}

/* Slots in use are those of the daemon's processes, one each; then all are given back. */
static void slots_check(void)
{
	uint32_t used = 0, known = 0;

	for (uint32_t slot = 1; slot < BOOKS_SLOTS; slot++)
		used += ledger_slot(&session.books.ledger, slot)->state != LEDGER_SLOT_FREE;
	for (const struct process *p = session.processes; p; p = p->next)
		known++;
	check(used == known);
	while (session.processes) {
		uint32_t slot = session.processes->slot;

		process_free(session.processes);
		ledger_slot_release(&session.books.ledger, slot);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	size_t at = 0;

	if (!node.attach)
		begin();
	const uint32_t before = descriptors();
	int fd = dial();
	for (int i = 0; i < MESSAGES_MAX && at < size; i++) {
		at += message_send(fd, data + at, size - at);
		turn();
		if (answers_check(fd) < 0)
			break;
	}
	close(fd);
	turn();
	check(attach_connections(node.attach) == 0);
	slots_check();
	turn();
	check(descriptors() == before);
	return 0;
}
