#include "daemon/upgrade/upgrade.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <microhttpd.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/file.h"
#include "daemon/api/answer.h"
#include "daemon/api/http.h"
#include "daemon/api/http_handover.h"
#include "daemon/attach/attach.h"
#include "daemon/host/child.h"
#include "daemon/host/devices.h"
#include "daemon/host/handover.h"
#include "daemon/host/log.h"
#include "daemon/mig/mig.h"
#include "daemon/node.h"
#include "daemon/session/session.h"
#include "daemon/settle/cgroups.h"
#include "daemon/settle/settle.h"
#include "daemon/slicing/slicing.h"
#include "daemon/store/store.h"
#include "daemon/upgrade/takeover.h"

/* How long the new program may think whether it can. */
#define CHECK_TIMEOUT_MS 10000
/* Calls that are still half received after this time are cut off. */
#define PATIENCE_NS 5000000000ull

struct upgrade {
	struct node *node;
	struct call *call; /* the call that asked; NULL: it is gone */
	char program[PATH_MAX];
	struct child check;
	bool checking;
	bool checked; /* it can: to be done at the next good moment */
	bool stopped; /* the daemon stops */
	uint64_t since_ns;
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
		call_reply_error(u->call, MHD_HTTP_CONFLICT, &err);
	upgrade_free(u);
}

/* ---- asking the new program --------------------------------------------------------------- */

static void on_check_ended(struct child *check)
{
	struct upgrade *u = check->arg;

	u->checking = false;
	if (u->stopped) {
		free(u);
		return;
	}
	if (check->status == 0 && !strcmp(check->text, UPGRADE_CHECKED)) {
		u->checked = true;
		u->since_ns = now_monotonic_ns();
		return;
	}
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

	snprintf(version, sizeof(version), "%d", HANDOVER_VERSION);
	if (node->options.config_path) {
		snprintf(config, sizeof(config), "%s", node->options.config_path);
		args[count++] = "--config";
		args[count++] = config;
	}
	if (node->options.state_dir) {
		args[count++] = "--state-dir";
		args[count++] = (char *)node->options.state_dir;
	}
	u->checking = true;
	u->check.arg = u;
	(void)child_start(&u->check, (uv_loop_t *)&node->loop, u->program, args, CHECK_TIMEOUT_MS,
			  on_check_ended);
}

/* ---- becoming it -------------------------------------------------------------------------- */

bool upgrade_pending(const struct node *node)
{
	return node->upgrade && node->upgrade->checked;
}

static bool any_ending(const struct node *node)
{
	const struct session *s = node->sessions.timed_count ? node->sessions.first : NULL;

	while (s && s->state == SESSION_ACTIVE)
		s = s->next;
	return s != NULL;
}

/* Nothing is under way that the next program would not know of. */
static bool good_moment(const struct node *node)
{
	bool impatient = now_monotonic_ns() - node->upgrade->since_ns > PATIENCE_NS;

	return node->ready && !node->probe.running && mig_is_quiet(node->mig) &&
	       cgroups_are_quiet(node->sessions.cgroups) && !store_has_unrecorded(node->store) &&
	       (impatient || (!any_ending(node) && http_quiet(node->http)));
}

static struct handover *leave_all(struct node *node)
{
	struct handover *h = handover_new();

	if (!h)
		return NULL;
	runtime_hand_over(&node->runtime, h);
	state_hand_over(&node->state, h);
	pool_hand_over(&node->pool, h);
	takeover_leave(node, h);
	privileges_hand_over(&node->privileges, h);
	launcher_hand_over(&node->launcher, h);
	devices_hand_over(node->devices, h);
	attach_hand_over(node->attach, h);
	http_hand_over(node->http, h, node->upgrade->call);
	if (log_path())
		json_object_set_new(h->root, "log", json_string(log_path()));
	return h;
}

