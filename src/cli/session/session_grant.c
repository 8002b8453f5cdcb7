#include "cli/session/session_grant.h"

#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/units.h"
#include "cli/cli.h"
#include "cli/session/slice_request.h"
#include "client/client.h"
#include "client/sessions.h"

struct waiting {
	const struct client *client;
	const struct slice_request *request;
	bool said;
	char told[1024]; /* the last time */
};

/* This process's own request, as the daemon shows it: at which place it waits, and why. */
static void wait_describe(const struct waiting *waiting, char *buf, size_t size)
{
	cleanup_json json_t *sessions = NULL;
	struct error ignored;
	size_t i;
	json_t *session;

	buf[0] = '\0';
	if (client_call(waiting->client, "GET", "/v1/sessions", NULL, NULL, &sessions, &ignored) <
	    0)
		return;
	json_array_foreach(sessions, i, session)
	{
		if (!strcmp(session_text(session, "state"), "waiting") &&
		    session_number(session, "requester_pid") == (uint64_t)getpid())
			snprintf(buf, size, ", at place %" PRIu64 ": %s",
				 session_number(session, "position"),
				 session_text(session, "reason"));
	}
}

static void wait_tell(void *context)
{
	struct waiting *waiting = context;
	char wanted[UNITS_TEXT_SIZE], now[sizeof(waiting->told)];

	wait_describe(waiting, now, sizeof(now));
	if (waiting->said && !strcmp(now, waiting->told))
		return;
	waiting->said = true;
	memcpy(waiting->told, now, sizeof(now));
	fprintf(stderr, "carve: waiting up to %" PRIu64 " s for %s%s (Ctrl-C gives up)\n",
		waiting->request->wait_ns / 1000000000,
		waiting->request->place.bytes
			? units_format_bytes(waiting->request->place.bytes, wanted)
			: "room",
		now);
}

int session_grant_request(const struct client *client, const struct slice_request *request,
			  json_t **ret, struct error *err)
{
	struct waiting waiting = {.client = client, .request = request};
	struct client_patience patience = {
		.wait_ns = request->wait_ns,
		.slow = request->wait_ns && isatty(STDERR_FILENO) ? wait_tell : NULL,
		.slow_context = &waiting,
	};

	return client_session_request(client, request->body, &patience, ret, err);
}

/* Whether all of its GPUs have the same under this key, a number or a text. */
static bool gpus_same(const json_t *session, const char *key)
{
	const json_t *gpus = json_object_get(session, "gpus"), *first = json_array_get(gpus, 0);
	size_t i;
	json_t *gpu;

	json_array_foreach(gpus, i, gpu) if (!json_equal(json_object_get(gpu, key),
							 json_object_get(first, key))) return false;
	return true;
}

/* Where the GPUs differ, what was granted on each of them. */
static void grant_gpus_print(FILE *out, const char *prefix, const json_t *gpus)
{
	char size[UNITS_TEXT_SIZE], asked[UNITS_TEXT_SIZE];
	size_t i;
	json_t *gpu;

	json_array_foreach(gpus, i, gpu)
	{
		uint64_t bytes = session_number(gpu, "vram_bytes"),
			 requested = session_number(gpu, "requested_bytes");

		fprintf(out, "%s  GPU %" PRIu64 ": %s (%" PRIu64 " bytes)%s%s, %s\n", prefix,
			session_number(gpu, "index"), units_format_bytes(bytes, size), bytes,
			requested > bytes ? " of " : "",
			requested > bytes ? units_format_bytes(requested, asked) : "",
			session_text(gpu, "name"));
	}
}

static void tolerance_print(FILE *out, const char *prefix, const json_t *session)
{
	uint64_t requested = session_number(session, "requested_bytes"),
		 granted = session_number(session, "vram_bytes");
	char size[UNITS_TEXT_SIZE], asked[UNITS_TEXT_SIZE];

	fprintf(out, "%sthe 93%% rule was applied", prefix);
	units_format_bytes(requested, asked);
	units_format_bytes(granted, size); /* as the line above has it */
	if (gpus_same(session, "vram_bytes") && strcmp(asked, size) != 0)
		fprintf(out, ": %s asked for, %s left and granted", asked, size);
	else if (gpus_same(session, "vram_bytes"))
		fprintf(out, ": %" PRIu64 " bytes asked for, %" PRIu64 " left and granted",
			requested, granted);
	fputs(" (--vram-strict switches that off)\n", out);
}

/* The next smaller profile, and what it has too little of. */
static void near_print(FILE *out, const char *prefix, const json_t *session)
{
	const json_t *near = json_object_get(session, "mig_near");
	const char *profile = session_text(near, "profile");
	uint64_t bytes = session_number(near, "memory_bytes");
	char size[UNITS_TEXT_SIZE], has[UNITS_TEXT_SIZE + 48];

	if (!near)
		return;
	if (bytes < session_number(session, "requested_bytes"))
		snprintf(has, sizeof(has), "holds %s", units_format_bytes(bytes, size));
	else
		snprintf(has, sizeof(has), "has %.3g%% of the compute",
			 100 * json_number_value(json_object_get(near, "compute")));
	fprintf(out, "%s%s %s: --mig-profile %s is enough where that is\n", prefix, profile, has,
		profile);
}

