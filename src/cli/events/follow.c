/* Items have numbers that the daemon keeps on the disk. A reader asks for the items from a number
 * on. It tells an item to its command and its URL, and then writes the next number to its cursor
 * file. So each item is told at least once, whichever process or machine is started anew: an item
 * whose number was not written is told again.
 *
 * The daemon, the command, the server and the disk of the cursor can fail. The reader tries again
 * until they succeed, ever later up to a minute. It says so when one of them begins to fail, and
 * when it succeeds again. An item that cannot be told holds up the later items: to pass it over
 * would break the promise. */
#include "cli/events/follow.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/error.h"
#include "base/macros.h"
#include "base/units.h"
#include "cli/cli.h"
#include "cli/events/cursor.h"
#include "cli/events/tell.h"
#include "client/client.h"
#include "client/sessions.h"

#define AGAIN_LEAST_MS 1000u
#define AGAIN_MOST_MS 60000u
/* Numbers that JSON has exactly. */
#define NUMBER_MOST ((1ull << 53) - 1)
#define PATH_SIZE 256

static const struct client_patience patience = {.wait_ns = UINT64_MAX / 2};

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

/* ---- items --------------------------------------------------------------------------------- */

struct reader {
	const struct cli *cli;
	const struct follow_source *source;
	struct tell tell;
	struct cursor cursor;
	struct client client;
	bool follows; /* it has begun: answers wait until there are ends */
	struct attempt daemon, command, url, disk;
};

static void place_save(struct reader *reader)
{
	struct error err = {0};

	while (cursor_save(&reader->cursor, &err) < 0)
		attempt_failed(&reader->disk, &err);
	attempt_succeeded(&reader->disk);
}

/* The command is not run again where only the URL failed. */
static int item_tell(struct reader *reader, const json_t *item, struct error *err)
{
	if (!reader->tell.command && !reader->tell.url)
		return reader->source->print(reader->cli, item, err);
	while (reader->tell.command && tell_command(&reader->tell, item, err) < 0)
		attempt_failed(&reader->command, err);
	attempt_succeeded(&reader->command);
	while (reader->tell.url && tell_url(&reader->tell, item, err) < 0)
		attempt_failed(&reader->url, err);
	attempt_succeeded(&reader->url);
	return 0;
}

/* The items from a number on; from 0: none, and the number of the next item. */
static int part_get(const struct reader *reader, uint64_t from, json_t **ret, struct error *err)
{
	char path[PATH_SIZE];

	snprintf(path, sizeof(path), "%s?wait=%d&from=%llu%s", reader->source->path,
		 reader->follows, (unsigned long long)from, reader->source->filters);
	return client_call(&reader->client, "GET", from ? path : reader->source->path, NULL,
			   &patience, ret, err);
}

/* Whether the numbers of the answer are the cursor's. Otherwise the database is another one, or an
 * older one: it was removed, or put back from a copy. */
static bool is_cursors(const struct cursor *cursor, const json_t *answer)
{
	return !strcmp(session_text(answer, "database"), cursor->database) &&
	       session_number(answer, "next") >= cursor->next;
}

static int cursor_set(struct reader *reader, const json_t *answer, uint64_t next, struct error *err)
{
	struct cursor *cursor = &reader->cursor;
	const char *database = session_text(answer, "database");

	if (!*database || strspn(database, "0123456789abcdef") != strlen(database) ||
	    strlen(database) >= sizeof(cursor->database))
		return error_set(err, EXIT_CODE_FAILED,
				 "the daemon numbers no %s: it is of another version",
				 reader->source->many);
	snprintf(cursor->database, sizeof(cursor->database), "%s", database);
	cursor->next = next;
	return 0;
}

/* All items of a database that is not the cursor's may be new. */
static int cursor_restart(struct reader *reader, const json_t *answer, struct error *err)
{
	fprintf(stderr, "carve: note: the daemon's %s is not the last one; all %s in it are told\n",
		reader->source->store, reader->source->many);
	return cursor_set(reader, answer, 1, err);
}

