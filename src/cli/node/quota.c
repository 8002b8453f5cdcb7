/* Quotas: what users and groups may hold at most. */
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/units.h"
#include "cli/cli.h"
#include "cli/output.h"
#include "client/client.h"
#include "client/sessions.h"
#include "client/text.h"

#define QUOTA_PATH_SIZE 256
#define LIMIT_MAX 1000000u

/* ---- the owner of a quota ---------------------------------------------------------------- */

/* Appends a name as it can stand in a URL. */
static int path_append(char buf[static QUOTA_PATH_SIZE], const char *name, struct error *err)
{
	if (strchr(name, '/') || !text_url_append(buf, QUOTA_PATH_SIZE, name))
		return error_set(err, EXIT_CODE_USAGE, "'%.64s' is no user's or group's name",
				 name);
	return 0;
}

/* The path in the API of the quota that the command line names. `own`: the caller's, where none is.
 */
static int quota_path(const struct cli *cli, bool own, char buf[static QUOTA_PATH_SIZE],
		      struct error *err)
{
	const char *user = cli->arguments[0], *group = cli->value[OPT_GROUP];
	char number[16];

	snprintf(buf, QUOTA_PATH_SIZE, "/v1/quotas/%s/", group ? "group" : "user");
	snprintf(number, sizeof(number), "%u", (unsigned)getuid());
	if (user && group) {
		error_set(err, EXIT_CODE_USAGE, "a user and --group are both given");
		error_hint(err, "a quota is one user's or one group's: leave one of them out");
	} else if (!user && !group && !own) {
		error_set(err, EXIT_CODE_USAGE, "%s: no user given", cli->verb->name);
		error_hint(err, "name a user, or --group GROUP; for example: %s",
			   cli->verb->example);
	} else if ((user && !*user) || (group && !*group)) {
		error_set(err, EXIT_CODE_USAGE, "'' is no user's or group's name");
	} else {
		return path_append(buf, user ? user : group ? group : number, err);
	}
	return -EXIT_CODE_USAGE;
}

/* ---- limits ------------------------------------------------------------------------------ */

static bool is_none(const char *text)
{
	return !strcmp(text, "none") || !strcmp(text, "-");
}

static int vram_read(const char *text, json_t *body, struct error *err)
{
	uint64_t bytes;

	if (is_none(text)) {
		json_object_set_new(body, "vram_bytes", json_null());
		return 0;
	}
	int rc = units_parse_vram(text, &bytes, err);
	if (rc == 0)
		json_object_set_new(body, "vram_bytes", json_integer((json_int_t)bytes));
	return rc;
}

static int count_read(const char *text, const char *option, const char *key, json_t *body,
		      struct error *err)
{
	uint64_t count;

	if (is_none(text)) {
		json_object_set_new(body, key, json_null());
		return 0;
	}
	int rc = units_parse_count(text, option, 0, LIMIT_MAX, &count, err);
	if (rc == 0)
		json_object_set_new(body, key, json_integer((json_int_t)count));
	return rc;
}

static int limits_read(const struct cli *cli, json_t *body, struct error *err)
{
	const char *vram = cli->value[OPT_LIMIT_VRAM], *sessions = cli->value[OPT_LIMIT_SESSIONS];
	const char *gpus = cli->value[OPT_LIMIT_GPUS];
	int rc = 0;

	if (!vram && !sessions && !gpus) {
		error_set(err, EXIT_CODE_USAGE, "quota set: no limit is given");
		error_hint(err, "for example: %s", cli->verb->example);
		return -EXIT_CODE_USAGE;
	}
	if (vram)
		rc = vram_read(vram, body, err);
	if (rc == 0 && sessions)
		rc = count_read(sessions, "--sessions", "sessions", body, err);
	if (rc == 0 && gpus)
		rc = count_read(gpus, "--gpus", "gpus", body, err);
	return rc;
}

/* ---- showing ----------------------------------------------------------------------------- */

/* "3 of 4", "3, no limit" */
static const char *use_text(const json_t *quota, const char *key, bool bytes, char *buf,
			    size_t size)
{
	const json_t *limit = json_object_get(quota, key), *used = json_object_get(quota, "used");
	char held[UNITS_TEXT_SIZE], most[UNITS_TEXT_SIZE];

	if (bytes) {
		units_format_bytes(session_number(used, key), held);
		units_format_bytes(session_number(quota, key), most);
	} else {
		snprintf(held, sizeof(held), "%" PRIu64, session_number(used, key));
		snprintf(most, sizeof(most), "%" PRIu64, session_number(quota, key));
	}
	if (json_is_integer(limit))
		snprintf(buf, size, "%s of %s", held, most);
	else
		snprintf(buf, size, "%s, no limit", held);
	return buf;
}

static void row_add(struct table *table, const json_t *quota)
{
	char text[2 * UNITS_TEXT_SIZE + 8];

	table_add(table, "%s", session_text(quota, "kind"));
	table_add(table, "%s", session_text(quota, "name"));
	table_add(table, "%s", use_text(quota, "vram_bytes", true, text, sizeof(text)));
	table_add(table, "%s", use_text(quota, "sessions", false, text, sizeof(text)));
	table_add(table, "%s", use_text(quota, "gpus", false, text, sizeof(text)));
}

static void quotas_print(const json_t *quotas)
{
	static const char *const headings[] = {"KIND", "NAME", "MEMORY", "SESSIONS", "GPUS", NULL};
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

/* Adds those of the caller's groups, which bind it, too. */
static void groups_add(json_t *rows, const json_t *quotas)
{
	static gid_t groups[NGROUPS_MAX];
	int count = getgroups(NGROUPS_MAX, groups);
	size_t i;
	json_t *quota;

	json_array_foreach(quotas, i, quota)
	{
		if (!strcmp(session_text(quota, "kind"), "group") &&
		    is_my_group(groups, count, session_number(quota, "id")))
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
	groups_add(rows, quotas);
	quotas_print(rows);
	return 0;
}

int cli_quota_show(struct cli *cli, struct error *err)
{
	char path[QUOTA_PATH_SIZE];
	int rc = quota_path(cli, true, path, err);

	if (rc < 0)
		return rc;
	if (!cli->arguments[0] && !cli->value[OPT_GROUP] && !cli->value[OPT_JSON])
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
	int rc = quota_path(cli, false, path, err);

	if (rc < 0 || (rc = limits_read(cli, body, err)) < 0 ||
	    (rc = call(cli, "PATCH", path, body, err)) < 0)
		return rc;
	mebibytes_ask(cli, session_number(body, "vram_bytes"));
	return 0;
}

int cli_quota_remove(struct cli *cli, struct error *err)
{
	char path[QUOTA_PATH_SIZE];
	int rc = quota_path(cli, false, path, err);

	return rc < 0 ? rc : call(cli, "DELETE", path, NULL, err);
}