static void become(const struct node *node, int memfd)
{
	char number[16], idle[32], *args[20] = {"carved", "--foreground", "--runtime-dir"};
	size_t count = 3;

	args[count++] = (char *)node->runtime.dir;
	if (node->options.system)
		args[count++] = "--system";
	if (node->options.pod)
		args[count++] = "--pod";
	if (node->options.idle_exit_ns) {
		snprintf(idle, sizeof(idle), "%.9f", (double)node->options.idle_exit_ns / 1e9);
		args[count++] = "--idle-exit";
		args[count++] = idle;
	}
	if (node->options.config_path) {
		args[count++] = "--config";
		args[count++] = (char *)node->options.config_path;
	}
	if (node->options.state_dir) {
		args[count++] = "--state-dir";
		args[count++] = (char *)node->options.state_dir;
	}
	if (node->options.user) {
		args[count++] = "--user";
		args[count++] = (char *)node->options.user;
	}
	snprintf(number, sizeof(number), "%d", memfd);
	/* NOLINTBEGIN(concurrency-mt-unsafe): the loop's thread is the only one that looks at it */
	setenv(HANDOVER_ENV, number, 1);
	/* Until the next program takes it up, a wish to reload must not end it. */
	signal(SIGHUP, SIG_IGN);
	execv(node->upgrade->program, args);
	unsetenv(HANDOVER_ENV);
	/* NOLINTEND(concurrency-mt-unsafe) */
}

void upgrade_run(struct node *node)
{
	if (!upgrade_pending(node) || node->stopping || !good_moment(node))
		return;
	struct upgrade *u = node->upgrade;
	struct handover *h = leave_all(node);
	int memfd = h ? handover_seal(h) : -ENOMEM;
	if (memfd >= 0) {
		log_event(LOG_INFO, "upgrade.begun program=%s", u->program);
		slicing_unsay(&node->slicing);
		settle_unsay(&node->settling);
		become(node, memfd);
		settle_say(&node->settling);
		slicing_say(&node->slicing);
	}
	int rc = memfd < 0 ? memfd : -errno;
	close_fd(&memfd);
	(void)close_range(STDERR_FILENO + 1, ~0u, CLOSE_RANGE_CLOEXEC);
	if (h) {
		json_decref(h->root);
		free(h);
	}
	uv_signal_start(&node->on_hup, node->on_hup.signal_cb, SIGHUP);
	give_up(u, "%.300s cannot be run: %s", u->program, strerrordesc_np(-rc));
}

void upgrade_stop(struct node *node)
{
	struct upgrade *u = node->upgrade;

	if (!u)
		return;
	node->upgrade = NULL;
	u->stopped = true;
	if (u->checking)
		child_kill(&u->check);
	else
		free(u);
}

/* ---- the call that asks ------------------------------------------------------------------- */

void upgrade_renew(struct node *node)
{
	struct upgrade *u = node->upgrade || node->stopping ? NULL : calloc(1, sizeof(*u));

	if (!u)
		return;
	u->node = node;
	if (child_program("carved", u->program) < 0) {
		free(u);
		return;
	}
	node->upgrade = u;
	check_spawn(u);
}

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

void upgrade_post(struct call *call, const char *id)
{
	struct node *node = call->node;
	struct error err = {0};
	char program[PATH_MAX];

	if (call->peer.uid != 0 && call->peer.uid != geteuid()) {
		answer_failed(call, MHD_HTTP_FORBIDDEN, EXIT_CODE_NOT_PERMITTED,
			      "a daemon is upgraded by root or its own user");
		return;
	}
	if (body_read(call, program, &err) < 0) {
		call_reply_error(call, answer_status(&err), &err);
		return;
	}
	if (node->upgrade) {
		answer_failed(call, MHD_HTTP_CONFLICT, EXIT_CODE_FAILED,
			      "an upgrade is under way already");
		return;
	}
	struct upgrade *u = calloc(1, sizeof(*u));
	if (!u) {
		call_reply(call, MHD_HTTP_INTERNAL_SERVER_ERROR, NULL);
		return;
	}
	u->node = node;
	u->call = call;
	snprintf(u->program, sizeof(u->program), "%s", program);
	node->upgrade = u;
	call_defer(call, on_gone);
	check_spawn(u);
}
