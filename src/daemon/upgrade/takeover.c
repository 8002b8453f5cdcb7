#include "daemon/upgrade/takeover.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/file.h"
#include "base/macros.h"
#include "daemon/host/keep.h"
#include "daemon/host/log.h"
#include "daemon/lease/leases.h"
#include "daemon/node.h"
#include "daemon/session/process.h"
#include "daemon/session/session.h"
#include "daemon/slicing/slicing.h"

/* The parts of a session that are kept, by name. */
#define PART_LIMITS "limits" /* as the daemon has them */
#define PART_VIEW "view"     /* as workloads are handed them */
#define PART_LEDGER SUPERVISOR_LEDGER
#define PART_WAKE "wake"
/* In place of a session: the accounts of leases. */
#define ACCOUNTS "leases"
#define PART_ACCOUNTS "accounts"
#define PART_SIZE 24 /* "mount.PID", of a command of root's */

/* ---- kept connections and calls ---------------------------------------------------------- */

static bool is_sliced(const struct node *node)
{
	bool sliced = false;

	for (uint32_t i = 0; i < node->pool.count; i++)
		sliced |= node->pool.gpu[i].mode != COMPUTE_OFF;
	return sliced;
}

static void accounts_keep(struct node *node, bool wanted)
{
	if (wanted == node->accounts_kept)
		return;
	if (wanted)
		keep_put(&node->keep, ACCOUNTS, PART_ACCOUNTS, node->accounts_fd);
	else
		keep_drop(&node->keep, ACCOUNTS, PART_ACCOUNTS);
	node->accounts_kept = wanted;
}

void takeover_keep(const struct session *s)
{
	struct keep *keep = &node_of(s)->keep;

	if (!books_exist(&s->books))
		return;
	keep_put(keep, s->record.id, PART_LIMITS, s->books.limits_rw_fd);
	keep_put(keep, s->record.id, PART_VIEW, s->books.limits_fd);
	keep_put(keep, s->record.id, PART_LEDGER, s->books.ledger_fd);
	keep_put(keep, s->record.id, PART_WAKE, s->lease ? leases_wake_fd(s->lease) : s->wake_fd);
	/* At once: a daemon may end within its first second, too. */
	if (is_sliced(node_of(s)))
		accounts_keep(node_of(s), true);
}

static void namespace_part(const struct holder *holder, char ret[static PART_SIZE])
{
	snprintf(ret, PART_SIZE, "mount.%d", (int)holder->process.pid);
}

void takeover_keep_namespace(const struct holder *holder)
{
	char part[PART_SIZE];

	namespace_part(holder, part);
	keep_put(&node_of(holder->session)->keep, holder->session->record.id, part,
		 holder->mount_fd);
}

void takeover_forget_namespace(const struct holder *holder)
{
	char part[PART_SIZE];

	namespace_part(holder, part);
	if (holder->mount_fd >= 0)
		keep_drop(&node_of(holder->session)->keep, holder->session->record.id, part);
}

void takeover_forget(const struct session *s)
{
	static const char *const parts[] = {PART_LIMITS, PART_VIEW, PART_LEDGER, PART_WAKE};

	for (size_t i = 0; i < ARRAY_SIZE(parts) && books_exist(&s->books); i++)
		keep_drop(&node_of(s)->keep, s->record.id, parts[i]);
	for (const struct holder *h = s->holders; h; h = h->next)
		takeover_forget_namespace(h);
}

/* ---- sessions of the store --------------------------------------------------------------- */

static int restore_holder(void *arg, const struct process_id *process, uint64_t more)
{
	int rc = session_holder_add(arg, process);

	return rc == -ESRCH ? 0 : rc;
}

/* The descriptor that was kept of the mount namespace of a command, which had this number; -1:
 * nothing. */
static int namespace_take(struct session *s, const struct process_id *process, uint64_t number)
{
	char part[PART_SIZE];
	struct stat st;

	snprintf(part, sizeof(part), "mount.%d", (int)process->pid);
	cleanup_close int fd = keep_take(&node_of(s)->keep, s->record.id, part);
	return fd >= 0 && number && fstat(fd, &st) == 0 && st.st_ino == number ? steal_fd(&fd) : -1;
}

static int restore_command(void *arg, const struct process_id *process, uint64_t number)
{
	struct session *s = arg;
	int rc = session_command_restore(s, process, namespace_take(s, process, number));

	if (rc != -ESRCH)
		return rc;
	(void)store_command_remove(s->sessions->store, s->record.id, process);
	return 0;
}

static int restore_one(void *arg, const struct store_session *record)
{
	struct node *node = arg;
	struct session *s;
	int rc = session_restore(&node->sessions, record, &s);

	if (rc == 0)
		rc = store_holders_each(node->store, record->id, restore_holder, s);
	if (rc == 0)
		rc = store_commands_each(node->store, record->id, restore_command, s);
	if (rc == 0)
		log_event(LOG_INFO, "session.restored id=%s uid=%u", record->id, record->uid);
	return rc;
}

/* ---- ledgers ----------------------------------------------------------------------------- */

