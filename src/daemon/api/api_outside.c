#include "daemon/api/api_outside.h"

#include <http_parser.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "base/macros.h"
#include "daemon/api/answer.h"
#include "daemon/api/fresh.h"
#include "daemon/api/http.h"
#include "daemon/api/limits_row.h"
#include "daemon/api/view.h"
#include "daemon/node.h"

/* Programs in one answer. */
#define PROGRAMS_MAX 256u

static const char *const spared_names[] = {
	[OUTSIDE_SPARED_NOT] = NULL,
	[OUTSIDE_SPARED_ROOT] = "root",
	[OUTSIDE_SPARED_SYSTEM] = "system_user",
	[OUTSIDE_SPARED_USERS] = "several_users",
	[OUTSIDE_SPARED_EXEMPT] = "exempt",
	[OUTSIDE_SPARED_GRAPHICS] = "graphics",
	[OUTSIDE_SPARED_NAMESPACE] = "namespace",
	[OUTSIDE_SPARED_UNPROVED] = "unproved",
	[OUTSIDE_SPARED_REFUSED] = "refused",
};
_Static_assert(ARRAY_SIZE(spared_names) == OUTSIDE_SPARED_COUNT, "each reason has a name");

static const char *const state_names[] = {
	[OUTSIDE_SEEN] = "seen",      [OUTSIDE_REPORTED] = "reported",
	[OUTSIDE_WARNED] = "warned",  [OUTSIDE_TERMINATED] = "ending",
	[OUTSIDE_KILLED] = "killing",
};

/* Whether /proc shows users the processes of others. The owner and the command of a program are no
 * secret then. */
static bool proc_shows_others(void)
{
	static int shows = -1;
	char line[1024];

	if (shows >= 0)
		return shows;
	FILE *file = fopen("/proc/self/mounts", "re");
	shows = file != NULL;
	while (file && fgets(line, sizeof(line), file))
		if (strstr(line, " /proc proc ") && strstr(line, "hidepid=") &&
		    !strstr(line, "hidepid=0") && !strstr(line, "hidepid=off"))
			shows = 0;
	if (file)
		(void)fclose(file);
	return shows;
}

static json_t *gpus_json(const struct node *node, const struct outsider *x)
{
	json_t *list = json_array();

	for (uint32_t i = 0; i < node->pool.count; i++) {
		const struct pool_gpu *gpu = &node->pool.gpu[i];

		if (!(x->gpus >> i & 1))
			continue;
		json_array_append_new(
			list, json_pack("{s:i, s:s, s:o}", "index", (int)gpu->info.index, "uuid",
					gpu->info.uuid_text, "memory_bytes",
					answer_number(gpu_sample_process_bytes(&gpu->sample,
									       x->id.pid))));
	}
	return list;
}

/* Null: nobody ends it. */
static json_t *left_json(const struct outsiders *outsiders, const struct outsider *x)
{
	bool ends = outsiders->setting.kills && !outsiders->problem[0] &&
		    x->spared == OUTSIDE_SPARED_NOT;

	return ends ? json_real((double)outside_left_ns(&x->life, outsiders->setting.after_ns) /
				1e9)
		    : json_null();
}

static json_t *program_json(const struct node *node, const struct outsider *x,
			    const struct peer *viewer)
{
	const char *spared = spared_names[x->spared];
	bool shown = proc_shows_others() ||
		     (x->facts.one_user ? peer_permitted(viewer, x->facts.uid) : viewer->admin);
	/* A program with several users has no owner to be told. */
	bool known = shown && x->facts.one_user;

	return json_pack(
		"{s:i, s:o, s:o, s:o, s:o, s:o, s:o, s:s, s:o, s:o}", "pid", (int)x->id.pid,
		"owner", known ? json_string(view_user(x->facts.uid)) : json_null(), "uid",
		known ? json_integer(x->facts.uid) : json_null(), "command",
		shown ? json_string(x->command) : json_null(), "since", view_time(x->since),
		"memory_bytes", answer_number(outsider_bytes(&node->outsiders, x)), "gpus",
		gpus_json(node, x), "state", state_names[x->life.state], "spared",
		spared ? json_string(spared) : json_null(), "ends_in_s",
		left_json(&node->outsiders, x));
}

static json_t *names_json(const struct exempt_names *names)
{
	json_t *list = json_array();

	for (uint32_t i = 0; i < names->count; i++)
		json_array_append_new(list, json_string(names->name[i]));
	return list;
}

static void answer_outside(struct call *call, void *arg)
{
	const struct outsiders *outsiders = &call->node->outsiders;
	json_t *list = json_array();
	uint32_t more = 0;

	for (const struct outsider *x = outsiders->first; x; x = x->next) {
		if (!x->since)
			continue; /* it is in a slice */
		if (json_array_size(list) < PROGRAMS_MAX)
			json_array_append_new(list, program_json(call->node, x, &call->peer));
		else
			more++;
	}
	call_reply(call, HTTP_STATUS_OK,
		   json_pack("{s:s, s:f, s:o, s:{s:o, s:o}, s:o, s:i}", "policy",
			     outsiders->setting.kills ? "kill" : "report", "seconds",
			     (double)outsiders->setting.after_ns / 1e9, "problem",
			     outsiders->problem[0] ? json_string(outsiders->problem) : json_null(),
			     "exempt", "users", names_json(&outsiders->exempt.users.names),
			     "groups", names_json(&outsiders->exempt.groups.names), "programs",
			     list, "more", (int)more));
}

void api_get_outside(struct call *call, const char *id)
{
	fresh_defer(call, answer_outside, NULL);
}

/* An exempt user's programs are let be, as those of root's and of system users. */
void api_outside_limits(struct limits_view *view)
{
	const struct outsiders *outsiders = &view->node->outsiders;
	bool kills = outsiders->setting.kills;
	bool binds = kills && outside_user_is_ordinary(view->whose.uid) &&
		     !exempt_has(&outsiders->exempt, view->whose.uid, view->whose.process.pid);

	limits_add(view, &(struct limit_row){.limit = "outside_policy",
					     .title = "programs outside of slices",
					     .unit = LIMIT_TEXT,
					     .text = binds   ? "kill"
						     : kills ? "exempt"
							     : "report",
					     .used = LIMITS_NONE,
					     .from = kills ? "carved.json" : "default",
					     .name = kills ? "outside_policy" : NULL});
	if (binds)
		limits_add(view, &(struct limit_row){.limit = "outside_seconds",
						     .title = "time outside of slices",
						     .unit = LIMIT_NS,
						     .most = outsiders->setting.after_ns,
						     .used = LIMITS_NONE,
						     .from = "carved.json",
						     .name = "outside_seconds"});
}
