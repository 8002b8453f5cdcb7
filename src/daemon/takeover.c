#include "daemon/takeover.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/macros.h"
#include "daemon/handover.h"
#include "daemon/leases.h"
#include "daemon/log.h"
#include "daemon/node.h"
#include "daemon/process.h"
#include "daemon/session.h"
#include "daemon/slicing.h"

/* "/memfd:carve-ledger:s-abc123 (deleted)" is what /proc calls an open ledger. */
#define LEDGER_LINK "/memfd:carve-ledger:"
#define LIMITS_LINK "/memfd:carve-limits:"
#define PROC_PATH_SIZE 64

/* ---- sessions of the store --------------------------------------------------------------- */

static int restore_holder(void *arg, const struct process_id *process, uint64_t more)
{
	int rc = session_holder_add(arg, process);

	return rc == -ESRCH ? 0 : rc;
}

static int restore_command(void *arg, const struct process_id *process, uint64_t mount_namespace)
{
	struct session *s = arg;
	int rc = session_command_restore(s, process, mount_namespace);

	if (rc != -ESRCH)
		return rc;
	(void)store_command_remove(s->node->store, s->record.id, process);
	return 0;
}

static int restore_one(void *arg, const struct store_session *record)
{
	struct node *node = arg;
	struct session *s;
	int rc = session_restore(node, record, &s);

	if (rc == 0)
		rc = store_holders_each(node->store, record->id, restore_holder, s);
	if (rc == 0)
		rc = store_commands_each(node->store, record->id, restore_command, s);
	if (rc == 0)
		log_event(LOG_INFO, "session.restored id=%s uid=%u", record->id, record->uid);
	return rc;
}

/* ---- ledgers of living processes --------------------------------------------------------- */

/* The session that a link of /proc belongs to; NULL: it is none of ours. */
static struct session *session_of_link(const struct node *node, const char *link,
				       const char *prefix)
{
	char id[STORE_ID_SIZE];

	if (strncmp(link, prefix, strlen(prefix)) != 0)
		return NULL;
	snprintf(id, sizeof(id), "%.*s", (int)strcspn(link + strlen(prefix), " "),
		 link + strlen(prefix));
	return session_find(node, id);
}

struct found {
	struct session *session;
	char ledger[PROC_PATH_SIZE], limits[PROC_PATH_SIZE];
};

static void adopt(struct found *found)
{
	struct session *s = found->session;

	if (!s || books_exist(&s->books) || !found->ledger[0] || !found->limits[0])
		return;
	int rc = books_adopt(&s->books, s->record.id, s->record.gpu_count, found->limits,
			     found->ledger);
	if (rc < 0) {
		log_event(LOG_WARNING, "ledger.rejected id=%s from=%s error=\"%s\"", s->record.id,
			  found->ledger, strerrordesc_np(-rc));
		return;
	}
	session_set_attached(s);
	session_ledger_found(s);
	log_event(LOG_INFO, "ledger.taken_back id=%s from=%s", s->record.id, found->ledger);
}

/* Looks through one folder of links (/proc/PID/fd or map_files) for the two parts of one session. A
 * process of several sessions is met in others of theirs, too: each pair is looked for by itself.
 */
static void links_scan(const struct node *node, const char *folder)
{
	DIR *dir = opendir(folder);
	struct found found = {0};
	struct dirent *entry;
	char path[PROC_PATH_SIZE + 256], link[128];

	if (!dir)
		return;
	while ((entry = readdir(dir)) != NULL) { // NOLINT(concurrency-mt-unsafe): one thread has it
		snprintf(path, sizeof(path), "%s/%s", folder, entry->d_name);
		ssize_t n = readlink(path, link, sizeof(link) - 1);
		if (n < 0 || strlen(path) >= PROC_PATH_SIZE)
			continue;
		link[n] = '\0';
		struct session *ledger = session_of_link(node, link, LEDGER_LINK);
		struct session *limits = session_of_link(node, link, LIMITS_LINK);
		struct session *s = ledger ? ledger : limits;
		if (!s)
			continue;
		if (s != found.session)
			found = (struct found){.session = s};
		snprintf(ledger ? found.ledger : found.limits, PROC_PATH_SIZE, "%s", path);
		adopt(&found);
	}
	closedir(dir);
}

/* Whoever makes a memfd names it. Where it can be seen whose it is (by root), it has to be the
 * daemon's. The line begins with the range that it is mapped at: "START-END ". */