/* The descriptors become the session's, or are closed. */
static void books_take(struct session *s, struct books_fds *fds, int wake)
{
	int rc = books_adopt(&s->books, s->record.id, s->record.gpu_count, fds);

	if (rc < 0) {
		log_event(LOG_WARNING, "ledger.rejected id=%s error=\"%s\"", s->record.id,
			  strerrordesc_np(-rc));
		close_fd(&fds->limits_rw);
		close_fd(&fds->limits);
		close_fd(&fds->ledger);
		close_fd(&wake);
		return;
	}
	s->wake_kept = wake >= 0;
	s->wake_fd = wake;
	session_set_attached(s);
	log_event(LOG_INFO, "ledger.taken_back id=%s", s->record.id);
}

static void kept_take(struct session *s)
{
	struct keep *keep = &node_of(s)->keep;
	struct books_fds fds = {
		.limits_rw = keep_take(keep, s->record.id, PART_LIMITS),
		.limits = keep_take(keep, s->record.id, PART_VIEW),
		.ledger = keep_take(keep, s->record.id, PART_LEDGER),
	};
	int wake = keep_take(keep, s->record.id, PART_WAKE);

	if (fds.limits_rw >= 0 || fds.ledger >= 0)
		books_take(s, &fds, wake);
	else
		close_fd(&wake);
}

/* ---- processes --------------------------------------------------------------------------- */

/* The process in each slot, as the daemon put it down when they attached. */
struct roster {
	bool used[LEDGER_SLOTS_MAX];
	struct process_id process[LEDGER_SLOTS_MAX];
};

static int roster_add(void *arg, const struct process_id *process, uint64_t slot)
{
	struct roster *roster = arg;

	if (slot == LEDGER_SLOT_DAEMON || slot >= LEDGER_SLOTS_MAX)
		return 0;
	roster->used[slot] = true;
	roster->process[slot] = *process;
	return 0;
}

/* A slot's words about its process are that process's, and that of any other in the session: a
 * slot that nobody was given is nobody's. */
static void slots_resume(struct session *s, const struct roster *roster)
{
	const struct ledger *ledger = &s->books.ledger;

	ledger_recover(ledger, LEDGER_SLOT_DAEMON);
	for (uint32_t slot = 1; slot < ledger->shape->slot_count; slot++) {
		if (!roster->used[slot]) {
			if (ledger_slot(ledger, slot)->state != LEDGER_SLOT_FREE)
				ledger_slot_release(ledger, slot);
			continue;
		}
		int rc = process_resume(s, slot, roster->process[slot]);
		if (rc < 0)
			log_event(LOG_ERROR, "process.lost id=%s slot=%u error=\"%s\"",
				  s->record.id, slot, strerrordesc_np(-rc));
	}
	/* A resize may have been cut off between the store and the ledger. */
	for (uint32_t i = 0; i < s->record.gpu_count; i++)
		s->books.limits->gpu[i].limit_bytes = s->record.gpu[i].bytes;
	s->books.limits->generation++;
	slicing_tell(s);
}

/* Its ledger is with its processes alone: they go on with it, and are shown; nobody else gets
 * another one, which would be a second slice, until they have ended. */
static void ledger_lost(struct session *s, const struct roster *roster)
{
	for (uint32_t slot = 1; slot < LEDGER_SLOTS_MAX; slot++)
		if (!roster->used[slot])
			continue;
		else if (process_alive(roster->process[slot]))
			session_holder_unread(s, &roster->process[slot]);
		else
			(void)store_attached_remove(s->sessions->store, s->record.id, slot);
	if (session_ledger(s) == SESSION_LEDGER_LOST)
		log_event(LOG_ERROR, "ledger.lost id=%s uid=%u", s->record.id, s->record.uid);
}

static int processes_resume(struct session *s)
{
	struct roster roster = {0};
	int rc = store_attached_each(s->sessions->store, s->record.id, roster_add, &roster);

	if (rc < 0)
		return rc;
	if (books_exist(&s->books))
		slots_resume(s, &roster);
	else
		ledger_lost(s, &roster);
	return 0;
}

/* Before the GPUs' modes are known. Without accounts turns begin anew with each daemon. */
void takeover_accounts(struct node *node)
{
	int fd = keep_take(&node->keep, ACCOUNTS, PART_ACCOUNTS);

	node->accounts_fd = leases_accounts(node->leases, fd);
	node->accounts_kept = fd >= 0 && node->accounts_fd == fd;
	if (node->accounts_fd < 0)
		log_event(LOG_WARNING, "leases.not_kept error=\"%s\"",
			  strerrordesc_np(-node->accounts_fd));
	for (uint32_t i = 0; i < node->pool.count; i++)
		leases_name(node->leases, i, node->pool.gpu[i].info.uuid_text);
}

void takeover_accounts_look(struct node *node)
{
	accounts_keep(node, node->sessions.attached && is_sliced(node));
}

/* ---- the whole --------------------------------------------------------------------------- */

int takeover_run(struct node *node)
{
	int rc = orphans_load(&node->settling);

	if (rc == 0)
		rc = store_sessions_each(node->store, false, 0, restore_one, node);
	if (rc < 0)
		return rc;
	for (struct session *s = node->sessions.first; s; s = s->next)
		kept_take(s);
	keep_taken(&node->keep);
	for (struct session *s = node->sessions.first; rc == 0 && s; s = s->next)
		rc = processes_resume(s);
	if (rc < 0)
		return rc;
	orphans_resume(&node->settling);
	for (struct session *s = node->sessions.first, *next; s; s = next) {
		next = s->next;
		session_check_held(s);
	}
	return 0;
}
