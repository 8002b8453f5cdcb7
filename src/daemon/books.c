#include "daemon/books.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#include "base/file.h"
#include "base/macros.h"

#define SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)

static size_t limits_size(void)
{
	return ALIGN_UP(sizeof(struct ledger_limits), 4096);
}

/* A memfd of fixed size: a client that truncated it would kill the daemon by SIGBUS. */
static int sealed_memfd(const char *kind, const char *session, size_t size, mode_t mode)
{
	char name[32 + LEDGER_SESSION_SIZE];

	snprintf(name, sizeof(name), "carve-%s:%s", kind, session);
	cleanup_close int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (fd < 0 || ftruncate(fd, (off_t)size) < 0 || fchmod(fd, mode) < 0 ||
	    fcntl(fd, F_ADD_SEALS, SEALS) < 0)
		return -errno;
	return steal_fd(&fd);
}

/* The same file through a descriptor of another mode. */
static int reopen(int fd, int flags)
{
	char path[32];

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	int other = open(path, flags | O_CLOEXEC);
	return other < 0 ? -errno : other;
}

static void *map_shared(int fd, size_t size)
{
	void *at = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	return at == MAP_FAILED ? NULL : at;
}

/* Keeps the numbers by which the ledger is read out of its other users' reach. What is copied is
 * what is checked. */
static int shape_keep(struct books *books)
{
	books->shape = malloc(sizeof(*books->shape));
	if (!books->shape)
		return -ENOMEM;
	memcpy(books->shape, books->ledger.header, sizeof(*books->shape));
	books->ledger.shape = books->shape;
	return ledger_check(books->shape, books->ledger_size);
}

static void limits_fill(struct ledger_limits *limits, const char *session,
			const struct books_gpu *gpus, uint32_t gpu_count)
{
	limits->version = LEDGER_VERSION;
	limits->version_oldest = LEDGER_VERSION;
	limits->size = (uint32_t)limits_size();
	limits->gpu_count = gpu_count;
	snprintf(limits->session, sizeof(limits->session), "%s", session);
	limits->generation = 1;
	for (uint32_t i = 0; i < gpu_count; i++) {
		struct ledger_limit *to = &limits->gpu[i];

		memcpy(to->uuid, gpus[i].uuid, sizeof(to->uuid));
		to->limit_bytes = gpus[i].limit_bytes;
		to->context_bytes = gpus[i].context_bytes;
		snprintf(to->pci_bus_id, sizeof(to->pci_bus_id), "%s", gpus[i].pci_bus_id);
		snprintf(to->uuid_text, sizeof(to->uuid_text), "%s", gpus[i].uuid_text);
	}
	limits->magic = LEDGER_LIMITS_MAGIC;
}

int books_create(struct books *ret, const char *session, const struct books_gpu *gpus,
		 uint32_t gpu_count)
{
	struct books books = BOOKS_NONE;
	/* Nobody but the daemon may write the limits. The descriptor handed out is read-only, and
	 * the mode keeps other users from opening it anew through /proc; F_SEAL_FUTURE_WRITE would
	 * bind a restarted daemon too, which could then never resize the session. */
	cleanup_close int limits_rw = sealed_memfd("limits", session, limits_size(), 0400);
	if (limits_rw < 0)
		return limits_rw;
	books.ledger_size = ledger_size(gpu_count, BOOKS_SLOTS);
	books.ledger_fd = sealed_memfd("ledger", session, books.ledger_size, 0600);
	books.limits_fd = reopen(limits_rw, O_RDONLY);
	books.limits = map_shared(limits_rw, limits_size());
	books.ledger.limits = books.limits;
	if (books.ledger_fd >= 0)
		books.ledger.header = map_shared(books.ledger_fd, books.ledger_size);
	if (books.limits_fd < 0 || !books.limits || !books.ledger.header) {
		int why = MIN(books.ledger_fd, books.limits_fd);

		books_clear(&books);
		return why < 0 ? why : -ENOMEM;
	}
	limits_fill(books.limits, session, gpus, gpu_count);
	ledger_init(books.ledger.header, gpu_count, BOOKS_SLOTS);
	int rc = shape_keep(&books);
	if (rc < 0) {
		books_clear(&books);
		return rc;
	}
	*ret = books;
	return 0;
}