static bool may_be_ours(const char *maps, const char *line)
{
	char *rest, path[PROC_PATH_SIZE];
	uint64_t start = strtoull(line, &rest, 16);
	uint64_t end = strtoull(rest + (*rest == '-'), NULL, 16);
	struct stat st;

	snprintf(path, sizeof(path), "%.*s/map_files/%" PRIx64 "-%" PRIx64,
		 (int)(strrchr(maps, '/') - maps), maps, start, end);
	return stat(path, &st) < 0 || st.st_uid == geteuid();
}

/* Calls `cb` with the session of each ledger that a process has mapped, until one returns true. */
static bool maps_each(const struct node *node, const char *path,
		      bool (*cb)(struct session *session, const void *arg), const void *arg)
{
	char line[512];
	bool found = false;
	FILE *file = fopen(path, "re");

	if (!file)
		return false;
	while (!found && fgets(line, sizeof(line), file)) {
		const char *link = strstr(line, LEDGER_LINK);
		struct session *s = link ? session_of_link(node, link, LEDGER_LINK) : NULL;

		found = s && may_be_ours(path, line) && cb(s, arg);
	}
	fclose(file);
	return found;
}

/* Sessions whose ledger a process has mapped though no descriptor to it could be opened. */
static void lost_in(struct session *s, const struct process_id *process)
{
	if (!s->lost)
		log_event(LOG_ERROR, "ledger.out_of_reach id=%s pid=%d", s->record.id,
			  (int)process->pid);
	session_holder_unread(s, process);
}

static bool note_lost(struct session *s, const void *arg)
{
	struct process_id process;

	if (!books_exist(&s->books) && process_identify(*(const pid_t *)arg, &process) == 0)
		lost_in(s, &process);
	return false;
}

static bool is_session(struct session *s, const void *arg)
{
	return s == arg;
}

/* Nobody but root may look at what a process that is not dumpable has mapped. */
static bool is_closed(const char *maps)
{
	cleanup_close int fd = open(maps, O_RDONLY | O_CLOEXEC);

	return fd < 0 && (errno == EACCES || errno == EPERM);
}

/* Who started it: a set-user-ID program's user. False: it is gone. */
static bool process_user(pid_t pid, uid_t *ret)
{
	char path[PROC_PATH_SIZE], text[4096];

	snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
	const char *line = file_read(path, text, sizeof(text)) < 0 ? NULL : strstr(text, "\nUid:");
	if (!line)
		return false;
	*ret = (uid_t)strtoul(line + strlen("\nUid:"), NULL, 10);
	return true;
}

/* Whether the process that a slot names really is one of the session: the ledger is written by
 * others too, and who is named there is watched, and signalled when the session is ended by force.
 * Where it does not let itself be looked at, it has to be of the session's user, who could signal
 * it himself.
 */
static bool slot_is_true(const struct session *s, uint32_t slot)
{
	pid_t pid = ledger_slot(&s->books.ledger, slot)->pid;
	char path[PROC_PATH_SIZE];
	uid_t uid;

	snprintf(path, sizeof(path), "/proc/%d/maps", (int)process_thread(pid));
	if (is_closed(path))
		return process_user(pid, &uid) && uid == s->record.uid;
	return maps_each(s->node, path, is_session, s);
}

bool takeover_has_no_ledger(const struct session *s, pid_t pid)
{
	cleanup_close int image = process_image_open(pid);
	char path[PROC_PATH_SIZE];

	snprintf(path, sizeof(path), "/proc/%d/maps", (int)process_thread(pid));
	return image >= 0 && !maps_each(s->node, path, is_session, s);
}

static void processes_scan(const struct node *node)
{
	DIR *dir = opendir("/proc");
	struct dirent *entry;
	char path[PROC_PATH_SIZE];

	if (!dir)
		return;
	while ((entry = readdir(dir)) != NULL) { // NOLINT(concurrency-mt-unsafe): one thread has it
		pid_t pid = (pid_t)strtol(entry->d_name, NULL, 10);

		if (!isdigit((unsigned char)entry->d_name[0]) || pid == getpid())
			continue;
		pid_t thread = process_thread(pid);
		snprintf(path, sizeof(path), "/proc/%d/fd", (int)thread);
		links_scan(node, path);
		/* A program may have closed the front's descriptors; what it has mapped can be
		 * opened by root only. */
		snprintf(path, sizeof(path), "/proc/%d/map_files", (int)thread);
		links_scan(node, path);
		snprintf(path, sizeof(path), "/proc/%d/maps", (int)thread);
		(void)maps_each(node, path, note_lost, &pid);
	}
	closedir(dir);
}

