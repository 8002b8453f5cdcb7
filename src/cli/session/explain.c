/* Why a request waits, or what would become of one. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/units.h"
#include "cli/cli.h"
#include "cli/gpu_owners.h"
#include "cli/output.h"
#include "cli/session/slice_request.h"
#include "cli/split_unit.h"
#include "client/client.h"
#include "client/sessions.h"

/* "nearly": a request that is granted is granted a little less than it asked for (93%). */
static const char *fit_text(const json_t *gpu, const json_t *explanation)
{
	size_t i;
	json_t *on;

	if (!strcmp(session_text(gpu, "reason"), "fits"))
		return "yes";
	json_array_foreach(json_object_get(explanation, "on"), i,
			   on) if (session_number(on, "index") ==
				   session_number(gpu, "index")) return "nearly";
	return "no";
}

static void gpus_print(const json_t *explanation)
{
	static const char *const headings[] = {"GPU",      "NAME", "ASKED", "AVAILABLE",
					       "CAPACITY", "FITS", "WHY",   NULL};
	cleanup_table struct table table;
	size_t i;
	json_t *gpu;

	table_begin(&table, headings);
	json_array_foreach(json_object_get(explanation, "gpus"), i, gpu)
	{
		char text[UNITS_TEXT_SIZE];
		uint64_t requested = session_number(gpu, "requested_bytes");

		table_add(&table, "%" PRIu64, session_number(gpu, "index"));
		table_add(&table, "%s", session_text(gpu, "name"));
		table_add(&table, "%s", requested ? units_format_bytes(requested, text) : "-");
		table_add(&table, "%s",
			  units_format_room(session_number(gpu, "available_bytes"), text));
		table_add(&table, "%s",
			  units_format_room(session_number(gpu, "capacity_bytes"), text));
		table_add(&table, "%s", fit_text(gpu, explanation));
		table_add(&table, "%s", session_text(gpu, "message"));
	}
	table_print(&table);
}

/* The refusal lists the GPUs, as many as a line holds; here a table does. */
static int message_length(const char *message)
{
	const char *gpus = strstr(message, ": GPU ");

	return (int)(gpus ? (size_t)(gpus - message) : strlen(message));
}

static void verdict_print(const struct cli *cli, const json_t *explanation, bool waits)
{
	struct error why = {0};
	const char *message = why.message;
	const char *hint = why.hint;
	bool granted = json_is_true(json_object_get(explanation, "granted"));
	char size[UNITS_TEXT_SIZE];
	size_t i;
	json_t *on;

	snprintf(why.message, sizeof(why.message), "%s", session_text(explanation, "message"));
	snprintf(why.hint, sizeof(why.hint), "%s", session_text(explanation, "hint"));
	cli_error_name_option(cli, &why);
	printf("%s: ", session_text(explanation, "asked"));
	if (granted)
		printf("%s", waits ? "granted any moment" : "would be granted");
	else
		printf("%s: %.*s", waits ? "waits" : "would be refused", message_length(message),
		       message);
	json_array_foreach(json_object_get(explanation, "on"), i, on)
		printf("%s%s on GPU %" PRIu64, i ? ", " : ": ",
		       units_format_bytes(session_number(on, "vram_bytes"), size),
		       session_number(on, "index"));
	/* Which of several GPUs that have room it is. */
	printf("%s\n", i && json_array_size(json_object_get(explanation, "gpus")) > 1 &&
				       !strcmp(session_text(explanation, "placement"), "spread")
			       ? " (sessions are spread over GPUs)"
			       : "");
	if (json_is_true(json_object_get(explanation, "tolerance_applied")))
		printf("the 93%% rule is applied (--vram-strict switches that off)\n");
	if (!granted && !waits && *hint)
		printf("hint: %s\n", hint);
}

/* At most this many of those that go first are named. */
#define AHEAD_SHOWN 8

/* The requests that go first, if any; those of other users by their size, and by their owner where
 * that is shown. */
