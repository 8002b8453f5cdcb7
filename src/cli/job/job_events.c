/* carve job events: prints changes of jobs as they come, or tells of ends.
 *
 * Changes are printed from now on. Changes that come while nobody listens are not told. Ends have
 * numbers that the daemon keeps on the disk. A reader asks for the ends from a number on. It tells
 * an end to its command and its URL, and then writes the next number to its cursor file. So each
 * end is told at least once, whichever process or machine is started anew: an end whose number was
 * not written is told again.
 *
 * The daemon, the command, the server and the disk of the cursor can fail. The reader tries again
 * until they succeed, ever later up to a minute. It says so when one of them begins to fail, and
 * when it succeeds again. An end that cannot be told holds up the later ends: to pass it over would
 * break the promise. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/error.h"
#include "base/macros.h"
#include "base/units.h"
#include "cli/cli.h"
#include "cli/job/job_cursor.h"
#include "cli/job/job_tell.h"
#include "cli/job/jobs.h"
#include "cli/output.h"
#include "client/client.h"
#include "client/sessions.h"

#define AGAIN_LEAST_MS 1000u
#define AGAIN_MOST_MS 60000u
/* Numbers that JSON has exactly. */
#define NUMBER_MOST ((1ull << 53) - 1)

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

/* ---- changes ------------------------------------------------------------------------------- */

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

/* ---- trying again -------------------------------------------------------------------------- */

/* Something that can fail for a while. */
struct attempt {
	const char *again; /* the note that it succeeds again */
	unsigned pause_ms; /* 0: it did not fail the last time */
};

static void attempt_failed(struct attempt *attempt, const struct error *err)
{
	if (!attempt->pause_ms)
		fprintf(stderr, "carve: note: %s; carve tries again until it succeeds\n",
			err->message);
	attempt->pause_ms =
		attempt->pause_ms ? MIN(2 * attempt->pause_ms, AGAIN_MOST_MS) : AGAIN_LEAST_MS;
	nanosleep(&(struct timespec){.tv_sec = attempt->pause_ms / 1000,
				     .tv_nsec = attempt->pause_ms % 1000 * 1000000l},
		  NULL);
}

static void attempt_succeeded(struct attempt *attempt)
{
	if (attempt->pause_ms)
		fprintf(stderr, "carve: note: %s\n", attempt->again);
	attempt->pause_ms = 0;
}

/* ---- ends ---------------------------------------------------------------------------------- */

struct reader {
	const struct cli *cli;
	struct job_tell tell;
	struct job_cursor cursor;
	struct client client;
	bool follows; /* it has begun: answers wait until there are ends */
	struct attempt daemon, command, url, disk;
};

static void cursor_save(struct reader *reader)
{
	struct error err = {0};

	while (job_cursor_save(&reader->cursor, &err) < 0)
		attempt_failed(&reader->disk, &err);
	attempt_succeeded(&reader->disk);
}

/* The command is not run again where only the URL failed. */
static int end_tell(struct reader *reader, const json_t *end, struct error *err)
{
	if (!reader->tell.command && !reader->tell.url)
		return event_print(reader->cli, end, err);
	while (reader->tell.command && job_tell_command(&reader->tell, end, err) < 0)
		attempt_failed(&reader->command, err);
	attempt_succeeded(&reader->command);
	while (reader->tell.url && job_tell_url(&reader->tell, end, err) < 0)
		attempt_failed(&reader->url, err);
	attempt_succeeded(&reader->url);
	return 0;
}

/* The ends from a number on; from 0: none, and the number of the next one. */
static int ends_get(const struct reader *reader, uint64_t from, json_t **ret, struct error *err)
{
	char path[JOB_PATH_SIZE];

	snprintf(path, sizeof(path), "/v1/jobs/ends?wait=%d&from=%llu", reader->follows,
		 (unsigned long long)from);
	return client_call(&reader->client, "GET", from ? path : "/v1/jobs/ends", NULL, &patience,
			   ret, err);
}

/* Whether the numbers of the answer are the cursor's. Otherwise the database is another one, or an
 * older one: it was removed, or put back from a copy. */
static bool is_cursors(const struct job_cursor *cursor, const json_t *answer)
{
	return !strcmp(session_text(answer, "database"), cursor->database) &&
	       session_number(answer, "next") >= cursor->next;
}

static int cursor_set(struct job_cursor *cursor, const json_t *answer, uint64_t next,
		      struct error *err)
{
	const char *database = session_text(answer, "database");

	if (!*database || strspn(database, "0123456789abcdef") != strlen(database) ||
	    strlen(database) >= sizeof(cursor->database))
		return error_set(err, EXIT_CODE_FAILED,
				 "the daemon numbers no ends of jobs: it is of another version");
	snprintf(cursor->database, sizeof(cursor->database), "%s", database);
	cursor->next = next;
	return 0;
}

