#include "cli/notice.h"

#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/error.h"
#include "base/macros.h"
#include "cli/cli.h"
#include "cli/moment.h"
#include "cli/output.h"
#include "client/client.h"
#include "client/sessions.h"

#define NOTICE_PATH "/v1/notice"
/* Bytes; the daemon refuses a longer notice. */
#define NOTICE_MAX 1024

/* Further lines stand below the first one, indented, so that none looks like a line of carve's own.
 */
static void notice_print(FILE *to, const char *begin, const json_t *notice)
{
	char when[MOMENT_SIZE];
	const json_t *line;
	size_t i;

	fprintf(to, "%s %s, %s:", begin, session_text(notice, "user"),
		moment_long_text(moment_parse(session_text(notice, "at")), time(NULL), when));
	json_array_foreach(json_object_get(notice, "lines"), i, line)
		fprintf(to, "%s%s\n", i ? "  " : " ", json_string_value(line));
}

/* ---- carve notice -------------------------------------------------------------------------- */

/* The words of the command line, with blanks between them. 0, or negative with *err. */
static int text_join(const struct cli *cli, char buf[static NOTICE_MAX], struct error *err)
{
	size_t used = 0;

	buf[0] = '\0';
	for (char **word = cli->arguments; *word && used < NOTICE_MAX; word++)
		used += (size_t)snprintf(buf + used, NOTICE_MAX - used, "%s%s", used ? " " : "",
					 *word);
	if (used >= NOTICE_MAX) {
		error_set(err, EXIT_CODE_USAGE, "notice: the text is longer than %d bytes",
			  NOTICE_MAX - 1);
		error_hint(err, "say where to read more: a page or a file");
	} else if (!buf[strspn(buf, " \n\t")]) {
		error_set(err, EXIT_CODE_USAGE, "notice: the text is empty");
		error_hint(err, "`carve notice --clear` takes the notice back");
	} else {
		return 0;
	}
	return -EXIT_CODE_USAGE;
}

static int options_check(const struct cli *cli, struct error *err)
{
	int given = (cli->argument_count > 0) + (cli->value[OPT_NOTICE_CLEAR] != NULL) +
		    (cli->value[OPT_NOTICE_SHOW] != NULL);

	if (given <= 1)
		return 0;
	error_set(err, EXIT_CODE_USAGE, "notice: a text, --clear and --show exclude each other");
	error_hint(err, "for example: %s", cli->verb->example);
	return -EXIT_CODE_USAGE;
}

/* `none`: the line where there is no notice now. */
static int answer_print(const struct cli *cli, const json_t *answer, const char *none,
			struct error *err)
{
	if (cli->value[OPT_JSON])
		return output_json(answer, err);
	if (!*session_text(answer, "text"))
		puts(none);
	else
		notice_print(stdout, "notice by", answer);
	return 0;
}

/* Returns whether there is a notice now. */
static bool is_there(const struct client *client)
{
	cleanup_json json_t *notice = NULL;
	struct error ignored;

	return client_call(client, "GET", NOTICE_PATH, NULL, NULL, &notice, &ignored) == 0 &&
	       *session_text(notice, "text");
}

int cli_notice(struct cli *cli, struct error *err)
{
	cleanup_json json_t *body = NULL, *answer = NULL;
	const char *method = cli->argument_count            ? "PUT"
			     : cli->value[OPT_NOTICE_CLEAR] ? "DELETE"
							    : "GET";
	char text[NOTICE_MAX];
	struct client client;
	int rc = options_check(cli, err);

	if (rc == 0 && cli->argument_count)
		rc = text_join(cli, text, err);
	if (rc == 0 && cli->argument_count && !(body = json_pack("{s:s}", "text", text)))
		rc = error_set(err, EXIT_CODE_USAGE, "notice: the text is not UTF-8");
	if (rc < 0 || (rc = client_open(&client, cli->value[OPT_HOST], err)) < 0)
		return rc;
	const char *none = cli->value[OPT_NOTICE_CLEAR] && !is_there(&client)
				   ? "there was no notice to take back"
				   : "there is no notice";
	rc = client_call(&client, method, NOTICE_PATH, body, NULL, &answer, err);
	return rc < 0 ? rc : answer_print(cli, answer, none, err);
}

/* ---- shown once ---------------------------------------------------------------------------- */

/* Verbs that need no daemon of this host, and `carve check`, which looks at a daemon that hangs. */
static bool is_apart(const struct cli *cli)
{
	static const char *const groups[] = {
		"notice", "sim",   "help", "completion",   "kubernetes",
		"check",  "image", "hook", "mig simulate", "timeslicing simulate"};

	for (size_t i = 0; i < ARRAY_SIZE(groups); i++)
		if (cli_verb_in_group(cli->verb, groups[i]))
			return true;
	return false;
}

void notice_show_once(const struct cli *cli)
{
	cleanup_json json_t *notice = NULL, *body = NULL, *ignored = NULL;
	struct client client;
	struct error err = {0};

	if (cli->value[OPT_JSON] || !isatty(STDERR_FILENO) || is_apart(cli) ||
	    client_open_running(&client, cli->value[OPT_HOST], &err) < 0 ||
	    client_call(&client, "GET", NOTICE_PATH, NULL, NULL, &notice, &err) < 0 ||
	    !json_is_true(json_object_get(notice, "due")))
		return;
	notice_print(stderr, "carve: notice by", notice);
	body = json_pack("{s:O}", "seen", json_object_get(notice, "number"));
	(void)client_call(&client, "POST", NOTICE_PATH, body, NULL, &ignored, &err);
}
