#include "daemon/files.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/macros.h"
#include "daemon/config_last.h"
#include "daemon/gpu/claims.h"
#include "daemon/host/log.h"
#include "daemon/node.h"
#include "daemon/queue/queues.h"
#include "daemon/store/store.h"
#include "proto/runtime.h"

/* How the supervisor keeps what is told of removed files. */
#define NOTE_OWNER "files"
#define NOTE_PART "removed"

/* Each returns the name of the file if it is missing, else NULL. */
static const char *runtime_missing(const struct node *node, enum runtime_file file)
{
	return runtime_look(&node->runtime, file) == RUNTIME_THERE ? NULL : runtime_file_name(file);
}

static const char *lock_missing(const struct node *node)
{
	return runtime_missing(node, RUNTIME_LOCK);
}

static const char *attach_missing(const struct node *node)
{
	return runtime_missing(node, RUNTIME_ATTACH);
}

static const char *http_missing(const struct node *node)
{
	return runtime_missing(node, RUNTIME_HTTP);
}

static const char *log_missing(const struct node *node)
{
	return log_vanished() ? "carved.log" : NULL;
}

static const char *containers_missing(const struct node *node)
{
	return runtime_containers_there(&node->runtime) ? NULL : RUNTIME_CONTAINERS_DIR;
}

static const char *start_missing(const struct node *node)
{
	return runtime_start_missing(&node->runtime) ? RUNTIME_START_FILE : NULL;
}

static const char *state_missing(const struct node *node)
{
	return state_lock_missing(&node->state, &node->runtime) ? "state_dir/lock" : NULL;
}

static const char *link_missing(const struct node *node)
{
	return state_link_missing(&node->state, &node->runtime) ? "carve.db" : NULL;
}

static const char *sessions_missing(const struct node *node)
{
	return store_missing(node->store);
}

static const char *jobs_missing(const struct node *node)
{
	return queues_database_missing(node->queues);
}

static const char *claims_missing(const struct node *node)
{
	return claims_gone(&node->pool.claims) ? CLAIMS_DIR : NULL;
}

static const char *config_missing(const struct node *node)
{
	bool missing = config_last_missing(node->config_kept.state, node->state.dir) ||
		       config_last_missing(node->config_kept.runtime, node->runtime.dir);

	return missing ? "carved.json.last" : NULL;
}

enum kind {
	KIND_PLAIN,
	KIND_DATABASE, /* the daemon alone has its contents */
};

static const struct {
	const char *(*missing)(const struct node *node);
	enum kind kind;
} files[] = {
	{lock_missing, KIND_PLAIN},        {attach_missing, KIND_PLAIN},
	{http_missing, KIND_PLAIN},        {log_missing, KIND_PLAIN},
	{containers_missing, KIND_PLAIN},  {start_missing, KIND_PLAIN},
	{link_missing, KIND_PLAIN},        {claims_missing, KIND_PLAIN},
	{config_missing, KIND_PLAIN},      {state_missing, KIND_DATABASE},
	{sessions_missing, KIND_DATABASE}, {jobs_missing, KIND_DATABASE},
};

_Static_assert(ARRAY_SIZE(files) <= 32, "struct files has a bit for each");

/* ---- the note ----------------------------------------------------------------------------- */

static void note_write(struct node *node)
{
	cleanup_close int fd = memfd_create("carve-files", MFD_CLOEXEC);

	if (fd >= 0 && write_all(fd, &node->files.removed, sizeof(node->files.removed)) == 0)
		keep_put(&node->keep, NOTE_OWNER, NOTE_PART, fd);
}

void files_note_take(struct node *node)
{
	struct files_removed *removed = &node->files.removed;
	cleanup_close int fd = keep_take(&node->keep, NOTE_OWNER, NOTE_PART);

	if (fd < 0 || pread(fd, removed, sizeof(*removed), 0) != sizeof(*removed)) {
		*removed = (struct files_removed){0};
		return;
	}
	removed->file[sizeof(removed->file) - 1] = '\0';
	if (removed->told == removed->count)
		return;
	removed->told = removed->count;
	node->files.told_now = true;
	log_event(LOG_WARNING, "runtime.vanished file=%s made=anew", removed->file);
	note_write(node);
}

static void note_add(struct node *node, const char *file)
{
	struct files_removed *removed = &node->files.removed;

	removed->count++;
	removed->told += node->runtime.made_anew != 0; /* it is in the log already */
	removed->at = now_realtime_ns();
	snprintf(removed->file, sizeof(removed->file), "%s", file);
	note_write(node);
}

/* ---- the looks ---------------------------------------------------------------------------- */

void files_begin(struct node *node)
{
	for (size_t i = 0; i < ARRAY_SIZE(files); i++)
		if (!files[i].missing(node))
			node->files.there |= 1u << i;
	/* They were removed while no daemon looked. */
	if (node->runtime.made_anew && !node->files.told_now)
		note_add(node, runtime_file_name(node->runtime.made_anew >> RUNTIME_HTTP & 1
							 ? RUNTIME_HTTP
							 : RUNTIME_ATTACH));
}

bool files_are_unwanted(const struct node *node)
{
	return !privileges_guarded(&node->privileges) && !node->sessions.first &&
	       !node->waiting.first && access(node->runtime.dir, F_OK) < 0;
}

/* False: they cannot be left, and the daemon has to stay. */
static bool copies_leave(struct node *node)
{
	cleanup_close int sessions = store_copy(node->store);
	cleanup_close int jobs = queues_database_copy(node->queues);

	(void)store_retry(node->store);
	return !store_has_unrecorded(node->store) && sessions >= 0 &&
	       state_leave_copies(&node->keep, sessions, jobs) == 0;
}

const char *files_look(struct node *node)
{
	const char *first = NULL;
	bool databases = false;

	if (files_are_unwanted(node))
		return NULL;
	for (size_t i = 0; i < ARRAY_SIZE(files); i++) {
		const char *file = node->files.there >> i & 1 ? files[i].missing(node) : NULL;

		databases |= file && files[i].kind == KIND_DATABASE;
		first = first ? first : file;
	}
	if (!first || (databases && !copies_leave(node)))
		return NULL;
	note_add(node, first);
	return "a file of its own was removed";
}
