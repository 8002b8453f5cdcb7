/* The answer to a process of a session that attaches. Any reply, with any descriptors to any
 * content, is taken or refused with one line. Once it was taken, the process books on without
 * leaving the mappings, whatever others write into them.
 *
 * Input: a byte of how it is sent, then pieces of what is sent, over a good answer. Each piece has
 * a byte that says where (bit 7: only after it was taken), two for the offset there, one for the
 * length, then bytes. */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/file.h"
#include "front/books.h"
#include "front/cuda/visible.h"

#define GPUS 3u
#define SLOTS 8u
#define LATER 0x80u
/* More than are ever sent. */
#define DESCRIPTORS 5

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct answer {
	struct attach_reply reply;
	size_t reply_size;
	struct part {
		int fd;
		size_t size;
		char *at;
	} limits, ledger;
};

enum how {
	HOW_COUNT = 0x03, /* descriptors: 3 is taken as all that there are */
	HOW_SWAPPED = 0x04,
	HOW_UNSEALED = 0x08,
	HOW_SHORT_LIMITS = 0x10,
	HOW_SHORT_LEDGER = 0x20,
	HOW_SHORT_REPLY = 0x40,
	HOW_OBSERVE = 0x80,
};

static void part_make(struct part *part, size_t size)
{
	part->size = size;
	part->fd = memfd_create("part", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (part->fd < 0 || ftruncate(part->fd, (off_t)size) < 0)
		abort();
	part->at = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, part->fd, 0);
	if (part->at == MAP_FAILED)
		abort();
}

static void answer_make(struct answer *a)
{
	*a = (struct answer){.reply = {.magic = ATTACH_MAGIC, .version = ATTACH_VERSION, .slot = 1},
			     .reply_size = sizeof(a->reply)};
	part_make(&a->limits, sizeof(struct ledger_limits));
	part_make(&a->ledger, ledger_size(GPUS, SLOTS));
	struct ledger_limits *limits = (void *)a->limits.at;
	limits->magic = LEDGER_LIMITS_MAGIC;
	limits->version = limits->version_oldest = LEDGER_VERSION;
	limits->size = sizeof(*limits);
	limits->gpu_count = GPUS;
	for (uint32_t gpu = 0; gpu < GPUS; gpu++) {
		limits->gpu[gpu].limit_bytes = GIB(1);
		strcpy(limits->gpu[gpu].uuid_text, "GPU-00010203-0405-0607-0809-0a0b0c0d0e0f");
	}
	ledger_init((void *)a->ledger.at, GPUS, SLOTS);
	ledger_slot_assign(&(struct ledger){.limits = limits, .header = (void *)a->ledger.at}, 1,
			   4711, 12345);
}

static void write_at(char *to, size_t to_size, size_t offset, const uint8_t *from, size_t length)
{
	if (offset + length <= to_size)
		memcpy(to + offset, from, length);
}

/* The pieces that are written now, or those later. */
static void answer_change(struct answer *a, const uint8_t *data, size_t size, unsigned when)
{
	while (size > 4) {
		size_t offset = (size_t)(data[1] | data[2] << 8), length = data[3];
		unsigned where = data[0] & 3u;
		bool now = (data[0] & LATER) == when;

		data += 4;
		size -= 4;
		length = length < size ? length : size;
		if (now && where == 0)
			write_at((char *)&a->reply, sizeof(a->reply), offset, data, length);
		else if (now && where == 1)
			write_at(a->limits.at, a->limits.size, offset, data, length);
		else if (now)
			write_at(a->ledger.at, a->ledger.size, offset, data, length);
		data += length;
		size -= length;
	}
}

/* A time to come, at which a call would wait (0.2 s at most), becomes one that has passed. */
static void answer_hurry(struct answer *a)
{
	struct ledger_limits *limits = (void *)a->limits.at;

	if (atomic_load(&limits->still_until_ns))
		atomic_store(&limits->still_until_ns, 1);
}

