#include "daemon/vanished.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/file.h"
#include "base/macros.h"
#include "daemon/api/http.h"
#include "daemon/attach/attach.h"
#include "daemon/config_last.h"
#include "daemon/gpu/claims.h"
#include "daemon/host/log.h"
#include "daemon/host/supervisor.h"
#include "daemon/node.h"
#include "daemon/queue/queue.h"
#include "daemon/store/store.h"
#include "proto/warden.h"
#include "warden/containers.h"

/* All that is looked at, each with a bit in vanished.failing. */
enum entry {
	ENTRY_LOCK = RUNTIME_LOCK,
	ENTRY_ATTACH = RUNTIME_ATTACH,
	ENTRY_HTTP = RUNTIME_HTTP,
	ENTRY_LOG,
	ENTRY_CONTAINERS,
	ENTRY_STATE,
	ENTRY_LINK,
	ENTRY_CLAIMS,
	ENTRY_SESSIONS,
	ENTRY_JOBS,
	ENTRY_JOB_DIRECTORIES,
	ENTRY_KEEPER,
	ENTRY_CONFIG,
	ENTRY_CONFIG_RUNTIME,
	ENTRY_START,
};

/* `rc` > 0: it was made anew; 0: it is there; negative: it cannot be made, and `why`. Each second
 * would fill the log with one line. */
static void tell(struct node *node, enum entry entry, const char *file, int rc, const char *why)
{
	struct vanished *v = &node->vanished;
	bool told = v->failing >> entry & 1;

	if (rc >= 0)
		v->failing &= ~(1u << entry);
	if (rc == 0 || (rc < 0 && told))
		return;
	snprintf(v->file, sizeof(v->file), "%s", file);
	v->at = now_realtime_ns();
	if (rc < 0) {
		v->failing |= 1u << entry;
		snprintf(v->error, sizeof(v->error), "%s cannot be made anew: %.180s", file, why);
		log_event(LOG_ERROR, "runtime.vanished file=%s error=\"%s\"", file, why);
	} else {
		v->count++;
		log_event(LOG_WARNING, "runtime.vanished file=%s made=anew", file);
	}
}

/* A file that the warden makes, as the directory of a system daemon is root's. */
struct asked {
	struct node *node;
	enum entry entry;
	const char *name;
};

static int runtime_file_adopt(struct node *node, enum runtime_file file, int fd, struct error *err)
{
	int rc = runtime_adopt(&node->runtime, file, fd, node->options.config_path, err);

	if (rc == 0 && file == RUNTIME_HTTP)
		rc = http_server_listen(node->http, fd);
	if (rc == 0 && file == RUNTIME_ATTACH)
		rc = attach_server_listen(node->attach, fd);
	if (rc == 0 && file == RUNTIME_ATTACH)
		node->runtime.attach_fd = attach_listening(node->attach);
	return rc;
}

static void on_made(void *context, int fd)
{
	struct asked *asked = context;
	struct node *node = asked->node;
	struct error err = {0};
	int rc = fd < 0 ? fd : 0;

	node->vanished.asked &= ~(1u << asked->entry);
	if (rc < 0)
		error_set(&err, EXIT_CODE_FAILED, "its warden cannot make it: %s",
			  strerrordesc_np(-rc));
	else if ((int)asked->entry < (int)RUNTIME_FILES)
		rc = runtime_file_adopt(node, (enum runtime_file)asked->entry, steal_fd(&fd), &err);
	else if (asked->entry == ENTRY_LOG)
		log_adopt(steal_fd(&fd));
	close_fd(&fd);
	if (rc < 0 && asked->entry == ENTRY_HTTP)
		node->vanished.stop = "its socket was removed";
	tell(node, asked->entry, asked->name, rc < 0 ? rc : 1,
	     err.message[0] ? err.message : strerrordesc_np(rc < 0 ? -rc : 0));
	free(asked);
}

