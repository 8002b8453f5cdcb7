/* Quotas: what users and groups may hold at most. */
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/macros.h"
#include "base/units.h"
#include "cli/cli.h"
#include "cli/node/quota_options.h"
#include "cli/output.h"
#include "client/client.h"
#include "client/sessions.h"

/* ---- showing ----------------------------------------------------------------------------- */

static const char *amount_text(const json_t *holder, const char *key,
			       char buf[static UNITS_TEXT_SIZE])
{
	uint64_t amount = session_number(holder, key);

	if (!strcmp(key, "gpu_hours"))
		quota_hours_text(json_number_value(json_object_get(holder, key)),
				 json_object_get(holder, "used") != NULL, buf);
	else if (!strcmp(key, "vram_bytes"))
		units_format_bytes(amount, buf);
	else
		snprintf(buf, UNITS_TEXT_SIZE, "%" PRIu64, amount);
	return buf;
}

/* "3 of 4", "3, no limit"; of a quota for each of several users "4". */
static const char *use_text(const json_t *quota, const char *key, char *buf, size_t size)
{
	const json_t *limit = json_object_get(quota, key), *used = json_object_get(quota, "used");
	char held[UNITS_TEXT_SIZE], text[UNITS_TEXT_SIZE];
	const char *most = json_is_number(limit)   ? amount_text(quota, key, text)
			   : json_is_string(limit) ? json_string_value(limit)
						   : "no limit";

	if (!json_is_object(used))
		snprintf(buf, size, "%s", json_is_null(limit) ? "-" : most);
	else
		snprintf(buf, size, "%s%s%s", amount_text(used, key, held),
			 json_is_number(limit) ? " of " : ", ", most);
	return buf;
}

/* A group's quota is a sum. */
static const char *kind_text(const json_t *quota)
{
	static const char *const texts[][2] = {{"group", "group (together)"},
					       {"each", "group (each)"},
					       {"everyone", "everyone (each)"},
					       {"defaults", "defaults (each)"}};
	const char *kind = session_text(quota, "kind");

	for (size_t i = 0; i < ARRAY_SIZE(texts); i++)
		if (!strcmp(kind, texts[i][0]))
			return texts[i][1];
	return kind;
}

static const char *const limits[] = {"vram_bytes", "sessions", "gpus", "gpu_hours"};

static void row_add(struct table *table, const json_t *quota)
{
	const char *name = session_text(quota, "name");
	char text[2 * UNITS_TEXT_SIZE + 8];

	table_add(table, "%s", kind_text(quota));
	table_add(table, "%s", *name ? name : "-");
	for (size_t i = 0; i < ARRAY_SIZE(limits); i++)
		table_add(table, "%s", use_text(quota, limits[i], text, sizeof(text)));
}

static void quotas_print(const json_t *quotas)
{
	static const char *const headings[] = {"KIND", "NAME",      "MEMORY", "SESSIONS",
					       "GPUS", "GPU-HOURS", NULL};
	cleanup_table struct table table;
	size_t i;
	json_t *quota;

	table_begin(&table, headings);
	if (json_is_object(quotas))
		row_add(&table, quotas);
	json_array_foreach(quotas, i, quota) row_add(&table, quota);
	table_print(&table);
}

static int show(const struct cli *cli, const json_t *quotas, struct error *err)
{
	if (cli->value[OPT_JSON])
		return output_json(quotas, err);
	quotas_print(quotas);
	return 0;
}

/* ---- verbs ------------------------------------------------------------------------------- */

static int call(const struct cli *cli, const char *method, const char *path, const json_t *body,
		struct error *err)
{
	struct client client;
	cleanup_json json_t *answer = NULL;
	int rc = client_open(&client, cli->value[OPT_HOST], err);

	if (rc < 0 || (rc = client_call(&client, method, path, body, NULL, &answer, err)) < 0)
		return rc;
	return show(cli, answer, err);
}

int cli_quota_list(struct cli *cli, struct error *err)
{
	return call(cli, "GET", "/v1/quotas", NULL, err);
}

static bool is_my_group(const gid_t *groups, int count, uint64_t id)
{
	for (int i = 0; i < count; i++)
		if (groups[i] == id)
			return true;
	return getegid() == id;
}

