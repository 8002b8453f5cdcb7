#include "daemon/api/api_command.h"

#include <errno.h>
#include <microhttpd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "daemon/api/answer.h"
#include "daemon/api/api_session.h"
#include "daemon/api/http.h"
#include "daemon/host/limited.h"
#include "daemon/host/owner.h"
#include "daemon/host/privileges.h"
#include "daemon/node.h"
#include "daemon/session/session.h"
#include "daemon/settle/cgroups.h"

/* A call whose answer waits for the limit of its process's cgroup. */
struct binding {
	struct binding *next;
	struct call *call;
	uint64_t number;
	char session[STORE_ID_SIZE];
	pid_t pid;
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

static void reply_done(struct call *call, const char *session, pid_t pid)
{
	call_reply(call, MHD_HTTP_OK, json_pack("{s:s, s:i}", "session", session, "pid", (int)pid));
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
	answer_failed(call, MHD_HTTP_CONFLICT, EXIT_CODE_RUN_FAILED, "%s", refusal);
}

static void on_bound(void *context, uint64_t number, const char *refusal)
{
	struct binding *binding = binding_take(context, NULL, number);

	if (binding && refusal)
		reply_refused(binding->call, refusal);
	else if (binding)
		reply_done(binding->call, binding->session, binding->pid);
	free(binding);
}

static void on_gone(struct call *call)
{
	free(binding_take(call->node, call, 0));
}

/* Answers when the driver has the limit, or now. */
static void bind_or_reply(struct call *call, struct session *s, struct process_id process)
{
	static uint64_t last;
	struct node *node = call->node;
	struct binding *binding = malloc(sizeof(*binding));

	if (!binding) {
		reply_refused(call, cgroups_bind_refusal(-ENOMEM));
		return;
	}
	*binding = (struct binding){
		.next = node->bindings,
		.call = call,
		.number = ++last,
		.pid = process.pid,
	};
	snprintf(binding->session, sizeof(binding->session), "%s", s->record.id);
	node->bindings = binding;
	int rc = cgroups_bind(s, process, LEAF_CONTAINER, on_bound, node, binding->number);
	/* It may be answered by now. */
	bool due = node->bindings == binding;
	if (rc > 0 && due)
		call_defer(call, on_gone);
	if (rc <= 0)
		free(binding_take(node, call, 0));
	if (rc < 0)
		reply_refused(call, cgroups_bind_refusal(rc));
	else if (rc == 0)
		reply_done(call, s->record.id, process.pid);
}

/* ---- the request ------------------------------------------------------------------------- */

/* One of root's has a mount namespace of its own: all who are in there, as whichever user, are in
 * the session then. */
static int command_add(struct call *call, struct session *s, struct process_id process)
{
	if (s->state != SESSION_ACTIVE)
		return -ESRCH;
	return session_command_add(
		s, &process,
		call->peer.uid == 0 ? privileges_namespace(&call->node->privileges, process) : -1);
}

void api_post_command(struct call *call, const char *id)
{
	struct error err = {0};
	json_t *root = answer_body(call, &err);
	char session[STORE_ID_SIZE] = "";
	struct process_id process = {0};
	struct session *s;
	int rc = root ? command_find(call, root, &process, &err) : -1;
	const char *named = json_string_value(json_object_get(root, "session"));
	bool instead = json_is_true(json_object_get(root, "instead"));

	if (rc == 0 && !named)
		rc = error_set(&err, EXIT_CODE_USAGE, "'session' takes a session's ID");
	snprintf(session, sizeof(session), "%s", named ? named : "");
	json_decref(root);
	if (rc < 0) {
		call_reply_error(call, answer_status(&err), &err);
		return;
	}
	if (!(s = api_session_or_reply(call, session)))
		return;
	rc = command_add(call, s, process);
	if (rc == 0 && instead)
		session_holder_leave(s, &call->peer.process);
	if (rc < 0)
		answer_failed(call, MHD_HTTP_CONFLICT, EXIT_CODE_FAILED,
			      "process %d cannot be in session %s: %s", (int)process.pid, session,
			      rc == -EMFILE ? limited_descriptors_text(
						      "this user has too many commands in slices")
					    : strerrordesc_np(-rc));
	else
		bind_or_reply(call, s, process);
}
