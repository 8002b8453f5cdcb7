#include "daemon/store/ends.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "daemon/store/store.h"

/* Some 600 ends of sessions on one GPU. */
#define ENDS_SIZE 65536

/* One after the other from the file's begin; a size of 0 ends them. Only this host reads them. */
struct ends_record {
	uint32_t size; /* bytes, with the peaks that are there */
	uint16_t gpu_count;
	uint16_t ended_by; /* 0 in files of versions that did not tell */
	int64_t ended, received;
	char id[STORE_ID_SIZE];
	char reason[STORE_REASON_SIZE];
	uint64_t peak[PLACE_GPUS_MAX];
};

static uint32_t record_size(uint32_t gpu_count)
{
	return (uint32_t)(offsetof(struct ends_record, peak) + gpu_count * sizeof(uint64_t));
}

/* Blocks that the file has already cost nothing again. */
static int room_take(const struct ends *ends)
{
	return -posix_fallocate(ends->fd, 0, ENDS_SIZE);
}

int ends_open(struct ends *ret, const char *path)
{
	char name[PATH_MAX];

	*ret = ENDS_NONE;
	if (snprintf(name, sizeof(name), "%s-ends", path) >= (int)sizeof(name))
		return -ENAMETOOLONG;
	ret->fd = open(name, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	return ret->fd < 0 ? -errno : room_take(ret);
}

bool ends_intact(const struct ends *ends, const char *path)
{
	char name[PATH_MAX];

	return snprintf(name, sizeof(name), "%s-ends", path) >= (int)sizeof(name) ||
	       file_is_at(ends->fd, name);
}

void ends_close(struct ends *ends)
{
	close_fd(&ends->fd);
}

static bool record_read(const struct ends *ends, struct ends_record *ret)
{
	memset(ret, 0, sizeof(*ret));
	ssize_t n = pread(ends->fd, ret, sizeof(*ret), (off_t)ends->used);
	return n >= (ssize_t)record_size(1) && ret->gpu_count >= 1 &&
	       ret->gpu_count <= PLACE_GPUS_MAX && ret->size == record_size(ret->gpu_count) &&
	       n >= (ssize_t)ret->size && !ret->id[sizeof(ret->id) - 1] &&
	       !ret->reason[sizeof(ret->reason) - 1];
}

int ends_each(struct ends *ends, ends_cb cb, void *arg)
{
	struct store_gpu gpus[PLACE_GPUS_MAX] = {0};
	struct ends_record record;
	int rc = 0;

	for (ends->used = 0; rc == 0 && ends->fd >= 0 && record_read(ends, &record);
	     ends->used += record.size) {
		struct store_session session = {
			.ended = record.ended,
			.received = record.received,
			.ended_by = (enum store_end)record.ended_by,
			.gpu_count = record.gpu_count,
			.gpu = gpus,
		};

		memcpy(session.id, record.id, sizeof(session.id));
		memcpy(session.reason, record.reason, sizeof(session.reason));
		for (uint32_t i = 0; i < record.gpu_count; i++)
			gpus[i].peak = record.peak[i];
		rc = cb(arg, &session);
	}
	return rc;
}

int ends_write(struct ends *ends, const struct store_session *session)
{
	struct ends_record record = {
		.size = record_size(session->gpu_count),
		.gpu_count = (uint16_t)session->gpu_count,
		.ended_by = (uint16_t)session->ended_by,
		.ended = session->ended,
		.received = session->received,
	};

	if (ends->fd < 0)
		return -EBADF;
	/* Behind it stays room for the size of 0. */
	if (ends->used + record.size + sizeof(record.size) > ENDS_SIZE)
		return -ENOSPC;
	memcpy(record.id, session->id, sizeof(record.id));
	memcpy(record.reason, session->reason, sizeof(record.reason));
	for (uint32_t i = 0; i < session->gpu_count; i++)
		record.peak[i] = session->gpu[i].peak;
	int rc = room_take(ends);
	if (rc < 0)
		return rc;
	ssize_t n = pwrite(ends->fd, &record, record.size, (off_t)ends->used);
	if (n != (ssize_t)record.size)
		return n < 0 ? -errno : -ENOSPC;
	ends->used += record.size;
	return 0;
}

void ends_empty(struct ends *ends)
{
	static const char zeros[ENDS_SIZE];

	if (ends->fd < 0)
		return;
	(void)room_take(ends);
	if (ends->used && pwrite(ends->fd, zeros, ends->used, 0) == (ssize_t)ends->used)
		ends->used = 0;
}
