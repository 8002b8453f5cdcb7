#include <stdio.h>

#include "base/error.h"
#include "cli/cli.h"
#include "cli/client.h"
#include "cli/output.h"
#include "cli/sessions.h"

int cli_session_release(struct cli *cli, struct error *err)
{
	struct client client;
	cleanup_json json_t *released = NULL;
	char path[SESSION_PATH_SIZE], query[SESSION_PATH_SIZE + sizeof("?force=1")];
	int rc = client_open(&client, cli->value[OPT_HOST], err);

	if (rc < 0 || (rc = session_locate(&client, cli->arguments[0], path, err)) < 0)
		return rc;
	snprintf(query, sizeof(query), "%s%s", path, cli->value[OPT_FORCE] ? "?force=1" : "");
	if ((rc = client_call(&client, "DELETE", query, NULL, NULL, &released, err)) < 0)
		return rc;
	if (cli->value[OPT_JSON])
		return output_json(released, err);
	printf("%s: released\n", session_text(released, "id"));
	return 0;
}