/* ---- ledgers that were left over an upgrade ----------------------------------------------- */

static void turns_leave(const struct node *node, struct handover *h)
{
	for (uint32_t i = 0; i < node->pool.count; i++)
		handover_add(h, "turns",
			     json_pack("{s:s, s:o}", "uuid", node->pool.gpu[i].info.uuid_text,
				       "account", leases_leave_gpu(node->leases, i)));
}

static void left_leave(struct handover *h, const struct process *p)
{
	json_t *left =
		json_pack("{s:s, s:i}", "session", p->session->record.id, "slot", (int)p->slot);

	if (p->image_fd >= 0)
		json_object_set_new(left, "image", handover_fd(h, p->image_fd));
	handover_add(h, "left", left);
}

void takeover_leave(const struct node *node, struct handover *h)
{
	turns_leave(node, h);
	for (const struct session *s = node->sessions; s; s = s->next) {
		handover_add(h, "sessions",
			     json_pack("{s:s, s:I}", "id", s->record.id, "counted_from",
				       (json_int_t)s->counted_from));
		if (s->lost)
			handover_add(h, "lost", json_string(s->record.id));
		if (!books_exist(&s->books))
			continue;
		json_t *books = json_pack("{s:s, s:o, s:o}", "session", s->record.id, "limits",
					  handover_fd(h, s->books.limits_fd), "ledger",
					  handover_fd(h, s->books.ledger_fd));
		if (s->lease) {
			json_object_set_new(books, "wake",
					    handover_fd(h, leases_wake_fd(s->lease)));
			json_object_set_new(books, "lease",
					    leases_leave_member(node->leases, s->lease));
		}
		handover_add(h, "books", books);
		for (const struct process *p = s->processes; p; p = p->next)
			if (p->left)
				left_leave(h, p);
	}
}

static struct session *session_named_by(const struct node *node, const json_t *id)
{
	return json_is_string(id) ? session_find(node, json_string_value(id)) : NULL;
}

static void books_take(struct node *node, const json_t *from)
{
	cleanup_close int limits = handover_take(node->handover, json_object_get(from, "limits"));
	cleanup_close int ledger = handover_take(node->handover, json_object_get(from, "ledger"));
	cleanup_close int wake = handover_take(node->handover, json_object_get(from, "wake"));
	struct found found = {.session = session_named_by(node, json_object_get(from, "session"))};

	if (!found.session || limits < 0 || ledger < 0)
		return;
	snprintf(found.limits, sizeof(found.limits), "/proc/self/fd/%d", limits);
	snprintf(found.ledger, sizeof(found.ledger), "/proc/self/fd/%d", ledger);
	found.session->wake_kept = wake >= 0;
	found.session->wake_fd = steal_fd(&wake);
	adopt(&found);
	if (found.session->lease)
		leases_take_up_member(node->leases, found.session->lease,
				      json_object_get(from, "lease"));
	/* Its processes go on with a ledger that this program cannot read: there must be no second
	 * one. */
	found.session->lost = !books_exist(&found.session->books);
}

static void turns_take_all(struct node *node)
{
	size_t i;
	json_t *item;

	json_array_foreach(json_object_get(node->handover->root, "turns"), i, item)
	{
		const char *uuid = json_string_value(json_object_get(item, "uuid"));
		int position = uuid ? pool_find(&node->pool, uuid) : -1;

		if (position >= 0)
			leases_take_up_gpu(node->leases, (uint32_t)position,
					   json_object_get(item, "account"));
	}
	json_array_foreach(json_object_get(node->handover->root, "sessions"), i, item)
	{
		struct session *s = session_named_by(node, json_object_get(item, "id"));
		json_int_t from = json_integer_value(json_object_get(item, "counted_from"));

		if (s && from >= s->record.created)
			s->counted_from = from;
	}
}

/* Instead of looking for them in other processes: the last program named them all. */
static void books_take_all(struct node *node)
{
	size_t i;
	json_t *item;

	json_array_foreach(json_object_get(node->handover->root, "books"), i, item)
		books_take(node, item);
	json_array_foreach(json_object_get(node->handover->root, "lost"), i, item)
	{
		struct session *s = session_named_by(node, item);

		if (s)
			s->lost = true;
	}
}

