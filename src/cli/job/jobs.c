/* carve job ..., carve queue ... */
#include "cli/job/jobs.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/error.h"
#include "base/file.h"
#include "base/macros.h"
#include "cli/cli.h"
#include "cli/columns.h"
#include "cli/job/job_options.h"
#include "cli/job/job_show.h"
#include "cli/output.h"
#include "client/client.h"
#include "client/sessions.h"

int job_path(const char *id, const char *suffix, char buf[static JOB_PATH_SIZE], struct error *err)
{
	size_t length = strlen(id);

	if (!length || length > 30 || strspn(id, "0123456789_") != length ||
	    !isdigit((unsigned char)*id)) {
		error_set(err, EXIT_CODE_USAGE, "'%.64s' is not the ID of a job", id);
		error_hint(err,
			   "for example: 17, or 17_3 of an array; `carve job list` shows them");
		return -EXIT_CODE_USAGE;
	}
	snprintf(buf, JOB_PATH_SIZE, "/v1/jobs/%s%s", id, suffix);
	return 0;
}

void jobs_failure_tell(const char *id, const json_t *jobs)
{
	const json_t *first = NULL;
	size_t i, failed = 0;
	json_t *job;

	json_array_foreach(jobs, i, job)
	{
		if (!strcmp(session_text(job, "state"), "done"))
			continue;
		if (!failed++)
			first = job;
	}
	if (json_array_size(jobs) > 1)
		fprintf(stderr, "carve: job %s: %zu of %zu jobs did not succeed\n", id, failed,
			json_array_size(jobs));
	fprintf(stderr, "carve: job %s: %s\n", session_text(first, "id"),
		session_text_or_dash(first, "reason"));
}

void job_waits_note(const json_t *answer, const char *queue)
{
	const char *id = session_text(answer, "id"), *why = session_text(answer, "reason");

	if (!*why)
		return;
	if (queue && strstr(why, "drained"))
		fprintf(stderr,
			"carve: note: job %s waits: %s (carve agent --resume %s ends that)\n", id,
			why, queue);
	else if (queue && !strncmp(why, "no agent", strlen("no agent")))
		fprintf(stderr,
			"carve: note: job %s waits: %s (carve agent --queue %s=N starts one)\n", id,
			why, queue);
	else
		fprintf(stderr, "carve: note: job %s waits: %s\n", id, why);
}

json_t *job_key(void)
{
	unsigned char random[12];
	char key[2 * sizeof(random) + 3] = "k-";

	if (getrandom(random, sizeof(random), 0) != sizeof(random))
		return NULL;
	for (size_t i = 0; i < sizeof(random); i++)
		snprintf(key + 2 + 2 * i, 3, "%02x", random[i]);
	return json_string(key);
}

int job_await(const struct client *client, const char *id, json_t **ret, struct error *err)
{
	return jobs_meant(client, id, true, ret, err);
}

int jobs_exit_code(const json_t *jobs)
{
	size_t i;
	json_t *job;

	json_array_foreach(jobs, i, job)
	{
		int code = (int)session_number(job, "exit_code");

		if (strcmp(session_text(job, "state"), "done") != 0)
			return code ? code : EXIT_CODE_FAILED;
	}
	return EXIT_CODE_OK;
}

/* ---- showing ------------------------------------------------------------------------------ */

static int get(const struct cli *cli, const char *path, json_t **ret, struct error *err)
{
	struct client client;
	int rc = client_open(&client, cli->value[OPT_HOST], err);

	return rc < 0 ? rc : client_call(&client, "GET", path, NULL, NULL, ret, err);
}

int cli_job_show(struct cli *cli, struct error *err)
{
	cleanup_json json_t *jobs = NULL;
	struct client client;
	char id[JOB_ID_SIZE];
	int rc = client_open(&client, cli->value[OPT_HOST], err);

	if (rc < 0 || (rc = job_id_find(&client, cli->arguments[0], false, id, err)) < 0 ||
	    (rc = jobs_meant(&client, id, false, &jobs, err)) < 0)
		return rc;
	bool one = json_array_size(jobs) == 1;
	if (cli->value[OPT_JSON])
		return output_json(one ? json_array_get(jobs, 0) : jobs, err);
	if (one)
		job_print(json_array_get(jobs, 0));
	else
		jobs_print(jobs);
	return 0;
}

