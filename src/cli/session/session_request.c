#include "base/error.h"
#include "cli/cli.h"
#include "cli/output.h"
#include "cli/session/session_grant.h"
#include "cli/session/slice_request.h"
#include "client/client.h"
#include "slice/places.h"

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
	if (cli->value[OPT_JSON])
		return output_json(session, err);
	session_grant_print(cli, stdout, "", session);
	return 0;
}
