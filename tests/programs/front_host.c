/* The daemon's side of the attach protocol and nothing else, for tests of the front. It makes a
 * ledger, runs a command with the front before the driver it is given, and says at the end what the
 * ledger said.
 *
 *   front_host [--limit BYTES] [--context BYTES] [--settled BYTES] [--gpus N] [--answer HOW]
 *              [--uuid UUID] [--gate PLAN] [--preload PATHS] -- CMD...
 *
 * GPU i has the UUID i 1 2 ... 15 (the null driver's); or the first has another. HOW: "ok",
 * "refuse", "silent" (closes), "unsealed", "older", "newer", "newer-compatible" (a ledger of
 * another version; of a later one that this front still understands), "newer-attach" (speaks a
 * later version), "leave" (attaches one, then is gone), "shrink" (to 512 MiB at the second
 * settling). PLAN: what the session's gate goes through (front_gate.h); "leave" then leaves it as
 * it is. Prints one line of JSON on stderr; exits with the command's status. */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/macros.h"
#include "front_gate.h"
#include "proto/attach.h"
#include "proto/ledger.h"

#define SLOTS 256u
#define SESSION "s-test"

struct host {
	struct ledger ledger;
	struct ledger_limits *limits;
	int limits_fd, ledger_fd;
	const char *answer;
	int listener;           /* -1: gone */
	struct front_gate gate; /* no plan: it stays off */
	int64_t settled;
	unsigned attached, settles;
	struct client {
		int fd;
		uint32_t slot;
	} clients[SLOTS];
	unsigned client_count;
};

static int memory_make(const char *name, size_t size, bool seal, void **ret)
{
	int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);

	if (fd < 0 || ftruncate(fd, (off_t)size) < 0)
		return -1;
	if (seal && fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) < 0)
		return -1;
	*ret = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	return *ret == MAP_FAILED ? -1 : fd;
}

/* As another build of carve would have it. */
static void version_set(const struct host *h, uint16_t *version, uint16_t *oldest)
{
	bool newer = strncmp(h->answer, "newer", 5) == 0;

	*version = (uint16_t)(LEDGER_VERSION + newer - (strcmp(h->answer, "older") == 0));
	*oldest = strcmp(h->answer, "newer-compatible") == 0 ? LEDGER_VERSION : *version;
}

static bool ledger_make(struct host *h, uint32_t gpus, uint64_t limit, uint64_t context)
{
	bool seal = strcmp(h->answer, "unsealed") != 0;
	void *limits, *header;
	char path[32];

	int writable = memory_make("limits", sizeof(*h->limits), seal, &limits);
	h->ledger_fd = memory_make("ledger", ledger_size(gpus, SLOTS), seal, &header);
	if (writable < 0 || h->ledger_fd < 0)
		return false;
	snprintf(path, sizeof(path), "/proc/self/fd/%d", writable);
	h->limits_fd = open(path, O_RDONLY | O_CLOEXEC);
	h->limits = limits;
	h->ledger = (struct ledger){.limits = limits, .header = header};
	ledger_init(header, gpus, SLOTS);
	h->limits->magic = LEDGER_LIMITS_MAGIC;
	version_set(h, &h->limits->version, &h->limits->version_oldest);
	version_set(h, &h->ledger.header->version, &h->ledger.header->version_oldest);
	h->limits->size = sizeof(*h->limits);
	h->limits->gpu_count = gpus;
	strcpy(h->limits->session, SESSION);
	for (uint32_t i = 0; i < gpus; i++) {
		struct ledger_limit *gpu = &h->limits->gpu[i];

		for (uint8_t k = 0; k < LEDGER_UUID_SIZE; k++)
			gpu->uuid[k] = k ? k : (uint8_t)i;
		snprintf(gpu->uuid_text, sizeof(gpu->uuid_text),
			 "GPU-%02x010203-0405-0607-0809-0a0b0c0d0e0f", i);
		gpu->limit_bytes = limit;
		gpu->context_bytes = context;
	}
	return h->limits_fd >= 0;
}

