/* The register's file: a head of one page, a bit for each page of rights, and the pages themselves,
 * from RIGHTS_AT on. A right is two bytes: 0 (nothing was let run), the number of an attempt, or
 * OVER. Before a page becomes a hole its bit is on the disk, as a hole reads as zeros.
 *
 * A slow disk is waited for by another process, which has the file synced. Only the opening waits
 * itself. After a successful rights_synced() the disk has all that was written before
 * rights_syncing().
 *
 * An attempt is noted with the bit ASKED, and is on the disk so before it is let run. The bit is
 * taken away when the word goes out, in the kernel's memory alone, which outlives this process but
 * not the machine's boot. So the next process that finds the bit in the same boot knows that the
 * word never went out, and takes the attempt back. After another boot nobody knows, and the attempt
 * stays spent. The head says which boot it was. The file is locked while a process has it open, so
 * an attempt is taken back from a process that is gone. */
#include "warden/rights.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/macros.h"

#define FILE_NAME "rights"
#define FILE_FRESH "rights.new"
#define MAGIC 0x54484752u /* "RGHT" */
#define VERSION 1u
#define PAGE 4096u
#define OVER UINT16_MAX
#define ASKED ((uint16_t)1 << 15)
#define BOOT_SIZE 40
/* Longer than a write to a slow disk. */
#define LOCK_PATIENCE_NS 10000000000ull
#define LOCK_EVERY_MS 5
#define PAGE_RIGHTS (PAGE / sizeof(uint16_t))
#define BITS_AT PAGE
#define RIGHTS_AT ((off_t)1 << 30)
/* As many as there are bits for: some 17 million million. */
#define NUMBER_MAX ((uint64_t)(RIGHTS_AT - BITS_AT) * 8 * PAGE_RIGHTS)
/* So many numbers are reserved at a time, and the next ones when half of them are given out: they
 * are on the disk before they are needed. */
#define RESERVE (1u << 23)

struct head {
	uint32_t magic, version;
	uint64_t reserved;
	char boot[BOOT_SIZE];
};

_Static_assert((RIGHTS_ATTEMPTS_MAX | ASKED) < OVER, "an attempt and its bit");

static int put(const struct rights *r, const void *data, size_t size, off_t at)
{
	ssize_t n = pwrite(r->fd, data, size, at);

	return n < 0 ? -errno : (size_t)n == size ? 0 : -EIO;
}

/* The bytes behind the end of the file are zeros. */
static int get(const struct rights *r, void *data, size_t size, off_t at)
{
	ssize_t n = pread(r->fd, data, size, at);

	if (n < 0)
		return -errno;
	for (size_t i = (size_t)n; i < size; i++)
		((unsigned char *)data)[i] = 0;
	return 0;
}

static off_t right_at(uint64_t number)
{
	return RIGHTS_AT + (off_t)(number * sizeof(uint16_t));
}

static off_t page_at(uint64_t number)
{
	return RIGHTS_AT + (off_t)(number / PAGE_RIGHTS * PAGE);
}

static off_t byte_at(uint64_t number)
{
	return BITS_AT + (off_t)(number / PAGE_RIGHTS / 8);
}

static uint8_t bit_of(uint64_t number)
{
	return (uint8_t)(1u << number / PAGE_RIGHTS % 8);
}

static int right_get(const struct rights *r, uint64_t number, uint16_t *ret)
{
	uint8_t bits;

	/* Those were never given out. */
	if (number >= r->next)
		return -EKEYEXPIRED;
	int rc = get(r, &bits, sizeof(bits), byte_at(number));
	if (rc == 0 && bits & bit_of(number))
		*ret = OVER;
	else if (rc == 0)
		rc = get(r, ret, sizeof(*ret), right_at(number));
	if (rc == 0 && *ret != OVER)
		*ret &= (uint16_t)~ASKED;
	return rc;
}

static int right_put(struct rights *r, uint64_t number, uint16_t value)
{
	r->dirty = true;
	return put(r, &value, sizeof(value), right_at(number));
}

int rights_issue(struct rights *r, uint32_t count, uint64_t *ret_first)
{
	if (count > NUMBER_MAX - r->next)
		return -EOVERFLOW;
	if (r->next + count + RESERVE / 2 > r->reserving) {
		struct head head = {MAGIC, VERSION, r->next + count + RESERVE, {0}};
		int rc = put(r, &head, offsetof(struct head, boot), 0);

		if (rc < 0)
			return rc;
		r->reserving = head.reserved;
		r->dirty = true;
	}
	if (r->next + count > r->reserved)
		return -EAGAIN;
	*ret_first = r->next;
	r->next += count;
	return 0;
}

