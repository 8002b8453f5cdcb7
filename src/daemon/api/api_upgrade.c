#include "daemon/api/api_upgrade.h"

#include <errno.h>
#include <http_parser.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/file.h"
#include "base/macros.h"
#include "daemon/api/answer.h"
#include "daemon/api/http.h"
#include "daemon/host/child.h"
#include "daemon/host/log.h"
#include "daemon/node.h"
#include "daemon/upgrade/upgrade.h"

/* How long the new program may think whether it can. */
#define CHECK_TIMEOUT_MS 10000

struct upgrade {
	struct node *node;
	struct call *call; /* the call that asked; NULL: it is gone */
	char program[PATH_MAX];
	struct child check;
	bool stopped; /* the daemon stops */
};

static void upgrade_free(struct upgrade *u)
{
	u->node->upgrade = NULL;
	free(u);
}

__attribute__((format(printf, 2, 3))) static void give_up(struct upgrade *u, const char *format,
							  ...)
{
	struct error err = {0};
	va_list args;

	va_start(args, format);
	error_set_va(&err, EXIT_CODE_FAILED, format, args);
	va_end(args);
	error_hint(&err, "the daemon goes on as it was");
	log_event(LOG_ERROR, "upgrade.failed program=%s error=\"%s\"", u->program, err.message);
	if (u->call)
		call_reply_error(u->call, HTTP_STATUS_CONFLICT, &err);
	upgrade_free(u);
}

/* ---- asking the new program --------------------------------------------------------------- */

static void on_check_ended(struct child *check)
{
	struct upgrade *u = check->arg;

	if (u->stopped) {
		free(u);
		return;
	}
	if (check->status == 0 && !strcmp(check->text, UPGRADE_CHECKED))
		keep_restart(&u->node->keep, "an upgrade was asked for", true);
	check->text[strcspn(check->text, "\n")] = '\0';
	give_up(u, "%.300s cannot take over: %.200s", u->program,
		check->text[0]                   ? check->text
		: check->status == CHILD_TIMEOUT ? "it does not answer"
						 : "it is no carved that knows how");
}

static void check_spawn(struct upgrade *u)
{
	const struct node *node = u->node;
	char version[16], config[PATH_MAX];
	char *args[10] = {"carved", "--takeover-check", version, "--runtime-dir",
			  (char *)node->runtime.dir};
	size_t count = 5;

	snprintf(version, sizeof(version), "%d", UPGRADE_VERSION);
	if (node->options.config_path) {
		snprintf(config, sizeof(config), "%s", node->options.config_path);
		args[count++] = "--config";
		args[count++] = config;
	}
	if (node->options.state_dir) {
		args[count++] = "--state-dir";
		args[count++] = (char *)node->options.state_dir;
	}
	u->check.arg = u;
	(void)child_start(&u->check, (uv_loop_t *)&node->loop, u->program, args, CHECK_TIMEOUT_MS,
			  on_check_ended);
}

void api_upgrade_stop(struct node *node)
{
	struct upgrade *u = steal_ptr(&node->upgrade);

	if (!u)
		return;
	u->stopped = true;
	child_kill(&u->check);
}

/* ---- the call that asks ------------------------------------------------------------------- */

static void on_gone(struct call *call)
{
	if (call->node->upgrade)
		call->node->upgrade->call = NULL;
}

static int body_read(struct call *call, char program[static PATH_MAX], struct error *err)
{
	json_t *root = answer_body(call, err);

	if (!root)
		return -1;
	const char *path = json_string_value(json_object_get(root, "program"));
	bool right = path && *path == '/' && strlen(path) < PATH_MAX && json_object_size(root) == 1;
	if (right)
		snprintf(program, PATH_MAX, "%s", path);
	json_decref(root);
	return right ? 0
		     : error_set(err, EXIT_CODE_USAGE,
				 "the body takes 'program', the absolute path of a carved");
}

/* The supervisor starts this daemon's own program anew, and no other: its path may have another
 * program by now. */
static bool program_is_own(const char *program, char ret[static PATH_MAX])
{
	static const char removed[] = " (deleted)";
	ssize_t n = readlink("/proc/self/exe", ret, PATH_MAX - 1);

	ret[n > 0 ? n : 0] = '\0';
	char *end = strstr(ret, removed);
	if (end && !end[sizeof(removed) - 1])
		*end = '\0';
	return !strcmp(program, ret);
}

void api_upgrade_post(struct call *call, const char *id)
{
	struct node *node = call->node;
	struct error err = {0};
	char program[PATH_MAX], own[PATH_MAX];

	if (call->peer.uid != 0 && call->peer.uid != geteuid()) {
		answer_failed(call, HTTP_STATUS_FORBIDDEN, EXIT_CODE_NOT_PERMITTED,
			      "a daemon is upgraded by root or its own user");
		return;
	}
	if (body_read(call, program, &err) < 0) {
		call_reply_error(call, answer_status(&err), &err);
		return;
	}
	if (!program_is_own(program, own)) {
		error_set(&err, EXIT_CODE_FAILED,
			  "the daemon is started from %.300s, not from %.300s", own, program);
		error_hint(&err, "install the new program there, or end the daemon and start the "
				 "other one: sessions survive it");
		call_reply_error(call, HTTP_STATUS_CONFLICT, &err);
		return;
	}
	if (node->upgrade) {
		answer_failed(call, HTTP_STATUS_CONFLICT, EXIT_CODE_FAILED,
			      "an upgrade is under way already");
		return;
	}
	struct upgrade *u = calloc(1, sizeof(*u));
	if (!u) {
		call_reply(call, HTTP_STATUS_INTERNAL_SERVER_ERROR, NULL);
		return;
	}
	u->node = node;
	u->call = call;
	snprintf(u->program, sizeof(u->program), "%s", program);
	node->upgrade = u;
	call_defer(call, on_gone);
	check_spawn(u);
}
