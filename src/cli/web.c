/* carve web: a link that signs a browser in, or the end of all browsers that are signed in. */
#include <jansson.h>
#include <stdio.h>

#include "base/error.h"
#include "base/macros.h"
#include "cli/cli.h"
#include "cli/output.h"
#include "client/client.h"
#include "client/sessions.h"

static int sign_out(const struct cli *cli, const struct client *client, struct error *err)
{
	cleanup_json json_t *answer = NULL;
	int rc = client_call(client, "DELETE", "/v1/web/browsers", NULL, NULL, &answer, err);

	if (rc < 0)
		return rc;
	if (cli->value[OPT_JSON])
		return output_json(answer, err);
	json_int_t ended = json_integer_value(json_object_get(answer, "ended"));
	printf("signed out %lld %s\n", (long long)ended, ended == 1 ? "browser" : "browsers");
	return 0;
}

/* The link alone is on the standard output, for whatever opens it. */
static int link_print(const struct cli *cli, const struct client *client, struct error *err)
{
	cleanup_json json_t *answer = NULL;
	int rc = client_call(client, "POST", "/v1/web/links", NULL, NULL, &answer, err);

	if (rc < 0)
		return rc;
	if (cli->value[OPT_JSON])
		return output_json(answer, err);
	puts(session_text(answer, "url"));
	fflush(stdout);
	fputs("carve: open this link within a minute. It works once, and signs the browser in as "
	      "you for 12 hours.\n",
	      stderr);
	return 0;
}

int cli_web(struct cli *cli, struct error *err)
{
	struct client client;
	int rc = client_open(&client, cli->value[OPT_HOST], err);

	if (rc < 0)
		return rc;
	return cli->value[OPT_SIGN_OUT] ? sign_out(cli, &client, err)
					: link_print(cli, &client, err);
}