int rights_check(const struct rights *r, uint64_t number, uint32_t attempt, bool again)
{
	uint16_t last = 0;
	int rc = right_get(r, number, &last);

	if (rc < 0)
		return rc;
	if (last == OVER || attempt > RIGHTS_ATTEMPTS_MAX)
		return -EKEYEXPIRED;
	return attempt > last || (again && attempt == last) ? 0 : -EKEYEXPIRED;
}

int rights_spend(struct rights *r, uint64_t number, uint32_t attempt)
{
	uint16_t last = 0;
	int rc = rights_check(r, number, attempt, true);

	if (rc == 0)
		rc = right_get(r, number, &last);
	/* It was let run before, and stays so. */
	if (rc < 0 || last == attempt)
		return rc;
	return right_put(r, number, (uint16_t)attempt | ASKED);
}

int rights_let(struct rights *r, uint64_t number, uint32_t attempt)
{
	return right_put(r, number, (uint16_t)attempt);
}

/* All rights of the page are over. */
static bool page_is_over(const struct rights *r, uint64_t number)
{
	uint16_t page[PAGE_RIGHTS];

	if (get(r, page, sizeof(page), page_at(number)) < 0)
		return false;
	for (size_t i = 0; i < PAGE_RIGHTS; i++)
		if (page[i] != OVER)
			return false;
	return true;
}

static int page_end(struct rights *r, uint64_t number)
{
	uint8_t bits;
	int rc = get(r, &bits, sizeof(bits), byte_at(number));

	bits |= bit_of(number);
	if (rc == 0)
		rc = put(r, &bits, sizeof(bits), byte_at(number));
	/* Without a place it stays a page. */
	if (rc == 0 && r->over_count < RIGHTS_OVER_MOST)
		r->over[r->over_count++] = page_at(number);
	return rc;
}

/* A file system that makes no holes keeps the page. */
static void hole_make(const struct rights *r, off_t page)
{
	(void)fallocate(r->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, page, PAGE);
}

int rights_end(struct rights *r, uint64_t number)
{
	uint16_t last = OVER;
	int rc = right_get(r, number, &last);

	if (rc < 0 || last == OVER)
		return rc;
	rc = right_put(r, number, OVER);
	return rc == 0 && page_is_over(r, number) ? page_end(r, number) : rc;
}

void rights_syncing(struct rights *r)
{
	r->dirty = false;
	r->over_syncing = r->over_count;
	r->reserving_syncing = r->reserving;
}

void rights_synced(struct rights *r, int rc)
{
	if (rc < 0) {
		r->dirty = true;
		return;
	}
	r->reserved = r->reserving_syncing;
	for (unsigned i = 0; i < r->over_syncing; i++)
		hole_make(r, r->over[i]);
	r->over_count -= r->over_syncing;
	memmove(r->over, r->over + r->over_syncing, r->over_count * sizeof(r->over[0]));
	r->over_syncing = 0;
}

/* ---- the file ----------------------------------------------------------------------------- */

/* A warden that was told to end may still write what it lets run. */
static int lock_take(int fd)
{
	uint64_t until = now_monotonic_ns() + LOCK_PATIENCE_NS;

	while (flock(fd, LOCK_EX | LOCK_NB) < 0) {
		if (errno != EWOULDBLOCK || now_monotonic_ns() > until)
			return -errno;
		(void)poll(NULL, 0, LOCK_EVERY_MS);
	}
	return 0;
}

static int file_open(int dir_fd)
{
	struct stat st = {0};
	cleanup_close int fd = openat(dir_fd, FILE_NAME, O_RDWR | O_NOFOLLOW | O_CLOEXEC);
	int rc = fd < 0 ? -errno : lock_take(fd);

	if (rc == 0 && fstat(fd, &st) < 0)
		rc = -errno;
	if (rc < 0)
		return rc;
	if (!S_ISREG(st.st_mode) || st.st_uid != geteuid() || st.st_mode & 077 || st.st_nlink != 1)
		return -EPERM;
	return steal_fd(&fd);
}

