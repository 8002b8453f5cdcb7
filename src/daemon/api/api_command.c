#include "daemon/api/api_command.h"

#include <errno.h>
#include <http_parser.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/file.h"
#include "daemon/api/answer.h"
#include "daemon/api/api_session.h"
#include "daemon/api/http.h"
#include "daemon/host/limited.h"
#include "daemon/host/owner.h"
#include "daemon/host/privileges.h"
#include "daemon/node.h"
#include "daemon/session/session.h"
#include "daemon/settle/cgroups.h"
#include "daemon/settle/device_access.h"

/* A call whose answer waits: first for the warden, which looks at the process's mount namespace,
 * then for the limit of its cgroup. */
struct binding {
	struct binding *next;
	struct call *call;
	uint64_t number; /* the limit's; 0: none is waited for yet */
	uint64_t naming; /* the warden's; 0: it is not asked, or has answered */
	char session[STORE_ID_SIZE];
	struct process_id process;
	bool instead; /* the caller leaves the session for it */
	/* The stamp of the session that the container was made for; "": the caller named none. */
	char stamp[ATTACH_STAMP_SIZE];
};

/* A process of the caller's own: its end may be the session's. */
static int command_find(const struct call *call, const json_t *root, struct process_id *ret,
			struct error *err)
{
	const json_t *value = json_object_get(root, "pid"), *birth = json_object_get(root, "birth");
	json_int_t pid = json_integer_value(value);
	uid_t uid;

	if (!json_is_integer(value) || pid <= 0 || pid > INT32_MAX)
		return error_set(err, EXIT_CODE_USAGE, "'pid' takes a process ID");
	if (birth && !json_is_integer(birth))
		return error_set(err, EXIT_CODE_USAGE, "'birth' takes a process's birth");
	struct process_id meant = {(pid_t)pid, (uint64_t)json_integer_value(birth)};
	if (process_identify((pid_t)pid, ret) < 0 || !process_user((pid_t)pid, &uid) ||
	    !process_alive(*ret) || (birth && !process_same(*ret, meant)))
		return error_set(err, EXIT_CODE_FAILED, "there is no process %d", (int)pid);
	if (call->peer.uid == 0 || uid == call->peer.uid || owner_of(uid) == call->peer.uid)
		return 0;
	return error_set(err, EXIT_CODE_NOT_PERMITTED, "process %d is another user's", (int)pid);
}

/* 0, or negative with *err. */
static int stamp_read(const json_t *root, char stamp[static ATTACH_STAMP_SIZE], struct error *err)
{
	const json_t *value = json_object_get(root, "stamp");
	const char *text = value ? json_string_value(value) : "";
	bool fits = text && (!value || *text) &&
		    snprintf(stamp, ATTACH_STAMP_SIZE, "%s", text) < ATTACH_STAMP_SIZE;

	for (const char *c = text; fits && *c; c++)
		fits = *c > ' ' && *c <= '~';
	return fits ? 0
		    : error_set(err, EXIT_CODE_USAGE,
				"'stamp' takes what a session's 'stamp' says");
}

static void reply_done(struct call *call, const char *session, pid_t pid)
{
	call_reply(call, HTTP_STATUS_OK,
		   json_pack("{s:s, s:i}", "session", session, "pid", (int)pid));
}

/* ---- the limit of its cgroup ------------------------------------------------------------- */

/* Takes it out of the list; NULL: its client has gone. */
static struct binding *binding_take(struct node *node, const struct call *call, uint64_t number)
{
	struct binding **at = &node->bindings;

	while (*at && (call ? (*at)->call != call : (*at)->number != number))
		at = &(*at)->next;
	struct binding *found = *at;
	if (found)
		*at = found->next;
	return found;
}

static void reply_refused(struct call *call, const char *refusal)
{
	answer_failed(call, HTTP_STATUS_CONFLICT, EXIT_CODE_RUN_FAILED, "%s", refusal);
}

static void on_bound(void *context, uint64_t number, const char *refusal)
{
	struct binding *binding = binding_take(context, NULL, number);

	if (binding && refusal)
		reply_refused(binding->call, refusal);
	else if (binding)
		reply_done(binding->call, binding->session, binding->process.pid);
	free(binding);
}

static void on_gone(struct call *call)
{
	struct binding *binding = binding_take(call->node, call, 0);

	if (binding)
		privileges_forget(&call->node->privileges, binding->naming);
	free(binding);
}

/* Answers when the driver has the limit, or now. */
static void bind_or_reply(struct node *node, struct binding *binding, struct session *s)
{
	static uint64_t last;

	binding->number = ++last;
	int rc = device_access_bind(s, binding->process, LEAF_CONTAINER, on_bound, node,
				    binding->number);
	const struct binding *at = node->bindings;

	while (at && at != binding)
		at = at->next;
	/* It may be answered by now. */
	if (rc > 0 && at)
		call_defer(at->call, on_gone);
	if (rc > 0)
		return;
	binding_take(node, binding->call, 0);
	if (rc < 0)
		reply_refused(binding->call, cgroups_bind_refusal(rc));
	else
		reply_done(binding->call, binding->session, binding->process.pid);
	free(binding);
}

