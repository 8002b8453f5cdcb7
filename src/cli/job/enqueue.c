/* carve enqueue: puts a command into a queue. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "cli/cli.h"
#include "cli/job/job_follow.h"
#include "cli/job/job_input.h"
#include "cli/job/job_options.h"
#include "cli/job/job_paths.h"
#include "cli/job/jobs.h"
#include "cli/output.h"
#include "client/client.h"
#include "client/sessions.h"

static int body_make(const struct cli *cli, json_t *body, struct error *err)
{
	json_t *argv = json_array(), *key = job_key();

	for (int i = 0; i < cli->argument_count; i++)
		if (json_array_append_new(argv, json_string(cli->arguments[i])) < 0) {
			json_decref(argv);
			json_decref(key);
			error_set(err, EXIT_CODE_USAGE, "a word of the command is not UTF-8");
			error_hint(err, "put the command into a script");
			return -EXIT_CODE_USAGE;
		}
	json_object_set_new(body, "argv", argv);
	if (!*cli->arguments[0]) {
		json_decref(key);
		error_set(err, EXIT_CODE_USAGE, "enqueue: the command is an empty word");
		error_hint(err, "for example: %s", cli->verb->example);
		return -EXIT_CODE_USAGE;
	}
	if (key)
		json_object_set_new(body, "id", key);
	if (!cli->value[OPT_JOB_QUEUE]) {
		error_set(err, EXIT_CODE_USAGE, "enqueue: no queue is named");
		error_hint(err, "for example: %s", cli->verb->example);
		return -EXIT_CODE_USAGE;
	}
	int rc = job_options_read(cli, body, err);
	if (rc >= 0)
		rc = job_options_new(cli, body, err);
	return rc < 0 ? rc : job_paths_check(body, err);
}

static int wait_for(const struct cli *cli, const struct client *client, const json_t *answer,
		    struct job_input *input, struct error *err)
{
	cleanup_json json_t *jobs = NULL;
	const char *id = session_text(answer, "id");
	int rc = job_follow(client, id, session_number(answer, "count") == 1, !cli->value[OPT_JSON],
			    input, &jobs, err);

	if (rc != 0)
		return rc;
	if (cli->value[OPT_JSON] && (rc = output_json(jobs, err)) < 0)
		return rc;
	int code = jobs_exit_code(jobs);
	if (code && !cli->value[OPT_JSON])
		jobs_failure_tell(id, jobs);
	return code;
}

/* A job alone reads standard input of `--wait`, as srun has it. */
static void input_begin(const struct cli *cli, json_t *body, struct job_input *ret)
{
	*ret = (struct job_input){.in = -1, .out = -1};
	if (!cli->value[OPT_JOB_WAIT] || cli->value[OPT_JOB_INPUT] || cli->value[OPT_JOB_ARRAY] ||
	    cli->value[OPT_JOB_PARAM])
		return;
	job_input_begin(ret);
	if (*ret->path)
		json_object_set_new(body, "wait_in", json_string(ret->path));
}

static int enqueue(const struct cli *cli, const json_t *body, struct job_input *input,
		   struct error *err)
{
	cleanup_json json_t *answer = NULL;
	struct client client;
	int rc = client_open(&client, cli->value[OPT_HOST], err);

	if (rc < 0)
		return rc;
	rc = client_call(&client, "POST", "/v1/jobs", body, NULL, &answer, err);
	if (rc < 0)
		return rc;
	const char *id = session_text(answer, "id");
	job_waits_note(answer, cli->value[OPT_JOB_QUEUE]);
	if (cli->value[OPT_JOB_WAIT] && cli->value[OPT_JOB_HOLD])
		fprintf(stderr,
			"carve: note: job %s is held, and this waits for its end; start it: "
			"carve job release %s\n",
			id, id);
	if (cli->value[OPT_JOB_WAIT])
		return wait_for(cli, &client, answer, input, err);
	if (cli->value[OPT_JSON])
		return output_json(answer, err);
	if (printf("%s\n", id) >= 0 && fflush(stdout) == 0)
		return 0;
	error_set(err, EXIT_CODE_FAILED, "job %s is enqueued, but its ID cannot be printed: %s", id,
		  strerrordesc_np(errno));
	error_hint(err, "`carve job show %s` shows it, and `carve job cancel %s` ends it", id, id);
	return -EXIT_CODE_FAILED;
}

int cli_enqueue(struct cli *cli, struct error *err)
{
	cleanup_json json_t *body = json_object();
	struct job_input input;
	int rc = body_make(cli, body, err);

	if (rc < 0)
		return rc;
	input_begin(cli, body, &input);
	rc = enqueue(cli, body, &input, err);
	job_input_end(&input);
	return rc;
}