/* What it ran when it attached: by now it may be another program, which has the ledger too. */
static void image_take(struct process *p, int fd)
{
	if (fd < 0)
		return;
	close_fd(&p->image_fd);
	p->image_fd = fd;
}

static void left_take_all(const struct node *node)
{
	size_t i;
	json_t *item;

	json_array_foreach(json_object_get(node->handover->root, "left"), i, item)
	{
		const struct session *s = session_named_by(node, json_object_get(item, "session"));
		json_int_t slot = json_integer_value(json_object_get(item, "slot"));

		for (struct process *p = s ? s->processes : NULL; p; p = p->next)
			if (p->slot == slot && !p->dead) {
				image_take(p, handover_take(node->handover,
							    json_object_get(item, "image")));
				process_disconnected(p);
			}
	}
}

/* ---- slots ------------------------------------------------------------------------------- */

static void books_resume(struct session *s)
{
	struct ledger *ledger = &s->books.ledger;

	ledger_recover(ledger, LEDGER_SLOT_DAEMON);
	for (uint32_t slot = 1; slot < ledger->shape->slot_count; slot++) {
		if (ledger_slot(ledger, slot)->state == LEDGER_SLOT_FREE)
			continue;
		int rc = process_resume(s, slot, slot_is_true(s, slot));
		if (rc < 0)
			log_event(LOG_ERROR, "process.lost id=%s slot=%u error=\"%s\"",
				  s->record.id, slot, strerrordesc_np(-rc));
	}
	/* A resize may have been cut off between the store and the ledger. */
	for (uint32_t i = 0; i < s->record.gpu_count; i++)
		s->books.limits->gpu[i].limit_bytes = s->record.gpu[i].bytes;
	/* Over an upgrade the connections stay: there is nothing for the processes to resume. */
	if (!s->node->handover)
		s->books.limits->generation++;
	slicing_tell(s);
}

struct attached_look {
	struct session *session;
	uint32_t gone[LEDGER_SLOTS_MAX], gone_count;
};

/* One that was attached, and that the ledger could not be had from: it lives, and cannot be looked
 * at, or has the ledger mapped. */
static int attached_look_at(void *arg, const struct process_id *process, uint64_t slot)
{
	struct attached_look *look = arg;
	struct session *s = look->session;
	char maps[PROC_PATH_SIZE];

	snprintf(maps, sizeof(maps), "/proc/%d/maps", (int)process_thread(process->pid));
	if (!process_alive(*process)) {
		if (look->gone_count < LEDGER_SLOTS_MAX)
			look->gone[look->gone_count++] = (uint32_t)slot;
	} else if (!books_exist(&s->books) &&
		   (is_closed(maps) || maps_each(s->node, maps, is_session, s))) {
		lost_in(s, process);
	}
	return 0;
}

static int attached_look_all(struct session *s)
{
	struct attached_look look = {.session = s};
	int rc = store_attached_each(s->node->store, s->record.id, attached_look_at, &look);

	for (uint32_t i = 0; rc == 0 && i < look.gone_count; i++)
		(void)store_attached_remove(s->node->store, s->record.id, look.gone[i]);
	return rc;
}

void takeover_ledger(struct session *s, int limits, int ledger)
{
	struct found found = {.session = s};

	if (!books_sealed(limits) || !books_sealed(ledger))
		return;
	snprintf(found.limits, sizeof(found.limits), "/proc/self/fd/%d", limits);
	snprintf(found.ledger, sizeof(found.ledger), "/proc/self/fd/%d", ledger);
	adopt(&found);
	if (books_exist(&s->books))
		books_resume(s);
}

int takeover_run(struct node *node)
{
	int rc = orphans_load(node);

	if (rc == 0)
		rc = store_sessions_each(node->store, false, 0, restore_one, node);
	if (rc < 0 || !node->sessions)
		return rc;
	if (node->handover) {
		turns_take_all(node);
		books_take_all(node);
	} else {
		processes_scan(node);
	}
	for (struct session *s = node->attached; s; s = s->next_attached)
		books_resume(s);
	if (node->handover)
		left_take_all(node);
	for (struct session *s = node->sessions; rc == 0 && s; s = s->next)
		rc = attached_look_all(s);
	if (rc < 0)
		return rc;
	orphans_resume(node);
	for (struct session *s = node->sessions, *next; s; s = next) {
		next = s->next;
		if (!s->lost)
			session_check_held(s);
	}
	return 0;
}