/* In its queue, of the jobs that the caller may see: by priority, then by arrival. */
static size_t position_of(const json_t *job, const json_t *all)
{
	json_int_t mine = json_integer_value(json_object_get(job, "priority"));
	size_t i, ahead = 0;
	json_t *other;

	json_array_foreach(all, i, other)
	{
		json_int_t its = json_integer_value(json_object_get(other, "priority"));

		if (!strcmp(session_text(other, "queue"), session_text(job, "queue")) &&
		    !strcmp(session_text(other, "state"), "queued"))
			ahead += its != mine ? its > mine : job_came_before(other, job);
	}
	return ahead + 1;
}

/* Chooses the job of an array that is explained: the first that waits, else the first that has not
 * ended. */
static json_t *explained(json_t *jobs)
{
	static const char *const states[] = {"queued", "held", "starting", "running"};
	json_t *job;
	size_t i;

	for (size_t s = 0; s < ARRAY_SIZE(states); s++)
		json_array_foreach(jobs, i, job)
		{
			if (!strcmp(session_text(job, "state"), states[s]))
				return job;
		}
	return json_array_get(jobs, 0);
}

int cli_job_explain(struct cli *cli, struct error *err)
{
	cleanup_json json_t *jobs = NULL, *all = NULL;
	struct client client;
	char id[JOB_ID_SIZE];
	int rc = client_open(&client, cli->value[OPT_HOST], err);

	if (rc < 0 || (rc = job_id_find(&client, cli->arguments[0], false, id, err)) < 0 ||
	    (rc = jobs_meant(&client, id, false, &jobs, err)) < 0 ||
	    (rc = jobs_living(&client, "", &all, err)) < 0)
		return rc;
	cleanup_json json_t *alone = NULL;
	json_t *job = explained(jobs);
	/* The daemon tells what a job waits for if it is asked for that job alone. */
	if (json_array_size(jobs) > 1 &&
	    (rc = jobs_meant(&client, session_text(job, "id"), false, &alone, err)) < 0)
		return rc;
	if (json_array_size(alone) == 1)
		job = json_array_get(alone, 0);
	const char *state = session_text(job, "state");
	bool waits = !strcmp(state, "queued") || !strcmp(state, "held");
	size_t position = position_of(job, all);
	if (waits)
		json_object_set_new(job, "position", json_integer((json_int_t)position));
	if (cli->value[OPT_JSON])
		return output_json(job, err);
	printf("job %s is %s", session_text(job, "id"), state);
	if (*session_text(job, "reason"))
		printf(": %s", session_text(job, "reason"));
	printf("\n");
	if (waits)
		printf("position %zu of queue %s\n", position, session_text(job, "queue"));
	if (*session_text(job, "blocked_by") && !json_object_get(job, "starts_after"))
		printf("it waits for job %s\n", session_text(job, "blocked_by"));
	if (*session_text(job, "starts_by"))
		printf("it starts by %s\n", session_text(job, "starts_by"));
	return 0;
}

int cli_queue_list(struct cli *cli, struct error *err)
{
	static const struct column columns[] = {
		{"QUEUE", "name", FORMAT_TEXT},       {"SIZE", "size", FORMAT_KNOWN},
		{"WAITING", "waiting", FORMAT_COUNT}, {"RUNNING", "running", FORMAT_COUNT},
		{"AGENT", "agent", FORMAT_KNOWN},     {"REASON", "reason", FORMAT_KNOWN},
	};
	cleanup_json json_t *queues = NULL;
	int rc = get(cli, "/v1/queues", &queues, err);

	if (rc < 0)
		return rc;
	if (cli->value[OPT_JSON])
		return output_json(queues, err);
	table_print_rows(columns, ARRAY_SIZE(columns), queues);
	return 0;
}

/* The IDs that all words mean, as a list, owned by the caller. If there are several words, each job
 * is looked for first: a word that means no job costs the others nothing. */
static int ids_find(const struct cli *cli, const struct client *client, bool living, json_t **ret,
		    struct error *err)
{
	cleanup_json json_t *ids = json_array();

	for (int i = 0; i < cli->argument_count; i++) {
		cleanup_json json_t *answer = NULL;
		char path[JOB_PATH_SIZE], id[JOB_ID_SIZE];
		int rc = job_id_find(client, cli->arguments[i], living, id, err);

		if (rc == 0 && cli->argument_count > 1 &&
		    (rc = job_path(id, "?part=", path, err)) == 0)
			rc = client_call(client, "GET", path, NULL, NULL, &answer, err);
		if (rc < 0)
			return rc;
		json_array_append_new(ids, json_string(id));
	}
	*ret = steal_ptr(&ids);
	return 0;
}

