#include "warden/mig_record.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"

#define LOCK_FILE MIG_RECORD_FILE ".lock"
#define FRESH_FILE MIG_RECORD_FILE ".new"
#define MAGIC 0x3147494du /* "MIG1" */

struct record_head {
	uint32_t magic;
	uint32_t count;
	char boot[40]; /* the kernel's boot ID */
};

_Static_assert(sizeof(struct mig_made) == 24, "the record's format");
_Static_assert(sizeof(struct record_head) == 48, "the record's format");

static int head_make(uint32_t count, struct record_head *ret)
{
	*ret = (struct record_head){.magic = MAGIC, .count = count};
	ssize_t n = file_read("/proc/sys/kernel/random/boot_id", ret->boot, sizeof(ret->boot));
	return n < 0 ? (int)n : 0;
}

static int root_file_open(int dir_fd, const char *name, int flags)
{
	struct stat st;
	cleanup_close int fd =
		openat(dir_fd, name, flags | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600);

	if (fd < 0 || fstat(fd, &st) < 0)
		return -errno;
	return S_ISREG(st.st_mode) && st.st_uid == geteuid() && !(st.st_mode & 077) &&
			       st.st_nlink == 1
		       ? steal_fd(&fd)
		       : -EPERM;
}

static int record_read(struct mig_record *record)
{
	struct record_head wanted, head;
	cleanup_close int fd = root_file_open(record->dir_fd, MIG_RECORD_FILE, O_RDONLY);
	int rc = head_make(0, &wanted);

	if (rc < 0 || fd == -ENOENT)
		return rc;
	if (fd < 0)
		return fd;
	if (read_all(fd, &head, sizeof(head)) != sizeof(head) || head.magic != MAGIC ||
	    head.count > MIG_RECORD_MAX || memcmp(head.boot, wanted.boot, sizeof(head.boot)) != 0)
		return 0;
	ssize_t size = (ssize_t)(head.count * sizeof(record->made[0]));
	if (read_all(fd, record->made, (size_t)size) != size)
		return -EIO;
	record->count = head.count;
	return 0;
}

/* The file is whole at any moment. */
static int record_write(const struct mig_record *record)
{
	struct record_head head;
	int rc = head_make(record->count, &head);

	if (rc < 0)
		return rc;
	(void)unlinkat(record->dir_fd, FRESH_FILE, 0);
	cleanup_close int fd =
		root_file_open(record->dir_fd, FRESH_FILE, O_WRONLY | O_CREAT | O_EXCL);
	if (fd < 0)
		return fd;
	rc = write_all(fd, &head, sizeof(head));
	if (rc == 0)
		rc = write_all(fd, record->made, record->count * sizeof(record->made[0]));
	if (rc == 0 && renameat(record->dir_fd, FRESH_FILE, record->dir_fd, MIG_RECORD_FILE) < 0)
		rc = -errno;
	return rc;
}

int mig_record_open(int dir_fd, struct mig_record *ret)
{
	*ret = (struct mig_record){.dir_fd = dir_fd};
	ret->lock_fd = root_file_open(dir_fd, LOCK_FILE, O_RDWR | O_CREAT);
	if (ret->lock_fd < 0)
		return ret->lock_fd;
	int rc = flock(ret->lock_fd, LOCK_EX) < 0 ? -errno : record_read(ret);
	if (rc < 0)
		mig_record_close(ret);
	return rc;
}

void mig_record_close(struct mig_record *record)
{
	close_fd(&record->lock_fd);
}

static int find(const struct mig_record *record, const struct mig_made *made)
{
	for (uint32_t i = 0; i < record->count; i++)
		if (memcmp(&record->made[i], made, sizeof(*made)) == 0)
			return (int)i;
	return -1;
}

bool mig_record_has(const struct mig_record *record, const struct mig_made *made)
{
	return find(record, made) >= 0;
}

int mig_record_add(struct mig_record *record, const struct mig_made *made)
{
	if (find(record, made) >= 0)
		return 0;
	if (record->count == MIG_RECORD_MAX)
		return -ENOSPC;
	record->made[record->count++] = *made;
	int rc = record_write(record);
	if (rc < 0)
		record->count--;
	return rc;
}

int mig_record_remove(struct mig_record *record, const struct mig_made *made)
{
	int at = find(record, made);

	if (at < 0)
		return 0;
	struct mig_made last = record->made[--record->count];
	struct mig_made old = record->made[at];
	record->made[at] = last;
	int rc = record_write(record);
	if (rc < 0) {
		record->made[at] = old;
		record->made[record->count++] = last;
	}
	return rc;
}