/* The first GPU's: "GPU-" or "MIG-" and 32 hexadecimal digits with dashes among them. */
static void uuid_set(struct host *h, const char *text)
{
	struct ledger_limit *gpu = &h->limits->gpu[0];

	snprintf(gpu->uuid_text, sizeof(gpu->uuid_text), "%s", text);
	text += strcspn(text, "-");
	for (int i = 0; i < LEDGER_UUID_SIZE && *text; i++) {
		unsigned int byte;

		text += strspn(text, "-");
		if (sscanf(text, "%2x", &byte) == 1)
			gpu->uuid[i] = (uint8_t)byte;
		text += 2;
	}
}

static void reply_send(struct host *h, int fd, struct attach_reply *reply, bool books)
{
	/* Daemons from before there was time-slicing send two. */
	int fds[] = {h->limits_fd, h->ledger_fd, h->gate.wake}, count = h->gate.plan ? 3 : 2;
	union {
		struct cmsghdr header;
		char bytes[CMSG_SPACE(3 * sizeof(int))];
	} control = {.header = {.cmsg_len = CMSG_LEN((size_t)count * sizeof(int)),
				.cmsg_level = SOL_SOCKET,
				.cmsg_type = SCM_RIGHTS}};
	struct iovec data = {.iov_base = reply, .iov_len = sizeof(*reply)};
	struct msghdr message = {.msg_iov = &data, .msg_iovlen = 1};

	memcpy(CMSG_DATA(&control.header), fds, (size_t)count * sizeof(int));
	if (books) {
		message.msg_control = &control;
		message.msg_controllen = CMSG_SPACE((size_t)count * sizeof(int));
	}
	sendmsg(fd, &message, MSG_NOSIGNAL);
}

/* False: close the connection. */
static bool serve(struct host *h, struct client *c)
{
	struct attach_request request;
	struct attach_reply reply = {.magic = ATTACH_MAGIC, .version = ATTACH_VERSION};
	bool books = false;

	if (recv(c->fd, &request, sizeof(request), 0) != sizeof(request) ||
	    strcmp(h->answer, "silent") == 0)
		return false;
	if (strcmp(h->answer, "refuse") == 0) {
		reply.status = ATTACH_NO_SESSION;
		snprintf(reply.message, sizeof(reply.message), "session %s ended", request.session);
	} else if (strcmp(h->answer, "newer-attach") == 0) {
		reply.version = ATTACH_VERSION + 1;
		reply.status = ATTACH_VERSION_MISMATCH;
		snprintf(reply.message, sizeof(reply.message), "this carved speaks version %u",
			 ATTACH_VERSION + 1);
	} else if (request.kind == ATTACH_WORKLOAD) {
		struct ucred peer = {0};
		socklen_t size = sizeof(peer);

		getsockopt(c->fd, SOL_SOCKET, SO_PEERCRED, &peer, &size);
		c->slot = ++h->attached;
		ledger_slot_assign(&h->ledger, c->slot, peer.pid, 1);
		atomic_store(&h->gate.slots, h->attached);
		books = true;
	} else if (request.kind == ATTACH_OBSERVE) {
		books = true;
	} else if (request.kind == ATTACH_SETTLE) {
		h->settles++;
		if (strcmp(h->answer, "shrink") == 0 && h->settles > 1)
			atomic_store(&h->limits->gpu[0].limit_bytes, MIB(512));
		ledger_settle(&h->ledger, c->slot, 0, h->settled);
	}
	reply.slot = c->slot;
	reply_send(h, c->fd, &reply, books);
	if (strcmp(h->answer, "leave") == 0) {
		close(h->listener);
		h->listener = -1;
	}
	return h->listener >= 0;
}

static void serve_all(struct host *h, struct pollfd *polls)
{
	for (unsigned i = 0; i < h->client_count; i++) {
		struct client *c = &h->clients[i];

		if (c->fd < 0 || !polls[i + 1].revents || serve(h, c))
			continue;
		if (c->slot && h->listener >= 0)
			ledger_slot_release(&h->ledger, c->slot);
		close(c->fd);
		c->fd = -1;
	}
}

