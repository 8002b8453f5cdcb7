/* Leases write their accounts (lease_accounts.h), and take up those of the daemon before. All with
 * the lock held. */
#include <errno.h>
#include <stdio.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/macros.h"
#include "core/lease_left.h"
#include "daemon/lease/lease_turns.h"

int leases_accounts(struct leases *l, int kept_fd)
{
	cleanup_close int fd = kept_fd;
	struct lease_accounts *a = NULL;
	int rc = fd >= 0 ? lease_accounts_map(fd, &a) : -ENOENT;

	if (rc < 0) {
		close_fd(&fd);
		fd = lease_accounts_new();
		rc = fd < 0 ? fd : lease_accounts_map(fd, &a);
	}
	if (rc < 0)
		return rc;
	pthread_mutex_lock(&l->lock);
	l->accounts = a;
	l->accounts_fd = steal_fd(&fd);
	pthread_mutex_unlock(&l->lock);
	return l->accounts_fd;
}

void leases_name(struct leases *l, uint32_t gpu, const char *uuid)
{
	pthread_mutex_lock(&l->lock);
	snprintf(l->gpu_name[gpu], sizeof(l->gpu_name[gpu]), "%s", uuid);
	pthread_mutex_unlock(&l->lock);
}

/* ---- GPUs -------------------------------------------------------------------------------- */

static struct lease_entry *gpu_find(const struct leases *l, uint32_t gpu)
{
	if (!l->accounts || !l->gpu_name[gpu][0])
		return NULL;
	return lease_entry_find(l->accounts->gpu, LEASE_GPUS_MAX, l->gpu_name[gpu]);
}

static void gpu_write(const struct leases *l, uint32_t gpu, uint64_t now)
{
	struct lease_entry *e = gpu_find(l, gpu);

	if (!e && l->accounts && l->gpu_name[gpu][0])
		e = lease_entry_free(l->accounts->gpu, LEASE_GPUS_MAX);
	if (!e)
		return;
	lease_entry_begin(e);
	snprintf(e->name, sizeof(e->name), "%s", l->gpu_name[gpu]);
	e->count = lease_gpu_leave(l->table, gpu, now, e->numbers);
	lease_entry_end(e);
}

void turn_accounts_gpu_begin(struct leases *l, uint32_t gpu, uint64_t now)
{
	const struct lease_entry *e = gpu_find(l, gpu);

	if (e)
		(void)lease_gpu_take_up(l->table, gpu, e->numbers, e->count, now);
}

void turn_accounts_gpu_end(struct leases *l, uint32_t gpu)
{
	lease_entry_drop(gpu_find(l, gpu));
}

/* ---- members ----------------------------------------------------------------------------- */

static void member_note(const struct leases *l, struct lease_member *m, uint64_t now)
{
	struct lease_client_stat stat;

	if (lease_client_stat(l->table, m->number, now, &stat) == 0)
		m->kept = lease_kept_of(&stat);
}

void turn_accounts_join(struct leases *l, struct lease_member *m)
{
	struct lease_entry *e =
		l->accounts ? lease_entry_find(l->accounts->session, LEASE_ACCOUNTS_SESSIONS, m->id)
			    : NULL;

	m->account = e;
	if (!e)
		return;
	/* A clock that never goes back was that of the daemon before, too. */
	lease_clock_raise(&l->clock,
			  MIN(lease_client_left_at(e->numbers, e->count), now_monotonic_ns()));
	(void)lease_client_take_up(l->table, m->number, e->numbers, e->count, turns_now(l));
	member_note(l, m, turns_now(l));
	m->stalls = e->stalls;
	m->reopened = e->reopened;
	m->info.counted_from = MIN(m->info.counted_from, e->counted_from);
}

static void member_write(const struct leases *l, struct lease_member *m, uint64_t now)
{
	member_note(l, m, now);
	if (!m->account)
		m->account = lease_entry_free(l->accounts->session, LEASE_ACCOUNTS_SESSIONS);
	if (!m->account)
		return;
	struct lease_entry *e = m->account;
	lease_entry_begin(e);
	snprintf(e->name, sizeof(e->name), "%s", m->id);
	e->count = lease_client_leave(l->table, m->number, now, e->numbers);
	e->stalls = m->stalls;
	e->reopened = m->reopened;
	e->counted_from = m->info.counted_from;
	lease_entry_end(e);
}

void turn_accounts_leave(struct lease_member *m)
{
	lease_entry_drop(m->account);
	m->account = NULL;
}

void turn_accounts_write(struct leases *l, bool all, uint64_t now)
{
	uint64_t gpus = all ? l->sliced : 0;

	for (struct lease_member *m = l->members; l->accounts && m; m = m->next) {
		if (m->state == MEMBER_FREE || !(all || m->account_due))
			continue;
		m->account_due = false;
		gpus |= m->info.gpus & l->sliced;
		member_write(l, m, now);
	}
	for (; l->accounts && gpus; gpus &= gpus - 1)
		gpu_write(l, (uint32_t)__builtin_ctzll(gpus), now);
}
