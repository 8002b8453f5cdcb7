#include "daemon/vanished.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "daemon/api/http.h"
#include "daemon/attach/attach.h"
#include "daemon/host/log.h"
#include "daemon/node.h"
#include "daemon/queue/queue.h"
#include "daemon/store/store.h"

/* Each second would fill the log with one line. */
static void tell(struct node *node, const char *file, int rc, const char *why)
{
	if (rc < 0 && node->vanished_told)
		return;
	node->vanished_told = rc < 0;
	if (rc < 0)
		log_event(LOG_ERROR, "runtime.vanished file=%s error=\"%s\"", file, why);
	else
		log_event(LOG_WARNING, "runtime.vanished file=%s made=anew", file);
}

/* By the guard: the directory of a system daemon is root's. */
static int guard_make(struct node *node, enum runtime_file file, struct error *err)
{
	static const enum guard_file files[RUNTIME_FILES] = {
		[RUNTIME_LOCK] = GUARD_FILE_LOCK,
		[RUNTIME_ATTACH] = GUARD_FILE_ATTACH,
		[RUNTIME_HTTP] = GUARD_FILE_HTTP,
	};
	int fd = privileges_file(&node->privileges, files[file]);

	if (fd < 0)
		return error_set(err, EXIT_CODE_FAILED, "its guard cannot make it: %s",
				 strerrordesc_np(-fd));
	return runtime_adopt(&node->runtime, file, fd, node->options.config_path, err) < 0 ? -1
											   : fd;
}

static const char *socket_look(struct node *node, enum runtime_file file)
{
	struct error err = {0};
	int fd = privileges_guarded(&node->privileges)
			 ? guard_make(node, file, &err)
			 : runtime_listen_again(&node->runtime, file, node->options.system, &err);
	int rc = fd;

	if (fd >= 0)
		rc = file == RUNTIME_HTTP ? http_server_listen(node->http, fd)
					  : attach_server_listen(node->attach, fd);
	if (rc == 0 && file == RUNTIME_ATTACH)
		node->runtime.attach_fd = attach_listening(node->attach);
	tell(node, runtime_file_name(file), rc,
	     err.message[0] ? err.message : strerrordesc_np(-rc));
	return fd < 0 && file == RUNTIME_HTTP ? "its socket was removed" : NULL;
}

static const char *databases_look(struct node *node)
{
	if (!store_intact(node->store)) {
		int rc = store_write_anew(node->store);

		tell(node, "carve.db", rc, strerrordesc_np(-rc));
		if (rc < 0 && !store_usable(node->store))
			return "its database was removed";
	}
	int rc = queues_database_look(node->queues);
	if (rc)
		tell(node, "queue.db", rc, strerrordesc_np(rc < 0 ? -rc : 0));
	return NULL;
}

const char *vanished_tick(struct node *node)
{
	const char *stop = NULL;

	/* A host that was simulated has ended, or a user cleans up. */
	if (!privileges_guarded(&node->privileges) && !node->sessions.first &&
	    !node->waiting.first && access(node->runtime.dir, F_OK) < 0)
		return "its directory was removed";

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
			int rc = privileges_guarded(&node->privileges)
					 ? guard_make(node, file, &err)
					 : runtime_lock_again(&node->runtime, node->options.system,
							      node->options.config_path, &err);

			tell(node, runtime_file_name(file), rc, err.message);
		} else {
			stop = socket_look(node, file);
		}
	}
	return stop ? stop : databases_look(node);
}
