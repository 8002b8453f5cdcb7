#include "daemon/settle/device_access.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>

#include "base/acl.h"
#include "base/clock.h"
#include "base/device_files.h"
#include "daemon/gpu/pool.h"
#include "daemon/host/log.h"
#include "daemon/host/privileges.h"
#include "daemon/session/session.h"
#include "daemon/session/sessions.h"
#include "proto/warden_devices.h"

/* A program begins without its permission after this time, and fails by itself. It is less than
 * what a client waits (cgroups.h). */
#define PATIENCE_NS 2000000000ull

/* A process that begins once its user may open the files. */
struct device_waiter {
	struct device_waiter *next;
	char session[STORE_ID_SIZE];
	struct process_id process;
	enum leaf_asker asker;
	cgroups_cb cb;
	void *context;
	uint64_t ticket;
	uint64_t until_ns; /* CLOCK_MONOTONIC */
};

/* ---- one file ---------------------------------------------------------------------------- */

/* The access list of a closed device file. */
struct list {
	uint32_t device;
	size_t size;
	char acl[ACL_SIZE_MAX];
};

/* False: the file is not there, or is open to everybody. */
static bool list_read(uint32_t device, struct list *ret)
{
	char path[DEVICE_FILE_PATH_SIZE];
	struct stat st;

	if (!device_file_path(device, path) || lstat(path, &st) < 0 || !device_file_is(&st) ||
	    !device_file_is_closed(&st))
		return false;
	ssize_t size = getxattr(path, ACL_ATTRIBUTE, ret->acl, sizeof(ret->acl));
	ret->device = device;
	ret->size = size < 0 ? 0 : (size_t)size;
	return true;
}

static bool list_has(const struct list *list, uid_t uid)
{
	struct acl_user user;
	size_t at = 0;

	while (acl_next_user(list->acl, list->size, &at, &user))
		if (user.uid == uid)
			return true;
	return false;
}

/* ---- users of a device ------------------------------------------------------------------ */

/* Whether the session is on that device's GPU. All GPUs share the others. */
static bool session_needs(const struct session *s, uint32_t device)
{
	const struct pool *pool = s->sessions->pool;

	if (s->record.uid == 0)
		return false;
	for (uint32_t i = 0; i < s->record.gpu_count; i++) {
		int gpu = s->pool_gpu[i];

		if (gpu >= 0 &&
		    (device >= DEVICE_FILES_MINORS || pool->gpu[gpu].info.minor == (int)device))
			return true;
	}
	return false;
}

/* Calls for each device of the daemon's GPUs. */
static void each_device(struct device_access *access,
			void (*call)(struct device_access *access, uint32_t device))
{
	const struct pool *pool = access->sessions->pool;

	for (uint32_t i = 0; i < pool->count; i++)
		if (pool->gpu[i].info.minor >= 0 && pool->gpu[i].claim.state == CLAIM_OURS)
			call(access, (uint32_t)pool->gpu[i].info.minor);
	for (uint32_t device = DEVICE_FILE_CONTROL; device < DEVICE_FILES_END; device++)
		call(access, device);
}

/* ---- the warden -------------------------------------------------------------------------- */

static void look(struct device_access *access);
static void waiters_go_on(struct device_access *access);

static void on_answer(void *context, int rc, const void *answer, int *fd)
{
	struct device_access *access = context;

	if (rc < 0 && !access->failed)
		log_event(LOG_WARNING, "devices.not_opened error=\"%s\"", strerrordesc_np(-rc));
	access->failed |= rc < 0;
	if (--access->asked)
		return;
	if (access->again)
		look(access);
	waiters_go_on(access);
}

static void nothing_drop(void *context)
{
}

static void ask(struct device_access *access, uint32_t device, uid_t uid, bool opens)
{
	const struct warden_device request = {.device = device, .uid = uid, .opens = opens};
	const struct warden_question question = {.operation = WARDEN_DEVICE_ACCESS,
						 .owner = uid,
						 .request = &request,
						 .size = sizeof(request)};

	access->asked += warden_link_ask(&access->sessions->privileges->warden, &question,
					 on_answer, nothing_drop, access) != 0;
}

/* ---- a look ------------------------------------------------------------------------------ */

static int by_number(const void *a, const void *b)
{
	const uid_t *one = a, *other = b;

	return (*one > *other) - (*one < *other);
}