/* Adds the quotas that are for more users than the caller, and bind the caller. */
static void others_add(json_t *rows, const json_t *quotas)
{
	static gid_t groups[NGROUPS_MAX];
	int count = getgroups(NGROUPS_MAX, groups);
	size_t i;
	json_t *quota;

	json_array_foreach(quotas, i, quota)
	{
		const char *kind = session_text(quota, "kind");
		bool of_group = !strcmp(kind, "group") || !strcmp(kind, "each");

		if (strcmp(kind, "user") != 0 &&
		    (!of_group || is_my_group(groups, count, session_number(quota, "id"))))
			json_array_append(rows, quota);
	}
}

/* All that binds the caller. */
static int own_show(const struct cli *cli, const char *path, struct error *err)
{
	struct client client;
	cleanup_json json_t *answer = NULL, *quotas = NULL, *rows = json_array();
	int rc = client_open(&client, cli->value[OPT_HOST], err);

	if (rc == 0)
		rc = client_call(&client, "GET", path, NULL, NULL, &answer, err);
	if (rc == 0)
		rc = client_call(&client, "GET", "/v1/quotas", NULL, NULL, &quotas, err);
	if (rc < 0)
		return rc;
	json_array_append(rows, answer);
	others_add(rows, quotas);
	quotas_print(rows);
	return 0;
}

int cli_quota_show(struct cli *cli, struct error *err)
{
	char path[QUOTA_PATH_SIZE];
	int rc = quota_options_path(cli, true, path, err);

	if (rc < 0)
		return rc;
	if (!cli->arguments[0] && !cli->value[OPT_GROUP] && !cli->value[OPT_EVERYONE] &&
	    !cli->value[OPT_JSON])
		return own_show(cli, path, err);
	return call(cli, "GET", path, NULL, err);
}

/* A quota may be more than there is, so a size that lacks its unit is asked about, not refused. */
static void mebibytes_ask(const struct cli *cli, uint64_t bytes)
{
	const char *text = cli->value[OPT_LIMIT_VRAM];
	struct client client;
	struct error ignored;
	cleanup_json json_t *gpus = NULL;
	uint64_t all = 0;
	size_t i;
	json_t *gpu;

	if (!text || !units_is_bare(text) ||
	    client_open(&client, cli->value[OPT_HOST], &ignored) < 0 ||
	    client_call(&client, "GET", "/v1/gpus", NULL, NULL, &gpus, &ignored) < 0)
		return;
	json_array_foreach(gpus, i, gpu) all += session_number(gpu, "memory_bytes");
	if (units_mebibytes_meant(bytes, all))
		fprintf(stderr,
			"carve: the quota is more memory than all GPUs have; " UNITS_BARE_HINT
			": did you mean %" PRIu64 "MiB?\n",
			bytes >> 30);
}

int cli_quota_set(struct cli *cli, struct error *err)
{
	cleanup_json json_t *body = json_object();
	char path[QUOTA_PATH_SIZE];
	int rc = quota_options_path(cli, false, path, err);

	if (rc < 0 || (rc = quota_options_read(cli, body, err)) < 0 ||
	    (rc = call(cli, "PATCH", path, body, err)) < 0)
		return rc;
	mebibytes_ask(cli, session_number(body, "vram_bytes"));
	return 0;
}

/* Returns whether the quota at that path has no limit. A quota that cannot be read may have one. */
static bool is_nothing(const struct client *client, const char *path)
{
	cleanup_json json_t *quota = NULL;
	struct error ignored;
	bool nothing = client_call(client, "GET", path, NULL, NULL, &quota, &ignored) == 0;

	for (size_t i = 0; i < ARRAY_SIZE(limits); i++)
		nothing &= json_is_null(json_object_get(quota, limits[i]));
	return nothing;
}

int cli_quota_remove(struct cli *cli, struct error *err)
{
	cleanup_json json_t *answer = NULL;
	char path[QUOTA_PATH_SIZE];
	struct client client;
	int rc = quota_options_path(cli, false, path, err);

	if (rc < 0 || (rc = client_open(&client, cli->value[OPT_HOST], err)) < 0)
		return rc;
	bool nothing = is_nothing(&client, path);
	rc = client_call(&client, "DELETE", path, NULL, NULL, &answer, err);
	if (rc < 0)
		return rc;
	if (!nothing || cli->value[OPT_JSON])
		return show(cli, answer, err);
	const char *name = session_text(answer, "name");
	printf("%s%s%s had no quota, so nothing was removed\n", kind_text(answer), *name ? " " : "",
	       name);
	return 0;
}