static void warden_make(struct node *node, enum entry entry, const char *name)
{
	static const enum warden_file_name files[] = {
		[ENTRY_LOCK] = WARDEN_FILE_LOCK,
		[ENTRY_ATTACH] = WARDEN_FILE_ATTACH,
		[ENTRY_HTTP] = WARDEN_FILE_HTTP,
		[ENTRY_LOG] = WARDEN_FILE_LOG,
		[ENTRY_CONTAINERS] = WARDEN_FILE_CONTAINERS,
		[ENTRY_LINK] = WARDEN_FILE_LINK,
		[ENTRY_START] = WARDEN_FILE_START,
	};
	struct asked *asked = node->vanished.asked >> entry & 1 ? NULL : malloc(sizeof(*asked));

	if (!asked)
		return;
	node->vanished.asked |= 1u << entry;
	*asked = (struct asked){.node = node, .entry = entry, .name = name};
	privileges_file_ask(&node->privileges, files[entry], on_made, asked);
}

static const char *socket_look(struct node *node, enum runtime_file file)
{
	struct error err = {0};

	if (privileges_guarded(&node->privileges)) {
		warden_make(node, (enum entry)file, runtime_file_name(file));
		return NULL;
	}
	int fd = runtime_listen_again(&node->runtime, file, node->options.system, &err), rc = fd;

	if (fd >= 0)
		rc = file == RUNTIME_HTTP ? http_server_listen(node->http, fd)
					  : attach_server_listen(node->attach, fd);
	if (rc == 0 && file == RUNTIME_ATTACH)
		node->runtime.attach_fd = attach_listening(node->attach);
	tell(node, (enum entry)file, runtime_file_name(file), rc < 0 ? rc : 1,
	     err.message[0] ? err.message : strerrordesc_np(-rc));
	return fd < 0 && file == RUNTIME_HTTP ? "its socket was removed" : NULL;
}

static const char *databases_look(struct node *node)
{
	const char *missing = store_missing(node->store), *name = NULL;

	if (missing) {
		int rc = store_write_anew(node->store);

		tell(node, ENTRY_SESSIONS, missing, rc < 0 ? rc : 1, strerrordesc_np(-rc));
		if (rc < 0 && !store_usable(node->store))
			return "its database was removed";
	}
	int rc = queues_database_look(node->queues, &name);
	tell(node, ENTRY_JOBS, name, rc, strerrordesc_np(rc < 0 ? -rc : 0));
	return NULL;
}

/* ---- the rest ---------------------------------------------------------------------------- */

static void log_file_look(struct node *node)
{
	/* With the directory: what is said of the other files is to be in it. */
	if (log_vanished())
		(void)mkdir(node->runtime.dir, 0700);
	int rc = log_look();

	if (rc < 0 && privileges_guarded(&node->privileges)) {
		warden_make(node, ENTRY_LOG, "carved.log");
		return;
	}
	tell(node, ENTRY_LOG, "carved.log", rc, strerrordesc_np(rc < 0 ? -rc : 0));
}

static void containers_look(struct node *node)
{
	struct error err = {0};
	int rc = 0;

	/* Without the socket there is nothing to give a second name to. */
	bool missing = runtime_look(&node->runtime, RUNTIME_ATTACH) == RUNTIME_THERE &&
		       !runtime_containers_there(&node->runtime);
	if (missing && privileges_guarded(&node->privileges)) {
		warden_make(node, ENTRY_CONTAINERS, CONTAINERS_DIR);
		return;
	}
	if (missing)
		rc = runtime_containers_again(&node->runtime, &err);
	tell(node, ENTRY_CONTAINERS, CONTAINERS_DIR, rc, err.message);
}

static void link_look(struct node *node)
{
	struct error err = {0};
	int rc = 0;

	bool missing = state_link_missing(&node->state, &node->runtime);
	if (missing && privileges_guarded(&node->privileges)) {
		warden_make(node, ENTRY_LINK, "carve.db");
		return;
	}
	if (missing)
		rc = state_link_again(&node->state, &node->runtime, &err);
	tell(node, ENTRY_LINK, "carve.db", rc, err.message);
}

void node_start_note(struct node *node)
{
	runtime_start_note(&node->runtime, &(struct runtime_start){
						   .system = node->options.system,
						   .config = node->options.config_path,
						   .state_dir = node->options.state_dir,
						   .user = node->options.user,
						   .idle_exit_ns = node->options.idle_exit_ns,
					   });
}

static void start_look(struct node *node)
{
	bool missing = runtime_start_missing(&node->runtime);

	if (missing && privileges_guarded(&node->privileges)) {
		warden_make(node, ENTRY_START, RUNTIME_START_FILE);
		return;
	}
	if (missing)
		node_start_note(node);
	int rc = !missing ? 0 : runtime_start_missing(&node->runtime) ? -EIO : 1;
	tell(node, ENTRY_START, RUNTIME_START_FILE, rc, strerrordesc_np(EIO));
}