static bool anybody_there(const struct host *h)
{
	for (unsigned i = 0; i < h->client_count; i++)
		if (h->clients[i].fd >= 0)
			return true;
	return false;
}

/* Serves until the command and everybody who attached are gone. */
static int run(struct host *h, pid_t child)
{
	struct pollfd polls[SLOTS + 1];
	int status = 0;
	bool ended = false;

	while (!ended || anybody_there(h)) {
		polls[0] = (struct pollfd){.fd = h->listener, .events = POLLIN};
		for (unsigned i = 0; i < h->client_count; i++)
			polls[i + 1] = (struct pollfd){.fd = h->clients[i].fd, .events = POLLIN};
		poll(polls, h->client_count + 1, 10);
		serve_all(h, polls);
		if (polls[0].revents && h->client_count < SLOTS)
			h->clients[h->client_count++].fd =
				accept4(h->listener, NULL, NULL, SOCK_CLOEXEC);
		ended = ended || waitpid(child, &status, WNOHANG) == child;
	}
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static pid_t start(char **argv, const char *preload)
{
	pid_t child = fork();

	if (child)
		return child;
	setenv(ATTACH_ENV_SESSION, SESSION, 1);
	setenv("LD_PRELOAD", preload, 1);
	execvp(argv[0], argv);
	perror(argv[0]);
	_exit(127);
}

int main(int argc, char **argv)
{
	static const struct option options[] = {
		{"limit", 1, NULL, 'l'},  {"context", 1, NULL, 'c'}, {"settled", 1, NULL, 's'},
		{"gpus", 1, NULL, 'g'},   {"uuid", 1, NULL, 'u'},    {"gate", 1, NULL, 't'},
		{"answer", 1, NULL, 'a'}, {"preload", 1, NULL, 'p'}, {0},
	};
	char dir[] = "/tmp/front-host-XXXXXX";
	struct host h = {.answer = "ok"};
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	uint64_t limit = GIB(1), context = 0;
	uint32_t gpus = 1;
	const char *preload = "", *uuid = NULL;

	for (int c; (c = getopt_long(argc, argv, "+", options, NULL)) != -1;) {
		switch (c) {
		case 'l':
			limit = strtoull(optarg, NULL, 10);
			break;
		case 'c':
			context = strtoull(optarg, NULL, 10);
			break;
		case 's':
			h.settled = strtoll(optarg, NULL, 10);
			break;
		case 'g':
			gpus = (uint32_t)strtoul(optarg, NULL, 10);
			break;
		case 'a':
			h.answer = optarg;
			break;
		case 'u':
			uuid = optarg;
			break;
		case 't':
			h.gate.plan = optarg;
			break;
		case 'p':
			preload = optarg;
			break;
		default:
			return 125;
		}
	}
	h.listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	if (!argv[optind] || !mkdtemp(dir) || !ledger_make(&h, gpus, limit, context))
		return 125;
	if (uuid)
		uuid_set(&h, uuid);
	snprintf(address.sun_path, sizeof(address.sun_path), "%s/attach", dir);
	if (bind(h.listener, (struct sockaddr *)&address, sizeof(address)) < 0 ||
	    listen(h.listener, 64) < 0)
		return 125;
	h.gate.ledger = &h.ledger;
	if (h.gate.plan && !front_gate_start(&h.gate))
		return 125;
	setenv(ATTACH_ENV_SOCKET, address.sun_path, 1);
	int status = run(&h, start(argv + optind, preload));
	if (h.gate.plan)
		front_gate_stop(&h.gate);
	fprintf(stderr,
		"{\"attached\": %u, \"settles\": %u, \"committed\": %llu, \"peak\": %llu, "
		"\"refused\": %llu",
		h.attached, h.settles, (unsigned long long)ledger_committed(&h.ledger, 0),
		(unsigned long long)ledger_gpu(&h.ledger, 0)->peak_bytes,
		(unsigned long long)ledger_gpu(&h.ledger, 0)->refused);
	if (h.gate.plan) {
		fprintf(stderr, ", ");
		front_gate_print(&h.gate);
	}
	fprintf(stderr, "}\n");
	unlink(address.sun_path);
	rmdir(dir);
	return status;
}
