#include "daemon/lease/lease_accounts.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"

#define SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)

int lease_accounts_new(void)
{
	const struct lease_accounts_head head = {.magic = LEASE_ACCOUNTS_MAGIC,
						 .version = LEASE_ACCOUNTS_VERSION,
						 .entry_size = sizeof(struct lease_entry)};
	cleanup_close int fd = memfd_create("carve-leases", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	if (fd < 0 || ftruncate(fd, (off_t)sizeof(struct lease_accounts)) < 0 ||
	    pwrite(fd, &head, sizeof(head), 0) != (ssize_t)sizeof(head) ||
	    fcntl(fd, F_ADD_SEALS, SEALS) < 0)
		return -errno;
	return steal_fd(&fd);
}

int lease_accounts_map(int fd, struct lease_accounts **ret)
{
	struct stat st;

	if (fstat(fd, &st) < 0)
		return -errno;
	if (st.st_size != (off_t)sizeof(struct lease_accounts) ||
	    (fcntl(fd, F_GET_SEALS) & SEALS) != SEALS)
		return -EPROTO;
	struct lease_accounts *a =
		mmap(NULL, sizeof(*a), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (a == MAP_FAILED)
		return -errno;
	if (a->head.magic != LEASE_ACCOUNTS_MAGIC || a->head.version != LEASE_ACCOUNTS_VERSION ||
	    a->head.entry_size != sizeof(struct lease_entry)) {
		munmap(a, sizeof(*a));
		return -EPROTO;
	}
	*ret = a;
	return 0;
}

static bool is_torn(const struct lease_entry *e)
{
	return atomic_load_explicit(&e->sequence, memory_order_acquire) & 1;
}

struct lease_entry *lease_entry_find(struct lease_entry *entries, uint32_t count, const char *name)
{
	for (uint32_t i = 0; i < count; i++)
		if (!is_torn(&entries[i]) && entries[i].count <= LEASE_LEFT_MAX &&
		    !strncmp(entries[i].name, name, sizeof(entries[i].name)))
			return &entries[i];
	return NULL;
}

struct lease_entry *lease_entry_free(struct lease_entry *entries, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++)
		if (is_torn(&entries[i]) || !entries[i].name[0])
			return &entries[i];
	return NULL;
}

void lease_entry_begin(struct lease_entry *e)
{
	uint64_t sequence = atomic_load_explicit(&e->sequence, memory_order_relaxed);

	/* A killed process has done its stores in order, if the compiler left them so. */
	atomic_store_explicit(&e->sequence, sequence | 1, memory_order_relaxed);
	atomic_thread_fence(memory_order_seq_cst);
}

void lease_entry_end(struct lease_entry *e)
{
	uint64_t sequence = atomic_load_explicit(&e->sequence, memory_order_relaxed);

	atomic_store_explicit(&e->sequence, (sequence | 1) + 1, memory_order_release);
}

void lease_entry_drop(struct lease_entry *e)
{
	if (!e)
		return;
	lease_entry_begin(e);
	e->name[0] = '\0';
	lease_entry_end(e);
}