/* Only root can make it, as a service's start does: it keeps the sessions' descriptors. */
static const char *claims_dir_look(struct node *node)
{
	int rc = claims_look(&node->pool.claims);

	tell(node, ENTRY_CLAIMS, CLAIMS_DIR, rc, strerrordesc_np(rc < 0 ? -rc : 0));
	return rc < 0 && supervisor_keeps() ? "its directory of claims on GPUs was removed" : NULL;
}

static void config_look(struct node *node, enum entry entry, bool kept, const char *dir)
{
	int rc = kept ? config_last_look(node->options.config_path, dir) : 0;

	tell(node, entry, "carved.json.last", rc, strerrordesc_np(rc < 0 ? -rc : 0));
}

/* The sandbox of a service cannot make it anew, and its next start can. */
static const char *state_look(struct node *node)
{
	struct error err = {0};
	int rc = state_lock_look(&node->state, &node->runtime, &err);

	tell(node, ENTRY_STATE, "state_dir/lock", rc, err.message);
	if (rc >= 0 || !supervisor_keeps() || !state_gone(&node->state))
		return NULL;
	cleanup_close int sessions = store_copy(node->store);
	cleanup_close int jobs = queues_database_copy(node->queues);
	if (sessions < 0 || state_leave_copies(sessions, jobs) < 0)
		return NULL;
	return "its state directory was removed";
}

static void others_look(struct node *node)
{
	const char *name = "";
	int rc = queues_directories_look(node->queues, &name);

	tell(node, ENTRY_JOB_DIRECTORIES, name, rc, strerrordesc_np(rc < 0 ? -rc : 0));
	rc = keep_look(&node->keep);
	tell(node, ENTRY_KEEPER, "keeper/socket", rc, strerrordesc_np(rc < 0 ? -rc : 0));
	link_look(node);
	config_look(node, ENTRY_CONFIG, node->config_kept.state, node->state.dir);
	config_look(node, ENTRY_CONFIG_RUNTIME, node->config_kept.runtime, node->runtime.dir);
	containers_look(node);
	start_look(node);
}

/* Those that were made when the daemon started; the log has them. */
static void orphans_count(struct node *node)
{
	struct vanished *v = &node->vanished;

	for (enum runtime_file file = 0; file < RUNTIME_FILES; file++) {
		if (!(node->runtime.orphaned >> file & 1))
			continue;
		v->count++;
		v->at = node->started;
		snprintf(v->file, sizeof(v->file), "%s", runtime_file_name(file));
	}
	node->runtime.orphaned = 0;
}

const char *vanished_tick(struct node *node)
{
	const char *stop = steal_ptr(&node->vanished.stop);

	/* A host that was simulated has ended, or a user cleans up. */
	if (!privileges_guarded(&node->privileges) && !node->sessions.first &&
	    !node->waiting.first && access(node->runtime.dir, F_OK) < 0)
		return "its directory was removed";

	orphans_count(node);
	log_file_look(node);
	for (enum runtime_file file = 0; file < RUNTIME_FILES && !stop; file++) {
		struct error err = {0};

		switch (runtime_look(&node->runtime, file)) {
		case RUNTIME_THERE:
			continue;
		case RUNTIME_REPLACED:
			/* In place of the lock there is another daemon, or soon. */
			if (file != RUNTIME_ATTACH)
				return "its socket or lock was replaced";
			break;
		case RUNTIME_MISSING:
			break;
		}
		if (file == RUNTIME_LOCK) {
			if (privileges_guarded(&node->privileges)) {
				warden_make(node, ENTRY_LOCK, runtime_file_name(file));
				continue;
			}
			int rc = runtime_lock_again(&node->runtime, node->options.system,
						    node->options.config_path, &err);

			tell(node, ENTRY_LOCK, runtime_file_name(file), rc < 0 ? rc : 1,
			     err.message);
		} else {
			stop = socket_look(node, file);
		}
	}
	if (stop)
		return stop;
	stop = state_look(node);
	others_look(node);
	if (!stop)
		stop = databases_look(node);
	return stop ? stop : claims_dir_look(node);
}
