/* The table of all routes, and the handlers of the whole node. */
#include "daemon/api/api.h"

#include <errno.h>
#include <http_parser.h>
#include <stdbool.h>
#include <string.h>

#include "base/error.h"
#include "base/macros.h"
#include "daemon/api/answer.h"
#include "daemon/api/api_agent.h"
#include "daemon/api/api_command.h"
#include "daemon/api/api_door.h"
#include "daemon/api/api_drain.h"
#include "daemon/api/api_events.h"
#include "daemon/api/api_explain.h"
#include "daemon/api/api_job.h"
#include "daemon/api/api_limits.h"
#include "daemon/api/api_metrics.h"
#include "daemon/api/api_outside.h"
#include "daemon/api/api_quota.h"
#include "daemon/api/api_recorded.h"
#include "daemon/api/api_release.h"
#include "daemon/api/api_report.h"
#include "daemon/api/api_resize.h"
#include "daemon/api/api_session.h"
#include "daemon/api/api_sessions.h"
#include "daemon/api/api_slicing.h"
#include "daemon/api/api_upgrade.h"
#include "daemon/api/api_web.h"
#include "daemon/api/browser.h"
#include "daemon/api/fresh.h"
#include "daemon/api/http.h"
#include "daemon/api/mig_api.h"
#include "daemon/api/view.h"
#include "daemon/host/bounded_root.h"
#include "daemon/host/peer.h"
#include "daemon/host/privileges.h"
#include "daemon/node.h"
#include "daemon/waiting/waiting.h"

#define SESSIONS_PREFIX "/v1/sessions/"

static void get_version(struct call *call, const char *id)
{
	call_reply(call, HTTP_STATUS_OK, view_version(call->node));
}

static void answer_gpus(struct call *call, void *arg)
{
	call_reply(call, HTTP_STATUS_OK, view_gpus(call->node, &call->peer));
}

static void get_gpus(struct call *call, const char *id)
{
	/* Those of a daemon that has ended meanwhile are to be had now. */
	if (call->node->pool.state == POOL_READY && pool_claim(&call->node->pool, false))
		call->node->waiting.dirty = true;
	fresh_defer(call, answer_gpus, NULL);
}

/* ---- routes ------------------------------------------------------------------------------ */

struct route {
	const char *method, *path;
	bool takes_id; /* `path` is a prefix, an ID follows */
	bool pod;      /* root of this daemon's pod may ask it: the kubelet's plugin needs it */
	void (*handle)(struct call *call, const char *id);
	bool page; /* a browser that a cookie signed in may ask it: the page needs it */
};