static void answer_send(int socket, struct answer *a, unsigned how)
{
	union {
		struct cmsghdr header;
		char bytes[CMSG_SPACE(DESCRIPTORS * sizeof(int))];
	} control = {0};
	int fds[DESCRIPTORS] = {a->limits.fd, a->ledger.fd, a->ledger.fd, a->limits.fd,
				a->ledger.fd};
	size_t count = (how & HOW_COUNT) < 3 ? how & HOW_COUNT : DESCRIPTORS;
	struct iovec data = {.iov_base = &a->reply,
			     .iov_len = how & HOW_SHORT_REPLY ? sizeof(a->reply) - 1
							      : sizeof(a->reply)};
	struct msghdr message = {.msg_iov = &data, .msg_iovlen = 1};

	if (how & HOW_SWAPPED)
		fds[0] = a->ledger.fd, fds[1] = a->limits.fd;
	if (how & HOW_SHORT_LIMITS && ftruncate(a->limits.fd, 200) < 0)
		abort();
	if (how & HOW_SHORT_LEDGER && ftruncate(a->ledger.fd, sizeof(struct ledger_header)) < 0)
		abort();
	if (!(how & HOW_UNSEALED))
		for (int i = 0; i < 2; i++)
			fcntl(fds[i], F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW);
	control.header.cmsg_level = SOL_SOCKET;
	control.header.cmsg_type = SCM_RIGHTS;
	control.header.cmsg_len = CMSG_LEN(count * sizeof(int));
	memcpy(CMSG_DATA(&control.header), fds, sizeof(fds));
	if (count) {
		message.msg_control = &control;
		message.msg_controllen = CMSG_SPACE(count * sizeof(int));
	}
	if (sendmsg(socket, &message, MSG_NOSIGNAL) < 0)
		abort();
}

/* A process that books on what it got. */
static void work(struct process *p)
{
	char list[VISIBLE_SIZE];

	for (uint32_t gpu = 0; gpu < p->attachment.gpu_count; gpu++) {
		struct object large = {
			.kind = OBJECT_LINEAR, .gpu = (uint16_t)gpu, .bytes = MIB(4)};
		struct object small = {.kind = OBJECT_LINEAR,
				       .gpu = (uint16_t)gpu,
				       .handle = MIB(64),
				       .small = 512};

		(void)books_limit(p, gpu);
		(void)books_free(p, gpu);
		if (books_reserve(p, &large) == 0) {
			books_keep(p, &large);
			books_take(p, OBJECT_LINEAR, 0, &large);
			books_drop(p, &large);
		}
		if (books_reserve(p, &small) == 0 && books_keep(p, &small) < 0)
			books_cancel(p, &small);
		if (books_take(p, OBJECT_LINEAR, small.handle, &small))
			books_drop(p, &small);
		books_count_refused(p, gpu, 4096);
		for (uint32_t slot = 0; slot < p->attachment.shape.slot_count; slot++)
			(void)ledger_slot_bytes(&p->attachment.ledger, slot, gpu);
	}
	visible_list(p->attachment.ledger.limits, NULL, list);
	visible_list(p->attachment.ledger.limits, "2,GPU-0,1", list);
}

static void process_drop(struct process *p)
{
	struct attachment *a = &p->attachment;

	/* A shorter reply is not taken. */
	munmap((void *)a->ledger.limits, sizeof(struct ledger_limits));
	munmap(a->ledger.header, ledger_size(GPUS, SLOTS));
	close(a->socket);
	close_fd(&a->wake);
}

static void receive(int *socket, unsigned how, struct answer *a, const uint8_t *data, size_t size)
{
	enum attach_kind kind = how & HOW_OBSERVE ? ATTACH_OBSERVE : ATTACH_WORKLOAD;
	static struct process process; /* what its table takes stays until the program ends */
	struct process *p = &process;
	char why[320] = "";

	if (attach_receive(kind, socket, &p->attachment, why, sizeof(why)) < 0) {
		if (!why[0] || strchr(why, '\n'))
			abort();
		return;
	}
	answer_change(a, data, size, LATER);
	answer_hurry(a);
	if (kind == ATTACH_WORKLOAD)
		work(p);
	process_drop(p);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct answer a;
	int pair[2];

	if (!size || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return 0;
	answer_make(&a);
	answer_change(&a, data + 1, size - 1, 0);
	answer_send(pair[0], &a, data[0]);
	receive(&pair[1], data[0], &a, data + 1, size - 1);
	munmap(a.limits.at, a.limits.size);
	munmap(a.ledger.at, a.ledger.size);
	close(a.limits.fd);
	close(a.ledger.fd);
	close_fd(&pair[0]);
	close_fd(&pair[1]);
	return 0;
}