/* The users with a session on the device, each once. *ret_count; NULL: none, or no memory. */
static uid_t *users_of(const struct sessions *sessions, uint32_t device, size_t *ret_count)
{
	uid_t *users = calloc(sessions->count + 1, sizeof(*users));
	size_t count = 0, kept = 0;

	*ret_count = 0;
	for (const struct session *s = users ? sessions->first : NULL; s; s = s->next)
		if (count < sessions->count && session_needs(s, device))
			users[count++] = s->record.uid;
	if (count)
		qsort(users, count, sizeof(*users), by_number);
	for (size_t i = 0; i < count; i++)
		if (i == 0 || users[i] != users[i - 1])
			users[kept++] = users[i];
	*ret_count = kept;
	return users;
}

static void device_look(struct device_access *access, uint32_t device)
{
	static struct list list; /* one loop, one thread */
	struct acl_user user;
	size_t count, at = 0;

	if (!list_read(device, &list))
		return;
	uid_t *users = users_of(access->sessions, device, &count);
	for (size_t i = 0; i < count; i++)
		if (!list_has(&list, users[i]))
			ask(access, device, users[i], true);
	while (users && acl_next_user(list.acl, list.size, &at, &user))
		if (user.permissions == WARDEN_DEVICE_MARK &&
		    !bsearch(&user.uid, users, count, sizeof(*users), by_number))
			ask(access, device, user.uid, false);
	free(users);
}

static void look(struct device_access *access)
{
	if (!privileges_guarded(access->sessions->privileges))
		return;
	/* The answers that are due will change the lists. */
	access->again = access->asked > 0;
	if (access->again)
		return;
	each_device(access, device_look);
	access->failed &= access->asked > 0;
}

/* ---- programs that begin ----------------------------------------------------------------- */

/* Whether the session's user may not yet open a file that the session needs. */
static bool lacks(const struct session *s)
{
	static struct list list;
	const struct pool *pool = s->sessions->pool;

	if (s->record.uid == 0)
		return false;
	for (uint32_t i = 0; i < s->record.gpu_count; i++) {
		int gpu = s->pool_gpu[i];

		if (gpu >= 0 && pool->gpu[gpu].info.minor >= 0 &&
		    list_read((uint32_t)pool->gpu[gpu].info.minor, &list) &&
		    !list_has(&list, s->record.uid))
			return true;
	}
	for (uint32_t device = DEVICE_FILE_CONTROL; device < DEVICE_FILES_END; device++)
		if (list_read(device, &list) && !list_has(&list, s->record.uid))
			return true;
	return false;
}

static void waiter_end(struct session *s, const struct device_waiter *w)
{
	int rc = s ? cgroups_bind(s, w->process, w->asker, w->cb, w->context, w->ticket) : -ESRCH;

	if (rc <= 0)
		w->cb(w->context, w->ticket,
		      rc == 0 ? NULL
		      : s     ? cgroups_bind_refusal(rc)
			      : "its session has ended");
}

static void waiters_go_on(struct device_access *access)
{
	uint64_t now = now_monotonic_ns();

	for (struct device_waiter **at = &access->waiters, *w; (w = *at);) {
		struct session *s = session_find(access->sessions, w->session);

		if (s && lacks(s) && now < w->until_ns && (access->asked || !access->failed)) {
			at = &w->next;
			continue;
		}
		*at = w->next;
		waiter_end(s, w);
		free(w);
	}
}

int device_access_bind(struct session *s, struct process_id process, enum leaf_asker asker,
		       cgroups_cb cb, void *context, uint64_t ticket)
{
	struct device_access *access = s->sessions->access;

	if (!access || !privileges_guarded(s->sessions->privileges) || !lacks(s))
		return cgroups_bind(s, process, asker, cb, context, ticket);
	struct device_waiter *w = malloc(sizeof(*w));
	if (!w)
		return -ENOMEM;
	*w = (struct device_waiter){.next = access->waiters,
				    .process = process,
				    .asker = asker,
				    .cb = cb,
				    .context = context,
				    .ticket = ticket,
				    .until_ns = now_monotonic_ns() + PATIENCE_NS};
	snprintf(w->session, sizeof(w->session), "%s", s->record.id);
	access->waiters = w;
	look(access);
	return 1;
}

void device_access_tick(struct device_access *access)
{
	look(access);
	waiters_go_on(access);
}

void device_access_free(struct device_access *access)
{
	while (access->waiters) {
		struct device_waiter *w = access->waiters;

		access->waiters = w->next;
		free(w);
	}
}