static void ahead_print(const json_t *explanation)
{
	const json_t *ahead = json_object_get(explanation, "ahead");
	size_t count = json_array_size(ahead), i;
	json_t *one;

	if (!count)
		return;
	printf("ahead of it:");
	json_array_foreach(ahead, i, one)
	{
		const char *id = session_text(one, "id");

		if (i == AHEAD_SHOWN)
			break;
		if (*id)
			printf("%s %s of %s (%s)", i ? "," : "", id, session_text(one, "owner"),
			       session_text(one, "asked"));
		else if (*session_text(one, "owner"))
			printf("%s a request of %s (%s)", i ? "," : "", session_text(one, "owner"),
			       session_text(one, "asked"));
		else
			printf("%s another user's (%s)", i ? "," : "", session_text(one, "asked"));
	}
	if (count > AHEAD_SHOWN)
		printf(" and %zu more", count - AHEAD_SHOWN);
	printf("\n");
}

/* ---- a request --------------------------------------------------------------------------- */

static int explain_request(const struct cli *cli, const struct client *client, struct error *err)
{
	cleanup_request struct slice_request request = {0};
	cleanup_json json_t *explanation = NULL;
	int rc = slice_request_read(cli, &request, err);

	if (rc < 0)
		return rc;
	if (cli->value[OPT_EPHEMERAL])
		json_object_set_new(request.body, "ephemeral", json_true());
	rc = client_call(client, "POST", "/v1/explain", request.body, NULL, &explanation, err);
	if (rc < 0)
		return rc;
	if (cli->value[OPT_JSON])
		return output_json(explanation, err);
	verdict_print(cli, explanation, false);
	ahead_print(explanation);
	gpus_print(explanation);
	gpu_owners_print(json_object_get(explanation, "gpus"));
	return 0;
}

/* ---- a session or a waiting request ------------------------------------------------------ */

static void waiting_print(const struct cli *cli, const json_t *session, const json_t *explanation)
{
	printf("%s: waits since %s, at place %" PRIu64 " in line\n", session_text(session, "id"),
	       session_text(session, "created"), session_number(session, "position"));
	verdict_print(cli, explanation, true);
	ahead_print(explanation);
	gpus_print(explanation);
	gpu_owners_print(json_object_get(explanation, "gpus"));
}

/* One that was granted: there is nothing to explain but where, and why it ended or what keeps it
 * from its GPU. */
static void granted_print(const json_t *session)
{
	const char *state = session_text(session, "state"),
		   *reason = session_text(session, "reason");
	char size[SESSION_SIZE_SIZE], on[SESSION_GPUS_SIZE];

	printf("%s: %s, granted %s: %s on %s%s%s\n", session_text(session, "id"), state,
	       session_text(session, "created"), session_size_text(session, size),
	       session_gpus_text(session, on),
	       !*reason                  ? ""
	       : !strcmp(state, "ended") ? "; ended: "
					 : "; ",
	       reason);
}

static int explain_session(const struct cli *cli, const struct client *client, struct error *err)
{
	cleanup_json json_t *session = NULL, *explanation = NULL;
	int rc = session_explain(client, cli->arguments[0], &session, &explanation, err);

	if (rc < 0)
		return rc;
	if (cli->value[OPT_JSON])
		return output_json(explanation, err);
	if (!strcmp(session_text(session, "state"), "waiting"))
		waiting_print(cli, session, explanation);
	else
		granted_print(session);
	return 0;
}

static bool is_sized(const struct cli *cli)
{
	return cli->value[OPT_VRAM] || cli->value[OPT_GPU_MEMORY] || cli->value[OPT_GPU] ||
	       cli->value[OPT_MIG_PROFILE];
}

int cli_explain(struct cli *cli, struct error *err)
{
	struct client client;
	char meant[SPLIT_UNIT_SIZE];

	if (is_sized(cli) == (cli->argument_count > 0)) {
		error_set(err, EXIT_CODE_USAGE, "explain: %s",
			  cli->argument_count ? "an ID and a size are both given"
					      : "no ID and no size given");
		error_hint(err, "for example: carve explain --vram 40 --gpus 2, or carve explain "
				"s-7k2m9q");
		if (cli->argument_count && split_unit_option(cli, cli->arguments[0], false, meant))
			error_hint(err, "did you mean %s?", meant);
		return -EXIT_CODE_USAGE;
	}
	int rc = client_open(&client, cli->value[OPT_HOST], err);
	if (rc < 0)
		return rc;
	return cli->argument_count ? explain_session(cli, &client, err)
				   : explain_request(cli, &client, err);
}