int cli_job_wait(struct cli *cli, struct error *err)
{
	cleanup_json json_t *all = json_array(), *ids = NULL;
	struct client client;
	int rc = client_open(&client, cli->value[OPT_HOST], err), code = 0;

	if (rc == 0)
		rc = ids_find(cli, &client, false, &ids, err);
	for (size_t i = 0; rc >= 0 && i < json_array_size(ids); i++) {
		const char *id = json_string_value(json_array_get(ids, i));
		json_t *jobs = NULL;

		if ((rc = job_await(&client, id, &jobs, err)) < 0)
			return rc;
		int one = jobs_exit_code(jobs);
		if (one && !cli->value[OPT_JSON])
			jobs_failure_tell(id, jobs);
		code = code ? code : one;
		json_array_extend(all, jobs);
		json_decref(jobs);
	}
	if (rc < 0)
		return rc;
	if (cli->value[OPT_JSON] && (rc = output_json(all, err)) < 0)
		return rc;
	return code;
}

/* ---- changing ----------------------------------------------------------------------------- */

static int change_all(struct cli *cli, const char *method, const json_t *body, const char *done,
		      struct error *err)
{
	cleanup_json json_t *all = json_array(), *ids = NULL;
	struct client client;
	int rc = client_open(&client, cli->value[OPT_HOST], err);

	if (rc == 0)
		rc = ids_find(cli, &client, true, &ids, err);
	for (size_t i = 0; rc >= 0 && i < json_array_size(ids); i++) {
		const char *id = json_string_value(json_array_get(ids, i));
		cleanup_json json_t *answer = NULL;
		char path[JOB_PATH_SIZE];

		rc = job_path(id, "", path, err);
		if (rc >= 0)
			rc = client_call(&client, method, path, body, NULL, &answer, err);
		if (rc < 0)
			return rc;
		json_array_append(all, answer);
		job_waits_note(answer, cli->value[OPT_JOB_QUEUE]);
		if (!cli->value[OPT_JSON])
			printf("job %s: %s\n", id, done);
	}
	return rc < 0 || !cli->value[OPT_JSON] ? rc : output_json(all, err);
}

int cli_job_cancel(struct cli *cli, struct error *err)
{
	return change_all(cli, "DELETE", NULL, "cancelled", err);
}

static int hold_all(struct cli *cli, bool hold, struct error *err)
{
	cleanup_json json_t *body = json_pack("{s:b}", "hold", hold);

	return change_all(cli, "PATCH", body, hold ? "held" : "released", err);
}

int cli_job_hold(struct cli *cli, struct error *err)
{
	return hold_all(cli, true, err);
}

int cli_job_release(struct cli *cli, struct error *err)
{
	return hold_all(cli, false, err);
}

int cli_job_move(struct cli *cli, struct error *err)
{
	const char *queue = cli->value[OPT_JOB_QUEUE];

	if (!queue) {
		error_set(err, EXIT_CODE_USAGE, "job move: no queue is named");
		error_hint(err, "for example: %s", cli->verb->example);
		return -EXIT_CODE_USAGE;
	}
	cleanup_json json_t *body = json_pack("{s:s}", "queue", queue);
	return change_all(cli, "PATCH", body, "moved", err);
}

int cli_job_edit(struct cli *cli, struct error *err)
{
	cleanup_json json_t *body = json_object();
	int rc = job_options_read(cli, body, err);

	if (rc < 0)
		return rc;
	if (!json_object_size(body)) {
		error_set(err, EXIT_CODE_USAGE, "job edit: nothing is to be changed");
		error_hint(err, "for example: %s", cli->verb->example);
		return -EXIT_CODE_USAGE;
	}
	return change_all(cli, "PATCH", body, "changed", err);
}

int cli_job_again(struct cli *cli, struct error *err)
{
	cleanup_json json_t *body = json_object(), *answer = NULL;
	struct client client;
	char path[JOB_PATH_SIZE], id[JOB_ID_SIZE];
	int rc = job_options_read(cli, body, err);

	if (rc < 0 || (rc = client_open(&client, cli->value[OPT_HOST], err)) < 0 ||
	    (rc = job_id_find(&client, cli->arguments[0], false, id, err)) < 0 ||
	    (rc = job_path(id, "", path, err)) < 0)
		return rc;
	if (cli->value[OPT_JOB_FAILED])
		json_object_set_new(body, "failed", json_true());
	rc = client_call(&client, "POST", path, body, NULL, &answer, err);
	if (rc < 0)
		return rc;
	job_waits_note(answer, cli->value[OPT_JOB_QUEUE]);
	if (cli->value[OPT_JSON])
		return output_json(answer, err);
	printf("%s\n", session_text(answer, "id"));
	return 0;
}