/* The path is of another process, which may have put anything there: only what may be a memfd is
 * opened, as opening others can do something. -errno. */
static int open_memory(const char *path)
{
	cleanup_close int at = open(path, O_PATH | O_CLOEXEC);
	struct statfs fs;
	struct stat st;

	if (at < 0 || fstat(at, &st) < 0 || fstatfs(at, &fs) < 0)
		return -errno;
	if (!S_ISREG(st.st_mode) || st.st_nlink || fs.f_type != TMPFS_MAGIC)
		return -EPROTO;
	return reopen(at, O_RDWR);
}

/* The limits' mode shuts out their owner too, where that is not root: open it up for a moment. */
static int open_limits(const char *path)
{
	int fd = open_memory(path);

	if (fd == -EACCES && chmod(path, 0600) == 0) {
		fd = open_memory(path);
		(void)chmod(path, 0400);
	}
	return fd;
}

static int check_memfd(int fd, size_t *ret_size)
{
	struct stat st;
	int seals = fcntl(fd, F_GET_SEALS);

	if (seals < 0 || (seals & SEALS) != SEALS)
		return -EPROTO;
	if (fstat(fd, &st) < 0)
		return -errno;
	if (st.st_uid != geteuid())
		return -EPERM;
	*ret_size = (size_t)st.st_size;
	return 0;
}

bool books_sealed(int fd)
{
	size_t size;

	return check_memfd(fd, &size) == 0;
}

int books_adopt(struct books *ret, const char *session, uint32_t gpu_count, const char *limits_path,
		const char *ledger_path)
{
	struct books books = BOOKS_NONE;
	size_t size = 0;
	cleanup_close int limits_rw = open_limits(limits_path);
	int rc = limits_rw < 0 ? limits_rw : check_memfd(limits_rw, &size);

	if (rc == 0 && size != limits_size())
		rc = -EPROTO;
	if (rc < 0)
		return rc;
	books.ledger_fd = open_memory(ledger_path);
	books.limits_fd = reopen(limits_rw, O_RDONLY);
	books.limits = map_shared(limits_rw, limits_size());
	books.ledger.limits = books.limits;
	if (books.ledger_fd < 0 || books.limits_fd < 0 || !books.limits)
		rc = -ENOENT;
	if (rc == 0)
		rc = check_memfd(books.ledger_fd, &books.ledger_size);
	if (rc == 0 && !(books.ledger.header = map_shared(books.ledger_fd, books.ledger_size)))
		rc = -ENOMEM;
	if (rc == 0)
		rc = ledger_limits_check(books.limits, limits_size());
	if (rc == 0)
		rc = shape_keep(&books);
	if (rc == 0 &&
	    (strcmp(books.limits->session, session) != 0 || books.limits->gpu_count != gpu_count ||
	     books.shape->gpu_count != gpu_count))
		rc = -EPROTO;
	if (rc < 0) {
		books_clear(&books);
		return rc;
	}
	*ret = books;
	return 0;
}

void books_clear(struct books *books)
{
	if (books->ledger.header)
		munmap(books->ledger.header, books->ledger_size);
	if (books->limits)
		munmap(books->limits, limits_size());
	free(books->shape);
	close_fd(&books->limits_fd);
	close_fd(&books->ledger_fd);
	*books = BOOKS_NONE;
}

uint32_t books_slot_free(const struct books *books)
{
	for (uint32_t slot = 1; slot < books->shape->slot_count; slot++)
		if (ledger_slot(&books->ledger, slot)->state == LEDGER_SLOT_FREE)
			return slot;
	return 0;
}