static const struct route routes[] = {
	{"GET", "/", false, false, api_get_page, .page = true},
	{"GET", "/web/", true, false, api_get_page_file, .page = true},
	{"GET", "/v1/web/news", false, false, api_get_news, .page = true},
	{"GET", "/v1/web/door", false, false, api_get_door},
	{"POST", "/v1/web/links", false, false, api_post_web_link},
	{"DELETE", "/v1/web/browsers", false, false, api_delete_web_browsers},
	{"GET", "/metrics", false, false, api_get_metrics},
	{"GET", "/v1/version", false, true, get_version, .page = true},
	{"GET", "/v1/gpus", false, true, get_gpus, .page = true},
	{"GET", "/v1/sessions", false, true, api_get_sessions, .page = true},
	{"POST", "/v1/sessions", false, true, api_post_session},
	{"POST", "/v1/commands", false, false, api_post_command},
	{"POST", "/v1/commands/recorded", false, false, api_post_recorded},
	{"PATCH", "/v1/commands/recorded/", true, false, api_patch_recorded},
	{"POST", "/v1/upgrade", false, false, api_upgrade_post},
	{"GET", "/v1/outside", false, false, api_get_outside},
	{"POST", "/v1/explain", false, false, api_post_explain},
	{"GET", "/v1/explain/", true, false, api_get_explain},
	{"GET", "/v1/events", false, false, api_get_events},
	{"GET", "/v1/notice", false, false, api_get_notice},
	{"PUT", "/v1/notice", false, false, api_put_notice},
	{"POST", "/v1/notice", false, false, api_post_notice},
	{"DELETE", "/v1/notice", false, false, api_delete_notice},
	{"GET", "/v1/limits", false, false, api_get_limits},
	{"GET", "/v1/quotas", false, false, api_get_quotas},
	{"GET", "/v1/quotas/user/", true, false, api_get_quota},
	{"GET", "/v1/quotas/group/", true, false, api_get_quota},
	{"GET", "/v1/quotas/each/", true, false, api_get_quota},
	{"GET", "/v1/quotas/everyone", false, false, api_get_quota},
	{"PUT", "/v1/quotas/user/", true, false, api_put_quota},
	{"PUT", "/v1/quotas/group/", true, false, api_put_quota},
	{"PUT", "/v1/quotas/each/", true, false, api_put_quota},
	{"PUT", "/v1/quotas/everyone", false, false, api_put_quota},
	{"PATCH", "/v1/quotas/user/", true, false, api_patch_quota},
	{"PATCH", "/v1/quotas/group/", true, false, api_patch_quota},
	{"PATCH", "/v1/quotas/each/", true, false, api_patch_quota},
	{"PATCH", "/v1/quotas/everyone", false, false, api_patch_quota},
	{"DELETE", "/v1/quotas/user/", true, false, api_delete_quota},
	{"DELETE", "/v1/quotas/group/", true, false, api_delete_quota},
	{"GET", "/v1/report", false, false, api_get_report, .page = true},
	{"DELETE", "/v1/quotas/each/", true, false, api_delete_quota},
	{"DELETE", "/v1/quotas/everyone", false, false, api_delete_quota},
	{"GET", "/v1/mig", false, true, api_get_mig},
	{"PUT", "/v1/mig/roles", false, true, api_put_mig_roles},
	{"POST", "/v1/mig/gc", false, false, api_post_mig_gc},
	{"GET", "/v1/drains", false, false, api_get_drains},
	{"PUT", "/v1/drains", false, false, api_put_drains},
	{"GET", "/v1/timeslicing", false, false, api_get_slicing, .page = true},
	{"PUT", "/v1/timeslicing", false, false, api_put_slicing},
	{"GET", "/v1/timeslicing/trace", false, false, api_get_turns, .page = true},
	{"GET", "/v1/agents", false, false, api_get_agents},
	{"POST", "/v1/agents", false, false, api_post_agent},
	{"PATCH", "/v1/agents/", true, false, api_patch_agent},
	{"DELETE", "/v1/agents/", true, false, api_delete_agent},
	{"GET", "/v1/queues", false, false, api_get_queues, .page = true},
	{"GET", "/v1/jobs", false, false, api_get_jobs, .page = true},
	{"POST", "/v1/jobs", false, false, api_post_job},
	{"GET", "/v1/jobs/events", false, false, api_get_job_events},
	{"GET", "/v1/jobs/ends", false, false, api_get_job_ends},
	{"GET", "/v1/jobs/log/", true, false, api_get_job_log, .page = true},
	{"GET", "/v1/jobs/", true, false, api_get_job},
	{"POST", "/v1/jobs/", true, false, api_post_job_again},
	{"PATCH", "/v1/jobs/", true, false, api_patch_job},
	{"DELETE", "/v1/jobs/", true, false, api_delete_job},
	{"GET", SESSIONS_PREFIX, true, false, api_get_session},
	{"PATCH", SESSIONS_PREFIX, true, false, api_patch_session},
	{"DELETE", SESSIONS_PREFIX, true, true, api_delete_session},
};

static bool route_matches(const struct route *route, const char *path)
{
	size_t size = strlen(route->path);

	return route->takes_id ? !strncmp(path, route->path, size) && path[size] &&
					 !strchr(path + size, '/')
			       : !strcmp(path, route->path);
}

static bool is_of_queues(const char *path)
{
	return !strncmp(path, "/v1/jobs", 8) || !strncmp(path, "/v1/agents", 10) ||
	       !strncmp(path, "/v1/queues", 10);
}