/* All ends of a database that is not the cursor's may be new. */
static int cursor_restart(struct job_cursor *cursor, const json_t *answer, struct error *err)
{
	fprintf(stderr, "carve: note: the daemon's database of jobs is not the last one; all ends "
			"in it are told\n");
	return cursor_set(cursor, answer, 1, err);
}

/* At --from, or behind the last end. */
static int cursor_new(struct reader *reader, struct error *err)
{
	const char *from = reader->cli->value[OPT_JOB_FROM];
	cleanup_json json_t *answer = NULL;
	uint64_t first = 0;
	int rc = from ? units_parse_count(from, "--from", 0, NUMBER_MOST, &first, err) : 0;

	if (rc == 0 && from)
		first = MAX(first, 1);
	if (rc < 0 || (rc = ends_get(reader, first, &answer, err)) < 0)
		return rc;
	uint64_t next = session_number(answer, "next");
	if (next >= first)
		return cursor_set(&reader->cursor, answer, first ? first : next, err);
	error_set(err, EXIT_CODE_USAGE, "--from %llu: the next end has number %llu",
		  (unsigned long long)first, (unsigned long long)next);
	error_hint(err, "leave --from out to begin with the next end");
	return -EXIT_CODE_USAGE;
}

static int cursor_resume(struct reader *reader, struct error *err)
{
	cleanup_json json_t *answer = NULL;
	int rc = ends_get(reader, reader->cursor.next, &answer, err);

	if (rc < 0)
		return rc;
	if (!is_cursors(&reader->cursor, answer))
		return cursor_restart(&reader->cursor, answer, err);
	fprintf(stderr, "carve: note: goes on with end %llu, as %s says\n",
		(unsigned long long)reader->cursor.next, reader->cursor.path);
	return 0;
}

/* Asks until there is an answer. Negative with *err: asking again is of no use. */
static int ends_ask(struct reader *reader, json_t **ret, struct error *err)
{
	int rc;

	while ((rc = ends_get(reader, reader->cursor.next, ret, err)) < 0) {
		if (err->code == EXIT_CODE_NOT_PERMITTED || err->code == EXIT_CODE_USAGE)
			return rc;
		attempt_failed(&reader->daemon, err);
		/* A user's own daemon that was ended in order stays away until a next command. */
		(void)client_open_running(&reader->client, reader->cli->value[OPT_HOST], err);
	}
	attempt_succeeded(&reader->daemon);
	return 0;
}

static int ends_follow(struct reader *reader, struct error *err)
{
	for (;;) {
		cleanup_json json_t *answer = NULL;
		json_t *end;
		size_t i;
		int rc = ends_ask(reader, &answer, err);

		if (rc < 0)
			return rc;
		if (!is_cursors(&reader->cursor, answer)) {
			if ((rc = cursor_restart(&reader->cursor, answer, err)) < 0)
				return rc;
			cursor_save(reader);
			continue;
		}
		json_array_foreach(json_object_get(answer, "ends"), i, end)
		{
			if ((rc = end_tell(reader, end, err)) < 0)
				return rc;
			reader->cursor.next = session_number(end, "number") + 1;
			cursor_save(reader);
		}
		if (reader->cursor.next == session_number(answer, "next"))
			continue;
		reader->cursor.next = session_number(answer, "next");
		cursor_save(reader);
	}
}

int cli_job_events(struct cli *cli, struct error *err)
{
	struct reader reader = {
		.cli = cli,
		.cursor = {.fd = -1},
		.daemon = {.again = "the daemon answers again"},
		.command = {.again = "the command succeeds again"},
		.url = {.again = "the webhook takes ends again"},
		.disk = {.again = "the cursor file is written again"},
	};
	int rc = job_tell_options(cli, &reader.tell, err);
	bool tells = reader.tell.command || reader.tell.url;
	const char *file = cli->value[OPT_JOB_CURSOR_FILE];

	if (rc < 0)
		return rc;
	if (!tells && !file && !cli->value[OPT_JOB_FROM])
		return job_changes_print(cli, err);
	if (tells || file)
		rc = job_cursor_open(&reader.cursor, file, err);
	if (rc < 0 || (rc = client_open(&reader.client, cli->value[OPT_HOST], err)) < 0)
		return rc;
	rc = *reader.cursor.database ? cursor_resume(&reader, err) : cursor_new(&reader, err);
	if (rc == 0)
		rc = job_cursor_save(&reader.cursor, err);
	if (rc < 0)
		return rc;
	reader.follows = true;
	return ends_follow(&reader, err);
}
