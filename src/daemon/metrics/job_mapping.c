#include "daemon/metrics/job_mapping.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/fnv.h"
#include "base/macros.h"
#include "daemon/gpu/pool.h"
#include "daemon/host/log.h"
#include "daemon/metrics/metrics_config.h"
#include "daemon/metrics/text.h"
#include "daemon/session/session.h"
#include "daemon/session/sessions.h"

/* A change that could not be written is tried again after this time. */
#define RETRY_NS 10000000000ull

struct job_mapping {
	const struct sessions *sessions;
	char dir[DOOR_PATH_SIZE]; /* the directory of the files; "": none are written */
	uint64_t written;         /* the digest of the last change */
	uint64_t tried_ns;
	int error; /* -errno of the last change; 0: it was written */
	/* The change that is being written; the thread's until it is done. */
	uv_work_t work;
	bool running;
	char target[DOOR_PATH_SIZE];
	uint64_t digest;
	struct metrics_text text[GPUS_MAX];
	uint32_t index[GPUS_MAX], count;
	int result;
};

/* ---- on the thread pool -------------------------------------------------------------------- */

/* Only root or the daemon's user may write there: another user could put links in place of the
 * files. The descriptor, or -errno. */
static int directory_open_own(const char *dir)
{
	struct stat st;
	cleanup_close int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (fd < 0)
		return -errno;
	if (fstat(fd, &st) < 0)
		return -errno;
	if ((st.st_uid != 0 && st.st_uid != geteuid()) || (st.st_mode & 022))
		return -EPERM;
	return steal_fd(&fd);
}

static int text_write(int fd, const struct metrics_text *text)
{
	size_t done = 0;

	while (done < text->size) {
		ssize_t n = write(fd, text->data + done, text->size - done);

		if (n < 0 && errno != EINTR)
			return -errno;
		done += n > 0 ? (size_t)n : 0;
	}
	return fchmod(fd, 0644) < 0 ? -errno : 0;
}

/* A reader sees the old file or the new one, never a part. */
static int file_put(int dir, const char *name, const struct metrics_text *text)
{
	char part[32];

	snprintf(part, sizeof(part), ".carve-%s", name);
	(void)unlinkat(dir, part, 0);
	cleanup_close int fd =
		openat(dir, part, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
	if (fd < 0)
		return -errno;
	int rc = text_write(fd, text);
	if (rc == 0 && renameat(dir, part, dir, name) < 0)
		rc = -errno;
	if (rc < 0)
		(void)unlinkat(dir, part, 0);
	return rc;
}

static void on_work(uv_work_t *work)
{
	struct job_mapping *m = work->data;
	cleanup_close int dir = directory_open_own(m->target);
	int rc = MIN(dir, 0);

	for (uint32_t i = 0; dir >= 0 && i < m->count; i++) {
		char name[16];
		int one = 0;

		snprintf(name, sizeof(name), "%u", m->index[i]);
		if (m->text[i].size)
			one = file_put(dir, name, &m->text[i]);
		else if (unlinkat(dir, name, 0) < 0 && errno != ENOENT)
			one = -errno;
		rc = rc == 0 ? one : rc;
	}
	m->result = rc;
}

/* ---- on the loop --------------------------------------------------------------------------- */

static void texts_clear(struct job_mapping *m)
{
	for (uint32_t i = 0; i < m->count; i++)
		metrics_text_free(&m->text[i]);
	m->count = 0;
}

static void on_worked(uv_work_t *work, int status)
{
	struct job_mapping *m = work->data;

	m->running = false;
	texts_clear(m);
	m->written = m->digest;
	if (m->result != 0 && m->result != m->error)
		log_event(LOG_WARNING, "metrics.job_mapping_failed dir=%s error=\"%s\"", m->target,
			  m->result == -EPERM ? "others than root and this user may write there"
					      : strerrordesc_np(-m->result));
	m->error = m->result;
}

static uint64_t digest_of(const struct sessions *sessions)
{
	uint64_t digest = FNV_BASIS;

	for (const struct session *s = sessions->first; s; s = s->next) {
		digest = fnv_add(digest, s->record.id, strlen(s->record.id));
		for (uint32_t i = 0; i < s->record.gpu_count; i++)
			digest = fnv_add(digest, &s->pool_gpu[i], sizeof(s->pool_gpu[i]));
	}
	return digest;
}

/* A session with several instances of a GPU is there once. */
static void session_write(struct job_mapping *m, const struct session *s)
{
	uint64_t done = 0;

	for (uint32_t i = 0; i < s->record.gpu_count; i++) {
		int gpu = s->pool_gpu[i];

		if (gpu < 0 || done >> gpu & 1)
			continue;
		done |= 1ull << gpu;
		metrics_text_add(&m->text[gpu], s->record.id, strlen(s->record.id));
		metrics_text_add(&m->text[gpu], "\n", 1);
	}
}

static bool change_make(struct job_mapping *m, bool empty)
{
	const struct pool *pool = m->sessions->pool;
	bool failed = false;

	m->count = pool->count;
	for (uint32_t i = 0; i < pool->count; i++)
		m->index[i] = pool->gpu[i].info.index;
	for (const struct session *s = empty ? NULL : m->sessions->first; s; s = s->next)
		session_write(m, s);
	for (uint32_t i = 0; i < m->count; i++)
		failed |= m->text[i].failed;
	return !failed;
}

void job_mapping_tick(struct job_mapping *m, const char *dir)
{
	bool other = strcmp(dir, m->dir) != 0, leaves = other && m->dir[0];
	uint64_t now = now_monotonic_ns();

	if (m->running || (!*dir && !m->dir[0]))
		return;
	uint64_t digest = leaves ? 0 : digest_of(m->sessions);
	bool due = m->error ? now - m->tried_ns > RETRY_NS : digest != m->written;
	if (!other && !due)
		return;
	snprintf(m->target, sizeof(m->target), "%s", leaves ? m->dir : dir);
	snprintf(m->dir, sizeof(m->dir), "%s", leaves ? "" : dir);
	m->digest = digest;
	m->tried_ns = now;
	m->work.data = m;
	m->running = change_make(m, leaves) &&
		     uv_queue_work(m->sessions->loop, &m->work, on_work, on_worked) == 0;
	if (!m->running)
		texts_clear(m);
}

bool job_mapping_failed(const struct job_mapping *m)
{
	return m->error != 0;
}

struct job_mapping *job_mapping_new(const struct sessions *sessions)
{
	struct job_mapping *m = calloc(1, sizeof(*m));

	if (m)
		m->sessions = sessions;
	return m;
}

void job_mapping_free(struct job_mapping *m)
{
	free(m);
}
