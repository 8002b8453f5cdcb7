#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "cli/cli.h"
#include "cli/output.h"
#include "cli/session/session_grant.h"
#include "cli/session/slice_request.h"
#include "client/client.h"
#include "client/sessions.h"
#include "slice/places.h"

/* The session is there, and its ID would be known to nobody. */
static int unprinted(const json_t *session, struct error *err)
{
	const char *id = session_text(session, "id");

	error_set(err, EXIT_CODE_FAILED, "session %s is granted, but its ID cannot be printed: %s",
		  id, strerrordesc_np(errno));
	error_hint(err, "`carve session show %s` shows it, and `carve session release %s` ends it",
		   id, id);
	return -EXIT_CODE_FAILED;
}

int cli_session_request(struct cli *cli, struct error *err)
{
	cleanup_request struct slice_request request = {0};
	cleanup_json json_t *session = NULL;
	struct client client;
	struct places places;
	int rc = slice_request_read(cli, &request, err);

	if (rc < 0)
		return rc;
	if (!request.sized)
		return slice_request_unsized(cli->verb->name, err);
	/* Nothing could use the slice. */
	if ((rc = places_find(&places, err)) < 0 || (rc = places_check(&places, err)) < 0)
		return rc;
	if ((rc = client_open(&client, cli->value[OPT_HOST], err)) < 0 ||
	    (rc = session_grant_request(&client, &request, &session, err)) < 0)
		return rc;
	if (cli->value[OPT_JSON] && output_json(session, err) < 0)
		return unprinted(session, err);
	if (!cli->value[OPT_JSON])
		session_grant_print(cli, stdout, "", session);
	return fflush(stdout) == 0 ? 0 : unprinted(session, err);
}
