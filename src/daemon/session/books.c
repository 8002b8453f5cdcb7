#include "daemon/session/books.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
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

/* The kernel counts who has a file open for writing only if it was opened by its name. A process
 * that keeps the ledger asks for that count (supervisor/hoard.c). */
static int ledger_memfd(const char *session, size_t size)
{
	cleanup_close int fd = sealed_memfd("ledger", session, size, 0600);

	return fd < 0 ? fd : reopen(fd, O_RDWR);
}

static void *map_shared(int fd, size_t size)
{
	void *at = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	return at == MAP_FAILED ? NULL : at;
}

/* Keeps the numbers by which the ledger is read out of its other users' reach. The copy is what
 * is checked. */
static int shape_keep(struct books *books)
{
	books->shape = malloc(sizeof(*books->shape));
	if (!books->shape)
		return -ENOMEM;
	memcpy(books->shape, books->ledger.header, sizeof(*books->shape));
	books->ledger.shape = books->shape;
	return ledger_check(books->shape, books->ledger_size);
}

static void books_unmap(struct books *books)
{
	if (books->ledger.header)
		munmap(books->ledger.header, books->ledger_size);
	if (books->limits)
		munmap(books->limits, limits_size());
	free(books->shape);
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
	 * the mode keeps other users from opening it anew through /proc. F_SEAL_FUTURE_WRITE would
	 * bind a restarted daemon too, which could then never resize the session. */
	books.limits_rw_fd = sealed_memfd("limits", session, limits_size(), 0400);
	if (books.limits_rw_fd < 0)
		return books.limits_rw_fd;
	books.ledger_size = ledger_size(gpu_count, BOOKS_SLOTS);
	books.ledger_fd = ledger_memfd(session, books.ledger_size);
	books.limits_fd = reopen(books.limits_rw_fd, O_RDONLY);
	books.limits = map_shared(books.limits_rw_fd, limits_size());
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

/* A memfd that a daemon of this user, or of root, made, sealed as parts of a ledger are. Its mode
 * is not looked at: who may open it is the owner's to say. */
static int check_memfd(int fd, bool writable, size_t *ret_size)
{
	int seals = fcntl(fd, F_GET_SEALS), flags = fcntl(fd, F_GETFL);
	struct stat st;

	if (seals < 0 || (seals & SEALS) != SEALS ||
	    (flags & O_ACCMODE) != (writable ? O_RDWR : O_RDONLY))
		return -EPROTO;
	if (fstat(fd, &st) < 0)
		return -errno;
	if (st.st_uid != geteuid() && st.st_uid != 0)
		return -EPERM;
	*ret_size = (size_t)st.st_size;
	return 0;
}

static bool same_file(int a, int b)
{
	struct stat one, other;

	return fstat(a, &one) == 0 && fstat(b, &other) == 0 && one.st_dev == other.st_dev &&
	       one.st_ino == other.st_ino;
}

/* The descriptors that a daemon before this one had. */
static int check_all(struct books *books)
{
	size_t size = 0, view_size = 0;
	int rc = check_memfd(books->limits_rw_fd, true, &size);

	if (rc == 0)
		rc = check_memfd(books->limits_fd, false, &view_size);
	if (rc == 0)
		rc = check_memfd(books->ledger_fd, true, &books->ledger_size);
	if (rc == 0 && (size != limits_size() || !same_file(books->limits_rw_fd, books->limits_fd)))
		rc = -EPROTO;
	return rc;
}

int books_adopt(struct books *ret, const char *session, uint32_t gpu_count,
		const struct books_fds *from)
{
	struct books books = BOOKS_NONE;

	books.limits_rw_fd = from->limits_rw;
	books.limits_fd = from->limits;
	books.ledger_fd = from->ledger;
	int rc = check_all(&books);
	if (rc < 0)
		return rc;
	books.limits = map_shared(books.limits_rw_fd, limits_size());
	books.ledger.limits = books.limits;
	books.ledger.header = map_shared(books.ledger_fd, books.ledger_size);
	rc = books.limits && books.ledger.header ? ledger_limits_check(books.limits, limits_size())
						 : -ENOMEM;
	if (rc == 0)
		rc = shape_keep(&books);
	if (rc == 0 &&
	    (strcmp(books.limits->session, session) != 0 || books.limits->gpu_count != gpu_count ||
	     books.shape->gpu_count != gpu_count))
		rc = -EPROTO;
	if (rc < 0) {
		books_unmap(&books);
		return rc;
	}
	*ret = books;
	return 0;
}

void books_clear(struct books *books)
{
	books_unmap(books);
	close_fd(&books->limits_rw_fd);
	close_fd(&books->limits_fd);
	close_fd(&books->ledger_fd);
	*books = BOOKS_NONE;
}