/* A browser may look at what the page shows. Root of a container may look at what everybody may. It
 * has nothing of its own here: sessions and jobs would be root's, as the kernel knows no other user
 * ID of it. Root of the daemon's own pod has what the table says. */
static bool may_ask(const struct call *call, const struct route *route)
{
	return call->looks ? route->page
	       : call->peer.of_pod
		       ? route->pod
		       : !uid_is_bounded_root(call->peer.uid) || !strcmp(call->method, "GET");
}

static void route_handle(struct call *call)
{
	bool known = false, whole = false;

	for (size_t i = 0; i < ARRAY_SIZE(routes); i++) {
		/* A word that is a path of its own is no ID. */
		if (!route_matches(&routes[i], call->path) || (whole && routes[i].takes_id))
			continue;
		known = true;
		whole |= !routes[i].takes_id;
		if (strcmp(routes[i].method, call->method) != 0)
			continue;
		if (!may_ask(call, &routes[i])) {
			answer_failed(
				call, HTTP_STATUS_FORBIDDEN, EXIT_CODE_NOT_PERMITTED, "%s",
				call->looks ? "a browser may look at the page, and at nothing else"
					    : "this is root of a container, which lacks the "
					      "capabilities or the user namespace of the host's "
					      "root; ask as another user");
			return;
		}
		if (!call->node->queues && is_of_queues(routes[i].path)) {
			call_reply_error(call, HTTP_STATUS_SERVICE_UNAVAILABLE,
					 &call->node->queues_error);
			return;
		}
		routes[i].handle(call, call->path + strlen(routes[i].path));
		return;
	}
	if (known)
		answer_failed(call, HTTP_STATUS_METHOD_NOT_ALLOWED, EXIT_CODE_USAGE,
			      "%.16s does not go with %.128s", call->method, call->path);
	else
		answer_failed(call, HTTP_STATUS_NOT_FOUND, EXIT_CODE_USAGE, "there is no %.128s",
			      call->path);
}

static void on_turn(struct call *call, void *unused)
{
	route_handle(call);
}

static void on_gone(struct call *call)
{
	privileges_forget(&call->node->privileges, call->proving);
}

static void reply_unproved(struct call *call, int rc)
{
	struct error err = {0};

	error_set(&err, EXIT_CODE_FAILED,
		  "the warden does not tell whether this is root of the host: %s",
		  strerrordesc_np(-rc));
	error_hint(&err, "ask as another user, or see `carve check`");
	call_reply_error(call, HTTP_STATUS_SERVICE_UNAVAILABLE, &err);
}

static void on_proved(void *context, int rc)
{
	struct call *call = context;

	if (rc < 0 && rc != -EPERM && rc != -ESRCH) {
		reply_unproved(call, rc);
		return;
	}
	if (rc < 0)
		peer_bound(&call->peer);
	call_fairly(call, on_turn, NULL);
}

/* This process cannot look into which user namespace another one is, and one may map all users to
 * themselves. So what root changes waits for the warden's word. */
void api_handle(struct call *call)
{
	struct privileges *privileges = &call->node->privileges;
	const struct browser_fields fields = {.host = call_field(call, HTTP_FIELD_HOST),
					      .origin = call_field(call, HTTP_FIELD_ORIGIN),
					      .site = call_field(call, HTTP_FIELD_SITE)};
	const char *refusal = browser_refusal(&fields, call->method);

	/* The user whose cookie it is has the turn, and not the door. */
	if (api_door_is(call)) {
		if (api_door_enter(call))
			call_fairly(call, on_turn, NULL);
		return;
	}
	if (refusal) {
		answer_failed(call, HTTP_STATUS_FORBIDDEN, EXIT_CODE_NOT_PERMITTED, "%s", refusal);
		return;
	}
	if (call->peer.uid != 0 || call->peer.of_pod || !strcmp(call->method, "GET") ||
	    !privileges_guarded(privileges)) {
		route_handle(call);
		return;
	}
	call->proving = privileges_root_ask(privileges, call->peer.process, on_proved, call);
	if (call->proving)
		call_defer(call, on_gone);
	else
		reply_unproved(call, -ENOMEM);
}
