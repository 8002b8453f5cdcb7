/* carve node set-role, carve node remove-role: what GPUs of this host are used for. */
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/macros.h"
#include "cli/cli.h"
#include "cli/columns.h"
#include "cli/node/node_name.h"
#include "cli/output.h"
#include "client/client.h"
#include "client/sessions.h"

/* The label that the plugin of a cluster's node follows (integrations/kubernetes/node/role.h). */
#define NODE_LABEL "node-role.kubernetes.io/runai-mig-enabled"

/* Whether this user has a cluster that kubectl would ask. */
static bool has_cluster(void)
{
	const char *home = secure_getenv("HOME"), *config = secure_getenv("KUBECONFIG");
	char path[PATH_MAX];

	if (config && *config)
		return true;
	return home && snprintf(path, sizeof(path), "%s/.kube/config", home) < (int)sizeof(path) &&
	       access(path, R_OK) == 0;
}

/* Has kubectl label a node of the cluster; the plugin there does the rest. Returns on failure. */
static int cluster_label(const char *node, const char *role, struct error *err)
{
	execlp("kubectl", "kubectl", "label", "--overwrite", "node", node,
	       role ? NODE_LABEL "=true" : NODE_LABEL "-", (char *)NULL);
	error_set(err, EXIT_CODE_FAILED,
		  "'%.64s' is not this host, and kubectl cannot be executed: %s", node,
		  strerrordesc_np(errno));
	error_hint(err, "run the command on %.64s, or install kubectl", node);
	return -EXIT_CODE_FAILED;
}

/* Roles are this host's; another host has a daemon of its own. */
static int node_check(const struct cli *cli, const char *role, struct error *err)
{
	const char *node = cli->argument_count ? cli->arguments[0] : NULL;
	char name[HOST_NAME_MAX + 1];

	if (node_is_here(node, name))
		return 0;
	/* A label speaks for all GPUs of a node that are in MIG mode. */
	if (has_cluster() && node_is_name(node) && !cli->value[OPT_GPU_IDS] &&
	    !cli->value[OPT_ENABLE_MODE] && !cli->value[OPT_HOST])
		return cluster_label(node, role, err);
	return node_refuse(node, name, "kubectl label node", " " NODE_LABEL "=true", err);
}

static void roles_print(const json_t *roles)
{
	static const struct column columns[] = {
		{"GPU", "gpu", FORMAT_COUNT},
		{"ROLE", "role", FORMAT_KNOWN},
	};

	table_print_rows(columns, ARRAY_SIZE(columns), roles);
}

static int role_change(struct cli *cli, const char *role, struct error *err)
{
	const char *ids = cli->value[OPT_GPU_IDS];
	cleanup_json json_t *body = json_pack("{s:s?, s:s*}", "role", role, "gpu_ids", ids);
	cleanup_json json_t *roles = NULL;
	struct client client;
	int rc = node_check(cli, role, err);

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