/* A stamp without an owner is of a device of a size: the device has a GPU's nodes before there is a
 * session. */
static bool stamp_matches(const char *stamp, const char *now)
{
	return !strcmp(stamp, *stamp == ':' ? now + strcspn(now, ":") : now);
}

/* ---- the request ------------------------------------------------------------------------- */

/* The container's device nodes are copies of what the session had. From here on the process is in
 * the session, and the session keeps its instances. */
static int stamp_check(const struct binding *binding, const struct session *s, struct error *err)
{
	char now[ATTACH_STAMP_SIZE];

	session_stamp(&s->record, now);
	if (*binding->stamp ? stamp_matches(binding->stamp, now)
			    : !s->record.gpu_count || !s->record.gpu[0].instance[0])
		return 0;
	if (*binding->stamp)
		error_set(err, EXIT_CODE_FAILED,
			  "session %s has changed since the container was made for it: it was "
			  "%.150s, "
			  "and is %.150s",
			  s->record.id, binding->stamp, now);
	else
		error_set(err, EXIT_CODE_FAILED,
			  "the container does not say for which MIG instance of session %s it was "
			  "made",
			  s->record.id);
	error_hint(err,
		   "make a new container; before it a new spec, if there is one: `carve cdi "
		   "generate %s`",
		   s->record.id);
	return -EXIT_CODE_FAILED;
}

/* One of root's has a mount namespace of its own: all who are in there, as whichever user, are in
 * the session then. */
static int command_add(const struct binding *binding, struct session *s, int mount_fd,
		       struct error *err)
{
	if (!s || s->state != SESSION_ACTIVE || stamp_check(binding, s, err) < 0) {
		close_fd(&mount_fd);
		return -ESRCH;
	}
	int rc = session_command_add(s, &binding->process, mount_fd);
	if (rc == 0 && binding->instead)
		session_holder_leave(s, &binding->call->peer.process);
	return rc;
}

static void command_enter(struct node *node, struct binding *binding, int mount_fd)
{
	struct session *s = session_find(&node->sessions, binding->session);
	struct error err = {0};
	int rc = command_add(binding, s, mount_fd, &err);

	if (rc == 0) {
		bind_or_reply(node, binding, s);
		return;
	}
	binding_take(node, binding->call, 0);
	if (err.code) {
		call_reply_error(binding->call, HTTP_STATUS_CONFLICT, &err);
		free(binding);
		return;
	}
	answer_failed(binding->call, HTTP_STATUS_CONFLICT, EXIT_CODE_FAILED,
		      "process %d cannot be in session %s: %s", (int)binding->process.pid,
		      binding->session,
		      rc == -EMFILE ? limited_descriptors_text(
					      "this user has too many commands in slices")
				    : strerrordesc_np(-rc));
	free(binding);
}

static void on_namespace(void *context, struct namespace_seen *seen)
{
	struct binding *binding = context;

	binding->naming = 0;
	command_enter(binding->call->node, binding, steal_fd(&seen->fd));
}

/* The answer may come before this returns. */
static void command_begin(struct call *call, struct binding *binding)
{
	struct node *node = call->node;

	binding->next = node->bindings;
	node->bindings = binding;
	if (call->peer.uid == 0 && privileges_guarded(&node->privileges))
		binding->naming = privileges_namespace_ask(&node->privileges, 0, binding->process,
							   true, on_namespace, binding);
	if (binding->naming) {
		call_defer(call, on_gone);
		return;
	}
	struct namespace_seen seen = {.fd = -1};
	if (call->peer.uid == 0)
		seen = privileges_namespace_look(binding->process);
	command_enter(node, binding, seen.fd);
}

void api_post_command(struct call *call, const char *id)
{
	struct error err = {0};
	json_t *root = answer_body(call, &err);
	struct binding found = {.call = call}, *binding;
	int rc = root ? command_find(call, root, &found.process, &err) : -1;
	const char *named = json_string_value(json_object_get(root, "session"));

	found.instead = json_is_true(json_object_get(root, "instead"));
	if (rc == 0)
		rc = stamp_read(root, found.stamp, &err);
	if (rc == 0 && !named)
		rc = error_set(&err, EXIT_CODE_USAGE, "'session' takes a session's ID");
	snprintf(found.session, sizeof(found.session), "%s", named ? named : "");
	json_decref(root);
	if (rc == 0 && !api_session_or_reply(call, found.session))
		return;
	binding = rc == 0 ? malloc(sizeof(*binding)) : NULL;
	if (rc == 0 && !binding)
		error_set(&err, EXIT_CODE_FAILED, "%s", strerrordesc_np(ENOMEM));
	if (!binding) {
		call_reply_error(call, answer_status(&err), &err);
		return;
	}
	*binding = found;
	command_begin(call, binding);
}
