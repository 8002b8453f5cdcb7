#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/units.h"
#include "cli/cli.h"
#include "cli/output.h"
#include "client/client.h"
#include "client/sessions.h"

static void gpu_print(const json_t *gpu)
{
	char size[UNITS_TEXT_SIZE], used[UNITS_TEXT_SIZE], peak[UNITS_TEXT_SIZE];

	printf("GPU %" PRIu64 ":     %s\n", session_number(gpu, "index"),
	       session_text(gpu, "name"));
	if (*session_text(gpu, "instance"))
		printf("  MIG:     %s, %s\n", session_text(gpu, "mig_profile"),
		       session_text(gpu, "instance"));
	printf("  size:    %s (%" PRIu64 " bytes)\n",
	       units_format_bytes(session_number(gpu, "vram_bytes"), size),
	       session_number(gpu, "vram_bytes"));
	if (session_number(gpu, "requested_bytes") > session_number(gpu, "vram_bytes") ||
	    (*session_text(gpu, "instance") &&
	     session_number(gpu, "requested_bytes") != session_number(gpu, "vram_bytes")))
		printf("  asked:   %s (%" PRIu64 " bytes)\n",
		       units_format_bytes(session_number(gpu, "requested_bytes"), used),
		       session_number(gpu, "requested_bytes"));
	printf("  used:    %s (%" PRIu64 " bytes)\n",
	       units_format_bytes(session_number(gpu, "used_bytes"), used),
	       session_number(gpu, "used_bytes"));
	if (json_is_integer(json_object_get(gpu, "peak_bytes")))
		printf("  peak:    %s\n",
		       units_format_bytes(session_number(gpu, "peak_bytes"), peak));
	if (json_object_get(gpu, "refused"))
		printf("  refused: %s\n",
		       units_format_count(session_number(gpu, "refused"), "allocation", size));
}

/* Prints a line only if there is a value. */
static void line_print(const char *title, const json_t *session, const char *key)
{
	const char *text = session_text(session, key);

	if (*text)
		printf("%s%s\n", title, text);
}

/* Where its GPUs' time is sliced: what it asked for and what it got. */
static void share_print(const json_t *session)
{
	const json_t *time = json_object_get(session, "timeslicing");
	double asked = 100 * json_number_value(json_object_get(session, "compute_request"));
	char waited[UNITS_TEXT_SIZE], overrun[UNITS_TEXT_SIZE];

	if (!json_is_object(time) && asked == 0)
		return;
	printf("GPU time:  %.4g%% asked, %.4g%% at most", asked,
	       100 * json_number_value(json_object_get(session, "compute_limit")));
	if (!json_is_object(time)) {
		puts("; none measured");
		return;
	}
	printf("; received %.4g%% in the last plan, %.4g%% in the last minute\n",
	       100 * json_number_value(json_object_get(time, "received")),
	       100 * json_number_value(json_object_get(time, "received_minute")));
	printf("leases:    %" PRIu64 ", waited %s, overrun %s\n", session_number(time, "leases"),
	       units_format_rough_duration(session_number(time, "waited_ns"), waited),
	       units_format_rough_duration(session_number(time, "overrun_ns"), overrun));
}

/* Since when it has used no GPU time, and what follows. */
static void idle_print(const json_t *session)
{
	const char *since = session_text(session, "idle_since"),
		   *release = session_text(session, "idle_release_at");

	line_print("idle:      not known, as ", session, "idle_unknown");
	if (!*since)
		return;
	printf("idle:      since %s", since);
	if (*release)
		printf("; it is released at %s unless it uses GPU time%s", release,
		       json_is_true(json_object_get(session, "idle_warned")) ? " (soon)" : "");
	putchar('\n');
}

static void pids_print(const char *what, const json_t *pids)
{
	size_t i;
	json_t *pid;

	printf("%s", what);
	json_array_foreach(pids, i, pid) printf(" %" JSON_INTEGER_FORMAT, json_integer_value(pid));
	printf("%s\n", i ? "" : " none");
}

/* Memory that bypassed the slice, if any. */
static void around_print(const json_t *session)
{
	uint64_t over = session_number(session, "over_bytes");
	const json_t *strays = json_object_get(session, "stray_pids");
	char size[UNITS_TEXT_SIZE];

	if (json_array_size(strays))
		pids_print("not held:  processes that bypassed the slice:", strays);
	if (over)
		printf("beyond:    %s more than the slice is held, by the driver's figures\n",
		       units_format_bytes(over, size));
	if (session_number(session, "over_killed"))
		printf("killed:    %" PRIu64 " of its processes, as it held %s more than the slice "
		       "(over_policy)\n",
		       session_number(session, "over_killed"),
		       units_format_bytes(session_number(session, "over_killed_bytes"), size));
}

/* Those that the owner had recorded. */
static void commands_print(const json_t *commands)
{
	size_t i;
	json_t *command;

	json_array_foreach(commands, i, command)
	{
		const json_t *code = json_object_get(command, "exit_code");

		printf("command:   %s, began %s", session_text(command, "command"),
		       session_text(command, "began"));
		if (json_is_integer(code))
			printf(", ended %s with exit status %" JSON_INTEGER_FORMAT "\n",
			       session_text(command, "ended"), json_integer_value(code));
		else
			puts(", no exit status is known");
	}
}

static void session_print(const json_t *session)
{
	size_t i;
	json_t *item;

	printf("session:   %s, %s\n", session_text(session, "id"), session_text(session, "state"));
	if (*session_name_text(session))
		printf("name:      %s\n", session_name_text(session));
	printf("owner:     %s\n", session_text(session, "owner"));
	/* To the second: one that did not wait was created when it was requested. */
	if (strncmp(session_text(session, "created"), session_text(session, "requested"),
		    strlen("2026-11-30T08:00:00")) != 0)
		line_print("requested: ", session, "requested");
	printf("created:   %s\n", session_text(session, "created"));
	line_print("ends at:   ", session, "ends_at");
	idle_print(session);
	line_print("ended:     ", session, "ended");
	line_print(session_number(session, "position") ? "waits for: " : "because:   ", session,
		   "reason");
	line_print("again:     ", session, "request_again");
	line_print("backend:   ", session, "backend");
	line_print("front only:", session, "front_only_reason");
	pids_print("processes:", json_object_get(session, "pids"));
	if (json_array_size(json_object_get(session, "ended_pids")))
		pids_print("ended:     the driver has not given back the memory of process",
			   json_object_get(session, "ended_pids"));
	if (json_array_size(json_object_get(session, "command_pids")))
		pids_print("commands: ", json_object_get(session, "command_pids"));
	commands_print(json_object_get(session, "commands"));
	around_print(session);
	share_print(session);
	json_array_foreach(json_object_get(session, "gpus"), i, item) gpu_print(item);
	if (json_is_true(json_object_get(session, "tolerance_applied")))
		puts("the 93% rule was applied: no GPU had all that was asked for");
}

int cli_session_show(struct cli *cli, struct error *err)
{
	struct client client;
	cleanup_json json_t *session = NULL;
	int rc = client_open(&client, cli->value[OPT_HOST], err);

	if (rc < 0 || (rc = session_get(&client, session_meant(&client, cli->arguments[0]),
					&session, err)) < 0)
		return rc;
	if (cli->value[OPT_JSON])
		return output_json(session, err);
	session_print(session);
	return 0;
}