static int fresh_make(int dir_fd)
{
	(void)unlinkat(dir_fd, FILE_FRESH, 0);
	cleanup_close int fd = openat(dir_fd, FILE_FRESH,
				      O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	int rc = fd < 0 ? -errno : lock_take(fd);

	return rc < 0 ? rc : steal_fd(&fd);
}

static int fresh_place(int dir_fd, int fd)
{
	if (fsync(fd) < 0 || renameat(dir_fd, FILE_FRESH, dir_fd, FILE_NAME) < 0)
		return -errno;
	return fsync(dir_fd) < 0 ? -errno : 0;
}

/* The pages that are no holes, whose attempts with ASKED count by this. */
static int page_settle(const struct rights *r, off_t at, bool same_boot)
{
	uint16_t page[PAGE_RIGHTS];
	bool changed = false;
	int rc = get(r, page, sizeof(page), at);

	for (size_t i = 0; rc == 0 && i < PAGE_RIGHTS; i++)
		if (page[i] != OVER && page[i] & ASKED) {
			page[i] = (uint16_t)((page[i] & ~ASKED) - same_boot);
			changed = true;
		}
	return rc == 0 && changed ? put(r, page, sizeof(page), at) : rc;
}

static int rights_settle(struct rights *r, struct head *head)
{
	char boot[BOOT_SIZE] = {0};
	ssize_t n = file_read("/proc/sys/kernel/random/boot_id", boot, sizeof(boot));
	bool same_boot = n > 0 && memcmp(boot, head->boot, sizeof(boot)) == 0;
	off_t at = RIGHTS_AT;
	int rc = n < 0 ? (int)n : 0;

	while (rc == 0 && (at = lseek(r->fd, at, SEEK_DATA)) >= 0) {
		at -= at % (off_t)PAGE;
		rc = page_settle(r, at, same_boot);
		at += PAGE;
	}
	if (rc == 0 && errno != ENXIO)
		rc = -errno;
	memcpy(head->boot, boot, sizeof(boot));
	return rc;
}

int rights_open(struct rights *r, int dir_fd, bool *ret_fresh)
{
	struct head head = {MAGIC, VERSION, 0, {0}};
	cleanup_close int fd = file_open(dir_fd);
	bool fresh = fd == -ENOENT;
	int rc = 0;

	if (fresh)
		fd = fresh_make(dir_fd);
	if (fd < 0)
		return fd;
	*r = (struct rights){.fd = fd};
	rc = fresh ? put(r, &head, sizeof(head), 0) : get(r, &head, sizeof(head), 0);
	if (rc == 0 && fresh)
		rc = fresh_place(dir_fd, fd);
	if (rc == 0 &&
	    (head.magic != MAGIC || head.version != VERSION || head.reserved > NUMBER_MAX))
		rc = -EUCLEAN;
	if (rc == 0)
		rc = rights_settle(r, &head);
	/* Numbers up to there may be in warrants. */
	r->next = head.reserved;
	r->reserved = r->reserving = head.reserved += RESERVE;
	if (rc == 0)
		rc = put(r, &head, sizeof(head), 0);
	if (rc == 0 && fsync(r->fd) < 0)
		rc = -errno;
	if (rc < 0)
		return rc;
	r->fd = steal_fd(&fd);
	*ret_fresh = fresh;
	return 0;
}

/* All that is no hole. */
static int data_copy(int from, int to)
{
	char block[PAGE];
	off_t at = 0;

	while ((at = lseek(from, at, SEEK_DATA)) >= 0) {
		off_t end = lseek(from, at, SEEK_HOLE);

		for (; at < end; at += PAGE) {
			ssize_t n = pread(from, block, MIN((size_t)(end - at), sizeof(block)), at);

			if (n < 0 || pwrite(to, block, (size_t)n, at) != n)
				return n < 0 ? -errno : -EIO;
		}
	}
	return errno == ENXIO ? 0 : -errno;
}

int rights_keep(struct rights *r, int dir_fd)
{
	if (faccessat(dir_fd, FILE_NAME, F_OK, AT_SYMLINK_NOFOLLOW) == 0)
		return 0;
	cleanup_close int fd = errno == ENOENT ? fresh_make(dir_fd) : -errno;
	if (fd < 0)
		return fd;
	int rc = data_copy(r->fd, fd);
	if (rc == 0)
		rc = fresh_place(dir_fd, fd);
	if (rc < 0)
		return rc;
	close_fd(&r->fd);
	r->fd = steal_fd(&fd);
	return 0;
}