/* At --from, or behind the last item. */
static int cursor_new(struct reader *reader, struct error *err)
{
	const char *from = reader->cli->value[OPT_JOB_FROM];
	cleanup_json json_t *answer = NULL;
	uint64_t first = 0;
	int rc = from ? units_parse_count(from, "--from", 0, NUMBER_MOST, &first, err) : 0;

	if (rc == 0 && from)
		first = MAX(first, 1);
	if (rc < 0 || (rc = part_get(reader, first, &answer, err)) < 0)
		return rc;
	uint64_t next = session_number(answer, "next");
	if (next >= first)
		return cursor_set(reader, answer, first ? first : next, err);
	error_set(err, EXIT_CODE_USAGE, "--from %llu: the next %s has number %llu",
		  (unsigned long long)first, reader->source->one, (unsigned long long)next);
	error_hint(err, "leave --from out to begin with the next %s", reader->source->one);
	return -EXIT_CODE_USAGE;
}

static int cursor_resume(struct reader *reader, struct error *err)
{
	cleanup_json json_t *answer = NULL;
	int rc = part_get(reader, reader->cursor.next, &answer, err);

	if (rc < 0)
		return rc;
	if (!is_cursors(&reader->cursor, answer))
		return cursor_restart(reader, answer, err);
	fprintf(stderr, "carve: note: goes on with %s %llu, as %s says\n", reader->source->one,
		(unsigned long long)reader->cursor.next, reader->cursor.path);
	return 0;
}

/* Asks until there is an answer. Negative with *err: asking again is of no use. */
static int part_ask(struct reader *reader, json_t **ret, struct error *err)
{
	int rc;

	while ((rc = part_get(reader, reader->cursor.next, ret, err)) < 0) {
		if (err->code == EXIT_CODE_NOT_PERMITTED || err->code == EXIT_CODE_USAGE)
			return rc;
		attempt_failed(&reader->daemon, err);
		/* A user's own daemon that was ended in order stays away until a next command. */
		(void)client_open_running(&reader->client, reader->cli->value[OPT_HOST], err);
	}
	attempt_succeeded(&reader->daemon);
	return 0;
}

static int parts_follow(struct reader *reader, struct error *err)
{
	for (;;) {
		cleanup_json json_t *answer = NULL;
		json_t *item;
		size_t i;
		int rc = part_ask(reader, &answer, err);

		if (rc < 0)
			return rc;
		if (!is_cursors(&reader->cursor, answer)) {
			if ((rc = cursor_restart(reader, answer, err)) < 0)
				return rc;
			place_save(reader);
			continue;
		}
		json_array_foreach(json_object_get(answer, reader->source->list), i, item)
		{
			if ((rc = item_tell(reader, item, err)) < 0)
				return rc;
			reader->cursor.next = session_number(item, "number") + 1;
			place_save(reader);
		}
		if (reader->cursor.next == session_number(answer, "next"))
			continue;
		reader->cursor.next = session_number(answer, "next");
		place_save(reader);
	}
}

bool follow_is_asked(const struct cli *cli)
{
	static const enum cli_option_id options[] = {OPT_JOB_FROM, OPT_JOB_EXEC, OPT_JOB_WEBHOOK,
						     OPT_JOB_CURSOR_FILE, OPT_JOB_EXEC_TIMEOUT};

	for (size_t i = 0; i < ARRAY_SIZE(options); i++)
		if (cli->value[options[i]])
			return true;
	return tell_is_asked();
}

int follow(const struct cli *cli, const struct follow_source *source, struct error *err)
{
	struct reader reader = {
		.cli = cli,
		.source = source,
		.cursor = {.fd = -1},
		.daemon = {.again = "the daemon answers again"},
		.command = {.again = "the command succeeds again"},
		.url = {.again = "the webhook takes posts again"},
		.disk = {.again = "the cursor file is written again"},
	};
	int rc = tell_options(cli, source, &reader.tell, err);
	bool tells = reader.tell.command || reader.tell.url;
	const char *file = cli->value[OPT_JOB_CURSOR_FILE];

	if (rc == 0 && (tells || file))
		rc = cursor_open(&reader.cursor, source->verb, file, source->cursor_file, err);
	if (rc < 0 || (rc = client_open(&reader.client, cli->value[OPT_HOST], err)) < 0)
		return rc;
	rc = *reader.cursor.database ? cursor_resume(&reader, err) : cursor_new(&reader, err);
	if (rc == 0)
		rc = cursor_save(&reader.cursor, err);
	if (rc < 0)
		return rc;
	reader.follows = true;
	return parts_follow(&reader, err);
}
