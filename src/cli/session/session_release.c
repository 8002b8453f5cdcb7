#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "cli/cli.h"
#include "cli/output.h"
#include "cli/user.h"
#include "client/client.h"
#include "client/sessions.h"

/* Which session to end: where this process is in one and the user's current session is another,
 * either may be meant. */
static int locate(const struct client *client, const char *id, char path[static SESSION_PATH_SIZE],
		  struct error *err)
{
	const char *meant = session_meant(client, id);
	cleanup_json json_t *current = NULL;
	struct error none = {0};

	if (id || !meant || session_get(client, NULL, &current, &none) < 0 ||
	    !strcmp(session_text(current, "id"), meant))
		return session_locate(client, meant, path, err);
	error_set(err, EXIT_CODE_USAGE,
		  "session release: this is inside slice %.64s, and your current session is %.64s",
		  meant, session_text(current, "id"));
	error_hint(err, "name the one that is to end: carve session release %.64s",
		   session_text(current, "id"));
	return -EXIT_CODE_USAGE;
}

/* One of several; what failed is told at once, and the others are tried. */
static int one_of_all(const struct client *client, const json_t *session, const char *force,
		      json_t *released, struct error *err)
{
	json_t *answer = NULL;
	char path[SESSION_PATH_SIZE], query[SESSION_PATH_SIZE + sizeof("?force=1")];
	int rc = session_path(session_text(session, "id"), path, err);

	snprintf(query, sizeof(query), "%s%s", path, force);
	if (rc == 0)
		rc = client_call(client, "DELETE", query, NULL, NULL, &answer, err);
	if (rc == 0)
		json_array_append_new(released, answer);
	return rc;
}

static int sessions_find(const struct cli *cli, const struct client *client, json_t **ret,
			 struct error *err)
{
	const char *user = cli->value[OPT_RELEASE_USER];
	uid_t uid = getuid();
	int rc = user ? user_find(user, &uid, err) : 0;

	return rc < 0 ? rc : sessions_get_of(client, uid, ret, err);
}

/* All sessions and requests of this user, or of the user that is named. The first error is the
 * command's. */
static int release_all(const struct cli *cli, const struct client *client, struct error *err)
{
	cleanup_json json_t *sessions = NULL, *released = json_array();
	const char *user = cli->value[OPT_RELEASE_USER];
	int rc = sessions_find(cli, client, &sessions, err), failed = 0;
	size_t i;
	json_t *session;

	if (rc < 0)
		return rc;
	json_array_foreach(sessions, i, session)
	{
		struct error why = {0};

		rc = one_of_all(client, session, cli->value[OPT_FORCE] ? "?force=1" : "", released,
				&why);
		if (rc == 0 && !cli->value[OPT_JSON])
			printf("%s: released\n", session_text(session, "id"));
		if (rc < 0 && failed == 0) {
			failed = rc;
			*err = why;
		}
	}
	if (cli->value[OPT_JSON] && (rc = output_json(released, err)) < 0)
		return rc;
	if (!failed && !json_array_size(released) && !cli->value[OPT_JSON])
		printf("%s%s no sessions\n", user ? user : "you", user ? " has" : " have");
	return failed;
}

static int all_and_named(const struct cli *cli, struct error *err)
{
	bool user = cli->value[OPT_RELEASE_USER] != NULL;

	error_set(err, EXIT_CODE_USAGE, "session release: %s and %s are both given",
		  user ? "--user" : "--all", cli->argument_count ? "a session" : "--all");
	error_hint(err, user && !cli->argument_count ? "--user alone names all sessions of the user"
						     : "leave one of them out");
	return -EXIT_CODE_USAGE;
}

int cli_session_release(struct cli *cli, struct error *err)
{
	struct client client;
	cleanup_json json_t *released = NULL;
	char path[SESSION_PATH_SIZE], query[SESSION_PATH_SIZE + sizeof("?force=1")];
	bool all = cli->value[OPT_RELEASE_ALL] || cli->value[OPT_RELEASE_USER];

	if (all &&
	    (cli->argument_count || (cli->value[OPT_RELEASE_ALL] && cli->value[OPT_RELEASE_USER])))
		return all_and_named(cli, err);
	int rc = client_open(&client, cli->value[OPT_HOST], err);

	if (rc == 0 && all)
		return release_all(cli, &client, err);
	if (rc < 0 || (rc = locate(&client, cli->arguments[0], path, err)) < 0)
		return rc;
	snprintf(query, sizeof(query), "%s%s", path, cli->value[OPT_FORCE] ? "?force=1" : "");
	if ((rc = client_call(&client, "DELETE", query, NULL, NULL, &released, err)) < 0)
		return rc;
	if (cli->value[OPT_JSON])
		return output_json(released, err);
	printf("%s: released\n", session_text(released, "id"));
	return 0;
}
