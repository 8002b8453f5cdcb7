#include <stdio.h>

#include "base/error.h"
#include "base/units.h"
#include "cli/cli.h"
#include "cli/client.h"
#include "cli/output.h"
#include "cli/sessions.h"

int cli_session_resize(struct cli *cli, struct error *err)
{
	struct client client;
	cleanup_json json_t *session = NULL, *body = NULL;
	char path[SESSION_PATH_SIZE];
	uint64_t bytes;
	int rc = units_parse_vram(cli->arguments[1], &bytes, err);

	if (rc < 0 || (rc = client_open(&client, cli->value[OPT_HOST], err)) < 0 ||
	    (rc = session_locate(&client, cli->arguments[0], path, err)) < 0)
		return rc;
	body = json_pack("{s:I}", "vram_bytes", (json_int_t)bytes);
	if ((rc = client_call(&client, "PATCH", path, body, NULL, &session, err)) < 0)
		return rc;
	if (cli->value[OPT_JSON])
		return output_json(session, err);
	session_print_grant(stdout, "", session);
	return 0;
}
