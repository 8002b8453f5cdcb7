#include "daemon/host/names.h"

#include <errno.h>
#include <grp.h>
#include <pwd.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <uv.h>

#include "base/clock.h"

#define ENTRIES 256u
#define RECORD_SIZE 16384

enum entry_state { EMPTY, ASKED, KNOWN, NOBODY };

struct entry {
	enum entry_state state;
	enum names_kind kind;
	uint32_t id;
	char name[NAMES_SIZE];
	char text[NAMES_SIZE]; /* by ID: as it is shown */
	uint64_t since_ns;     /* when the answer came: KNOWN, NOBODY */
	struct timespec file;  /* when the file had changed last as it was read */
};

struct look {
	uv_work_t work;
	bool running;
	struct entry entry;
};

struct waiting {
	struct waiting *next;
	names_cb cb;
	void *arg;
};

/* All of the loop's thread. */
static struct entry by_id[ENTRIES], by_name[ENTRIES];
static struct look id_look, name_look;
static bool some_asked;
static struct waiting *waiting, *answered; /* no answer yet; being called back */

/* ---- the machine's own files ------------------------------------------------------------- */

static bool is_meant(const struct entry *e, bool named, const char *name, uint32_t id)
{
	return named ? !strcmp(name, e->name) : id == e->id;
}

static void found(struct entry *e, const char *name, uint32_t id)
{
	snprintf(e->name, sizeof(e->name), "%s", name);
	e->id = id;
	e->state = KNOWN;
}

static const char *file_of(enum names_kind kind)
{
	return kind == NAMES_OF_USERS ? "/etc/passwd" : "/etc/group";
}

/* The time at which the file's inode changed: a file that is renamed into its place has another. */
static struct timespec file_changed(enum names_kind kind)
{
	struct stat st;

	return stat(file_of(kind), &st) < 0 ? (struct timespec){0} : st.st_ctim;
}

/* By its name or its ID. */
static void file_find(struct entry *e, bool named)
{
	FILE *file = fopen(file_of(e->kind), "re");
	struct passwd user, *u = NULL;
	struct group group, *g = NULL;
	char record[RECORD_SIZE];

	while (file && e->kind == NAMES_OF_USERS && e->state != KNOWN &&
	       fgetpwent_r(file, &user, record, sizeof(record), &u) == 0)
		if (is_meant(e, named, user.pw_name, user.pw_uid))
			found(e, user.pw_name, user.pw_uid);
	while (file && e->kind == NAMES_OF_GROUPS && e->state != KNOWN &&
	       fgetgrent_r(file, &group, record, sizeof(record), &g) == 0)
		if (is_meant(e, named, group.gr_name, group.gr_gid))
			found(e, group.gr_name, group.gr_gid);
	if (file)
		fclose(file);
}

/* ---- on the thread pool ------------------------------------------------------------------ */

static void user_look(struct entry *e, bool named)
{
	struct passwd user, *u = NULL;
	char record[RECORD_SIZE];
	int rc = named ? getpwnam_r(e->name, &user, record, sizeof(record), &u)
		       : getpwuid_r(e->id, &user, record, sizeof(record), &u);

	if (rc == 0 && u)
		found(e, user.pw_name, user.pw_uid);
}

static void group_look(struct entry *e, bool named)
{
	struct group group, *g = NULL;
	char record[RECORD_SIZE];
	int rc = named ? getgrnam_r(e->name, &group, record, sizeof(record), &g)
		       : getgrgid_r(e->id, &group, record, sizeof(record), &g);

	if (rc == 0 && g)
		found(e, group.gr_name, group.gr_gid);
}

static void on_work(uv_work_t *work)
{
	struct look *look = work->data;
	bool named = look == &name_look;

	if (look->entry.kind == NAMES_OF_USERS)
		user_look(&look->entry, named);
	else
		group_look(&look->entry, named);
}

/* ---- the tables -------------------------------------------------------------------------- */

static struct entry *id_entry(enum names_kind kind, uint32_t id)
{
	return &by_id[(id * 2 + kind) % ENTRIES];
}

static struct entry *name_entry(enum names_kind kind, const char *name)
{
	uint32_t hash = 2166136261u + kind;

	for (const char *p = name; *p; p++)
		hash = (hash ^ (unsigned char)*p) * 16777619u;
	return &by_name[hash % ENTRIES];
}

static bool is_old(const struct entry *e, const struct timespec *file)
{
	return now_monotonic_ns() - e->since_ns >= NAMES_ANEW_NS ||
	       e->file.tv_sec != file->tv_sec || e->file.tv_nsec != file->tv_nsec;
}

