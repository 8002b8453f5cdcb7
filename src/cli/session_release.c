#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "cli/cli.h"
#include "cli/client.h"
#include "cli/output.h"
#include "cli/sessions.h"

/* Which session to end: where this process is in one and the user has another that is active,
 * either may be meant. */
static int locate(const struct client *client, const char *id, char path[static SESSION_PATH_SIZE],
		  struct error *err)
{
	const char *meant = session_meant(client, id);
	cleanup_json json_t *active = NULL;
	int rc = !id && meant ? session_find_active(client, &active, err) : 0;

	if (rc < 0)
		return rc;
	if (!active || !strcmp(session_text(active, "id"), meant))
		return session_locate(client, meant, path, err);
	error_set(err, EXIT_CODE_USAGE,
		  "session release: this is inside slice %.64s, and your active session is %.64s",
		  meant, session_text(active, "id"));
	error_hint(err, "name the one that is to end: carve session release %.64s",
		   session_text(active, "id"));
	return -EXIT_CODE_USAGE;
}

int cli_session_release(struct cli *cli, struct error *err)
{
	struct client client;
	cleanup_json json_t *released = NULL;
	char path[SESSION_PATH_SIZE], query[SESSION_PATH_SIZE + sizeof("?force=1")];
	int rc = client_open(&client, cli->value[OPT_HOST], err);

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
