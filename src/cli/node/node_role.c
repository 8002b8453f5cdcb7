/* carve node set-role, carve node remove-role: what GPUs of this host are used for. */
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "base/error.h"
#include "cli/cli.h"
#include "cli/output.h"
#include "client/client.h"
#include "client/sessions.h"

/* Roles are this host's; another host has a daemon of its own. */
static int node_check(const struct cli *cli, struct error *err)
{
	const char *node = cli->argument_count ? cli->arguments[0] : NULL;
	char name[HOST_NAME_MAX + 1] = "";

	(void)gethostname(name, sizeof(name) - 1);
	size_t length = strcspn(name, ".");
	if (!node || !strcasecmp(node, name) || !strcasecmp(node, "localhost") ||
	    (strlen(node) == length && !strncasecmp(node, name, length)))
		return 0;
	error_set(err, EXIT_CODE_USAGE, "'%.64s' is not this host, which is '%.64s'", node, name);
	error_hint(err, "run the command on %.64s", node);
	return -EXIT_CODE_USAGE;
}

static void roles_print(const json_t *roles)
{
	static const char *const headings[] = {"GPU", "ROLE", NULL};
	cleanup_table struct table table;
	size_t i;
	json_t *gpu;

	table_begin(&table, headings);
	json_array_foreach(roles, i, gpu)
	{
		table_add(&table, "%" PRIu64, session_number(gpu, "gpu"));
		table_add(&table, "%s", session_text_or_dash(gpu, "role"));
	}
	table_print(&table);
}

static int role_change(struct cli *cli, const char *role, struct error *err)
{
	const char *ids = cli->value[OPT_GPU_IDS];
	cleanup_json json_t *body = json_pack("{s:s?, s:s*}", "role", role, "gpu_ids", ids);
	cleanup_json json_t *roles = NULL;
	struct client client;
	int rc = node_check(cli, err);

	if (cli->value[OPT_ENABLE_MODE])
		json_object_set_new(body, "enable_mode", json_true());
	if (rc < 0 || (rc = client_open(&client, cli->value[OPT_HOST], err)) < 0)
		return rc;
	rc = client_call(&client, "PUT", "/v1/mig/roles", body, NULL, &roles, err);
	if (rc < 0)
		return rc;
	if (cli->value[OPT_JSON])
		return output_json(roles, err);
	roles_print(roles);
	return 0;
}

int cli_node_set_role(struct cli *cli, struct error *err)
{
	if (cli->value[OPT_DYNAMIC_MIG])
		return role_change(cli, "dynamic-mig", err);
	error_set(err, EXIT_CODE_USAGE, "node set-role: no role given");
	error_hint(err, "for example: carve node set-role --dynamic-mig-enabled --gpu-ids 0");
	return -EXIT_CODE_USAGE;
}

int cli_node_remove_role(struct cli *cli, struct error *err)
{
	return role_change(cli, NULL, err);
}