/* Looked for in the files where nobody has asked yet, it was long ago, or the file has changed. */
static void ask(struct entry *e, bool named)
{
	struct timespec file = file_changed(e->kind);

	if (e->state == ASKED || (e->state != EMPTY && !is_old(e, &file)))
		return;
	e->state = EMPTY;
	e->since_ns = now_monotonic_ns();
	e->file = file;
	file_find(e, named);
	if (e->state == EMPTY)
		e->state = ASKED;
	some_asked |= e->state == ASKED;
}

/* A name that was known is shown until it is known anew. */
static void text_set(struct entry *e)
{
	if (e->state == KNOWN)
		memcpy(e->text, e->name, sizeof(e->text));
	else if (e->state != ASKED || !e->text[0])
		snprintf(e->text, sizeof(e->text), "%u", e->id);
}

const char *names_of(enum names_kind kind, uint32_t id)
{
	struct entry *e = id_entry(kind, id);

	if (e->state == EMPTY || e->kind != kind || e->id != id)
		*e = (struct entry){.kind = kind, .id = id};
	ask(e, false);
	text_set(e);
	return e->text;
}

bool names_asked(enum names_kind kind, uint32_t id)
{
	(void)names_of(kind, id);
	return id_entry(kind, id)->state == ASKED;
}

int names_find_here(enum names_kind kind, const char *name, uint32_t *ret)
{
	struct entry e = {.kind = kind};

	if (strlen(name) >= sizeof(e.name))
		return -ENOENT;
	memcpy(e.name, name, strlen(name) + 1);
	file_find(&e, true);
	if (e.state != KNOWN)
		return -ENOENT;
	*ret = e.id;
	return 0;
}

int names_id_here(enum names_kind kind, const char *name, uint32_t *ret)
{
	char *end;
	unsigned long number = strtoul(name, &end, 10);

	if (*end)
		return names_find_here(kind, name, ret);
	*ret = (uint32_t)number;
	return 0;
}

int names_find(enum names_kind kind, const char *name, uint32_t *ret)
{
	struct entry *e = name_entry(kind, name);

	/* The files may have changed; whoever asks is an administrator. */
	if (strlen(name) >= sizeof(e->name))
		return -ENOENT;
	if (names_find_here(kind, name, ret) == 0)
		return 0;
	if (e->state == EMPTY || e->kind != kind || strcmp(e->name, name) != 0) {
		*e = (struct entry){.kind = kind};
		memcpy(e->name, name, strlen(name) + 1);
	}
	ask(e, true);
	if (e->state == KNOWN)
		*ret = e->id;
	return e->state == KNOWN ? 0 : e->state == ASKED ? -EINPROGRESS : -ENOENT;
}

/* ---- waiters ----------------------------------------------------------------------------- */

static bool list_forget(struct waiting **at, const void *arg)
{
	for (struct waiting *w; (w = *at); at = &w->next)
		if (w->arg == arg) {
			*at = w->next;
			free(w);
			return true;
		}
	return false;
}

void names_forget(const void *arg)
{
	if (!list_forget(&waiting, arg))
		(void)list_forget(&answered, arg);
}

int names_await(names_cb cb, void *arg)
{
	struct waiting *w = calloc(1, sizeof(*w));

	if (!w)
		return -ENOMEM;
	*w = (struct waiting){.next = waiting, .cb = cb, .arg = arg};
	waiting = w;
	return 0;
}

/* A waiter that has to wait again joins the new list. */
static void waiting_handle(void)
{
	answered = waiting;
	waiting = NULL;
	while (answered) {
		struct waiting now = *answered;

		free(answered);
		answered = now.next;
		now.cb(now.arg);
	}
}

static void on_worked(uv_work_t *work, int status)
{
	struct look *look = work->data;
	struct entry *answer = &look->entry;
	struct entry *e = look == &name_look ? name_entry(answer->kind, answer->name)
					     : id_entry(answer->kind, answer->id);

	look->running = false;
	/* Another one may have its place by now. */
	if (e->state == ASKED && e->kind == answer->kind &&
	    (look == &name_look ? !strcmp(e->name, answer->name) : e->id == answer->id)) {
		*e = *answer;
		e->state = answer->state == KNOWN ? KNOWN : NOBODY;
		e->since_ns = now_monotonic_ns();
	}
	waiting_handle();
}

static void look_at_next(uv_loop_t *loop, struct look *look, struct entry *entries)
{
	for (uint32_t i = 0; !look->running && i < ENTRIES; i++) {
		if (entries[i].state != ASKED)
			continue;
		look->entry = entries[i];
		look->work.data = look;
		look->running = uv_queue_work(loop, &look->work, on_work, on_worked) == 0;
	}
}

void names_look(uv_loop_t *loop)
{
	if (!some_asked)
		return;
	look_at_next(loop, &id_look, by_id);
	look_at_next(loop, &name_look, by_name);
	some_asked = id_look.running || name_look.running;
}

void names_stop(void)
{
	while (waiting) {
		struct waiting *w = waiting;

		waiting = w->next;
		free(w);
	}
}