/* The size that was asked for, and the instance that it became. */
static void mig_print(const struct cli *cli, FILE *out, const char *prefix, const json_t *session)
{
	const char *profile = session_text(session, "mig_profile");
	const char *fraction = cli->value[OPT_GPU], *compute = cli->value[OPT_GPU_COMPUTE];
	char asked[UNITS_TEXT_SIZE];

	if (!*profile)
		return;
	if (json_is_true(json_object_get(session, "mig_shared"))) {
		fprintf(out, "%sin a MIG instance %s that others may share\n", prefix, profile);
		return;
	}
	if (cli->value[OPT_MIG_PROFILE]) {
		fprintf(out, "%sMIG instance %s, as asked for\n", prefix, profile);
		return;
	}
	units_format_bytes(session_number(session, "requested_bytes"), asked);
	/* A fraction counts memory units: its bytes would look like more than was granted. */
	if (fraction)
		fprintf(out, "%sMIG instance %s for --gpu %.32s", prefix, profile, fraction);
	else
		fprintf(out, "%sMIG instance %s for the %s", prefix, profile, asked);
	if (compute)
		fprintf(out, "%s%.32s of the compute", fraction ? ", " : " and ", compute);
	fputs(fraction ? "\n" : " that were asked for\n", out);
	near_print(out, prefix, session);
}

/* The key of carved.json that sets the end of a session without --session-timeout. */
static void timeout_key(const struct cli *cli, char *buf, size_t size)
{
	cleanup_json json_t *answer = NULL;
	struct client client;
	struct error ignored;
	size_t i;
	json_t *row;

	buf[0] = '\0';
	if (client_open(&client, cli->value[OPT_HOST], &ignored) < 0 ||
	    client_call(&client, "GET", "/v1/limits", NULL, NULL, &answer, &ignored) < 0)
		return;
	json_array_foreach(json_object_get(answer, "limits"), i, row)
	{
		if (!strcmp(session_text(row, "limit"), "session_timeout_default_ns"))
			snprintf(buf, size, "%s", session_text(row, "name"));
	}
}

/* An administrator's default is the user's surprise. A session that was there before may have got
 * its end by its own request. */
static void end_print(const struct cli *cli, FILE *out, const char *prefix, const json_t *session)
{
	const char *ends = session_text(session, "ends_at");
	bool made_now = cli_verb_takes(cli->verb, OPT_SESSION_TIMEOUT) &&
			(json_is_true(json_object_get(session, "ephemeral")) ||
			 !strcmp(cli->verb->name, "session request"));
	char key[64] = "";

	if (!*ends || cli->value[OPT_SESSION_TIMEOUT])
		return;
	if (made_now)
		timeout_key(cli, key, sizeof(key));
	fprintf(out, "%sit ends at %s", prefix, ends);
	if (*key)
		fprintf(out, " by %s in carved.json, as no --session-timeout was given", key);
	fputc('\n', out);
}

void session_grant_print(const struct cli *cli, FILE *out, const char *prefix,
			 const json_t *session)
{
	const json_t *gpus = json_object_get(session, "gpus");
	bool same_size = gpus_same(session, "vram_bytes"), same_model = gpus_same(session, "name");
	uint64_t bytes = same_size ? session_number(session, "vram_bytes")
				   : session_gpus_sum(session, "vram_bytes");
	char size[UNITS_TEXT_SIZE], on[SESSION_GPUS_SIZE], instances[64] = "";

	if (*session_text(session, "mig_profile"))
		snprintf(instances, sizeof(instances), "in each of %zu instances on ",
			 json_array_size(gpus));
	fprintf(out, "%s%s: %s (%" PRIu64 " bytes) %s%s", prefix, session_text(session, "id"),
		units_format_bytes(bytes, size), bytes,
		!same_size                  ? "in all on "
		: json_array_size(gpus) < 2 ? "on "
		: instances[0]              ? instances
					    : "on each of ",
		session_gpus_text(session, on));
	if (same_size && same_model) {
		fprintf(out, ", %s\n", session_text(json_array_get(gpus, 0), "name"));
	} else {
		fputs(":\n", out);
		grant_gpus_print(out, prefix, gpus);
	}
	mig_print(cli, out, prefix, session);
	if (json_is_true(json_object_get(session, "tolerance_applied")))
		tolerance_print(out, prefix, session);
	end_print(cli, out, prefix, session);
}

/* An end that nobody but the daemon knows the cause of: of the others, one has no processes left
 * and the other is the command's own end. */
bool session_end_text(const json_t *session, char buf[static SESSION_END_SIZE])
{
	const char *state = session_text(session, "state"),
		   *reason = session_text(session, "reason");

	if (!strcmp(state, "active") || !*reason || !strcmp(reason, "released") ||
	    !strcmp(reason, "its command ended"))
		return false;
	snprintf(buf, SESSION_END_SIZE, "carve: session %.64s ended: %s",
		 session_text(session, "id"), reason);
	return true;
}

/* A command that carved ended for holding more than the slice died of a signal that says nothing.
 * In a session that is shared it may have been another command's. */
bool session_killed_text(const json_t *before, const json_t *after,
			 char buf[static SESSION_KILLED_SIZE])
{
	uint64_t killed =
		session_number(after, "over_killed") - session_number(before, "over_killed");
	char count[UNITS_TEXT_SIZE], held[UNITS_TEXT_SIZE];

	if (killed)
		snprintf(buf, SESSION_KILLED_SIZE,
			 "carve: carved's policy (over_policy) ended %s of session %.64s: it held "
			 "%s more than its slice, by the driver's figures",
			 units_format_count(killed, "process", count), session_text(after, "id"),
			 units_format_bytes(session_number(after, "over_killed_bytes"), held));
	return killed;
}
