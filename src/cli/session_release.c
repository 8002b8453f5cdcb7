#include <stdio.h>

#include "base/error.h"
#include "cli/cli.h"
#include "cli/client.h"
#include "cli/output.h"
#include "cli/sessions.h"

int cli_session_release(struct cli *cli, struct error *err)
{
	struct client client;
	cleanup_json json_t *session = NULL, *released = NULL;
	char path[128];
	int rc = client_open(&client, cli->value[OPT_HOST], err);

	if (rc < 0 || (rc = session_get(&client, cli->arguments[0], &session, err)) < 0)
		return rc;
	snprintf(path, sizeof(path), "/v1/sessions/%s%s", session_text(session, "id"),
		 cli->value[OPT_FORCE] ? "?force=1" : "");
	if ((rc = client_call(&client, "DELETE", path, NULL, NULL, &released, err)) < 0)
		return rc;
	if (cli->value[OPT_JSON])
		return output_json(released, err);
	printf("%s: released\n", session_text(session, "id"));
	return 0;
}
