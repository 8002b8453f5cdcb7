/* carve job events: prints changes of jobs as they come, or tells of ends.
 *
 * Changes are printed from now on. Changes that come while nobody listens are not told. Ends are
 * numbered on the disk, and events/follow.c reads them. */
#include <stdio.h>
#include <stdlib.h>

#include "base/error.h"
#include "cli/cli.h"
#include "cli/events/follow.h"
#include "cli/job/jobs.h"
#include "cli/output.h"
#include "client/client.h"
#include "client/sessions.h"

static const struct client_patience patience = {.wait_ns = UINT64_MAX / 2};

static int event_print(const struct cli *cli, const json_t *event, struct error *err)
{
	int rc = 0;

	if (cli->value[OPT_JSON])
		rc = output_json_line(event, err);
	else
		printf("job %s: %s\n", session_text(event, "id"), session_text(event, "state"));
	if (rc == 0 && fflush(stdout) == EOF)
		rc = error_set(err, EXIT_CODE_FAILED, "cannot write to standard output");
	return rc;
}

int job_changes_print(const struct cli *cli, struct error *err)
{
	cleanup_json json_t *first = NULL;
	struct client client;
	int rc = client_open(&client, cli->value[OPT_HOST], err);

	if (rc < 0 || (rc = client_call(&client, "GET", "/v1/jobs/events?from=999999999999999",
					NULL, NULL, &first, err)) < 0)
		return rc;
	uint64_t from = session_number(first, "next");
	for (;;) {
		cleanup_json json_t *answer = NULL;
		char path[JOB_PATH_SIZE];
		size_t i;
		json_t *event;

		snprintf(path, sizeof(path), "/v1/jobs/events?wait=1&from=%llu",
			 (unsigned long long)from);
		if ((rc = client_call(&client, "GET", path, NULL, &patience, &answer, err)) < 0)
			return rc;
		json_array_foreach(json_object_get(answer, "events"), i, event)
		{
			if ((rc = event_print(cli, event, err)) < 0)
				return rc;
		}
		from = session_number(answer, "next");
	}
}

static const char *end_name(const json_t *end, char *buf, size_t size)
{
	snprintf(buf, size, "the end of job %s, %s", session_text(end, "id"),
		 session_text(end, "state"));
	return buf;
}

static void end_environment(const json_t *end)
{
	setenv("CARVE_JOB_ID", session_text(end, "id"), 1);
	setenv("CARVE_JOB_QUEUE", session_text(end, "queue"), 1);
	setenv("CARVE_JOB_STATE", session_text(end, "state"), 1);
}

int cli_job_events(struct cli *cli, struct error *err)
{
	static const struct follow_source ends = {
		.verb = "job events",
		.path = "/v1/jobs/ends",
		.filters = "",
		.list = "ends",
		.one = "end",
		.many = "ends",
		.store = "database of jobs",
		.cursor_file = "events.json",
		.environment = end_environment,
		.name = end_name,
		.print = event_print,
	};

	return follow_is_asked(cli) ? follow(cli, &ends, err) : job_changes_print(cli, err);
}
