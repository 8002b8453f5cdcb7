/* A ledger that was kept, taken up again. Processes may have written anything into it, and there
 * may be any descriptors. It is refused, or what was taken is within its bounds; and no descriptor
 * is lost.
 *
 * An input is a byte that says how the descriptors are (enum how), then pieces that are written
 * over a ledger that is right. Each piece has a byte that says where, two for the offset there, one
 * for the length, then bytes. */
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/file.h"
#include "base/macros.h"
#include "daemon/session/books.h"

#define SESSION "s-fuzz01"
#define SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum how {
	HOW_SWAPPED = 0x01,
	HOW_UNSEALED = 0x02,
	HOW_SHORT_LIMITS = 0x04,
	HOW_SHORT_LEDGER = 0x08,
	HOW_READ_ONLY = 0x10,
	HOW_OTHER_VIEW = 0x20,
	HOW_NONE = 0x40, /* one is missing */
};

static void check(int right)
{
	if (!right)
		abort();
}

struct part {
	int fd;
	size_t size;
	char *at;
};

static struct part part_make(const char *name, size_t size)
{
	struct part part = {.fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING),
			    .size = size};

	check(part.fd >= 0 && ftruncate(part.fd, (off_t)size) == 0);
	part.at = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, part.fd, 0);
	check(part.at != MAP_FAILED);
	return part;
}

static int view_of(int fd)
{
	char path[32];

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	return open(path, O_RDONLY | O_CLOEXEC);
}

static void right_fill(const struct part *limits_part, const struct part *ledger_part)
{
	struct ledger_limits *limits = (void *)limits_part->at;

	limits->magic = LEDGER_LIMITS_MAGIC;
	limits->version = limits->version_oldest = LEDGER_VERSION;
	limits->size = (uint32_t)limits_part->size;
	limits->gpu_count = 1;
	snprintf(limits->session, sizeof(limits->session), SESSION);
	ledger_init((void *)ledger_part->at, 1, BOOKS_SLOTS);
}

static void pieces_write(const struct part parts[2], const uint8_t *data, size_t size)
{
	while (size > 4) {
		const struct part *part = &parts[data[0] & 1];
		size_t offset = (size_t)(data[1] | data[2] << 8);
		size_t length = MIN(data[3], size - 4);

		if (offset + length <= part->size)
			memcpy(part->at + offset, data + 4, length);
		data += 4 + length;
		size -= 4 + length;
	}
}

static struct books_fds fds_make(const struct part parts[2], unsigned how)
{
	int limits = parts[how & HOW_SWAPPED ? 1 : 0].fd,
	    ledger = parts[how & HOW_SWAPPED ? 0 : 1].fd;

	if (how & HOW_SHORT_LIMITS)
		check(ftruncate(parts[0].fd, 100) == 0);
	if (how & HOW_SHORT_LEDGER)
		check(ftruncate(parts[1].fd, sizeof(struct ledger_header)) == 0);
	for (int i = 0; !(how & HOW_UNSEALED) && i < 2; i++)
		fcntl(parts[i].fd, F_ADD_SEALS, SEALS);
	return (struct books_fds){
		.limits_rw = how & HOW_READ_ONLY ? view_of(limits) : dup(limits),
		.limits = how & HOW_NONE ? -1 : view_of(how & HOW_OTHER_VIEW ? ledger : limits),
		.ledger = dup(ledger),
	};
}

static void use(const struct books *books)
{
	uint64_t sum = 0;

	check(books_exist(books) && books->shape->slot_count <= LEDGER_SLOTS_MAX);
	for (uint32_t slot = 0; slot < books->shape->slot_count; slot++) {
		ledger_recover(&books->ledger, slot);
		sum += ledger_slot_bytes(&books->ledger, slot, 0);
	}
	(void)sum;
	ledger_slot_release(&books->ledger, 1);
}

static int lowest_free(void)
{
	int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);

	close(fd);
	return fd;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	/* The fuzzer has descriptors of its own, which come and go between inputs. */
	int lowest = lowest_free();
	const struct part parts[] = {
		part_make("limits", ALIGN_UP(sizeof(struct ledger_limits), 4096)),
		part_make("ledger", ledger_size(1, BOOKS_SLOTS))};
	struct books books = BOOKS_NONE;

	right_fill(&parts[0], &parts[1]);
	if (size)
		pieces_write(parts, data + 1, size - 1);
	struct books_fds fds = fds_make(parts, size ? data[0] : 0);
	if (books_adopt(&books, SESSION, 1, &fds) == 0) {
		check(!(size && data[0] & 0x7f));
		use(&books);
		books_clear(&books);
	} else {
		close_fd(&fds.limits_rw);
		close_fd(&fds.limits);
		close_fd(&fds.ledger);
	}
	for (int i = 0; i < 2; i++) {
		munmap(parts[i].at, parts[i].size);
		close(parts[i].fd);
	}
	check(lowest_free() == lowest);
	return 0;
}
