/* carve limits: what binds a user, and who set it. The daemon names and words each limit, so a new
 * one needs nothing here. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/macros.h"
#include "base/units.h"
#include "cli/cli.h"
#include "cli/columns.h"
#include "cli/node/quota_options.h"
#include "cli/output.h"
#include "cli/user.h"
#include "client/client.h"
#include "client/sessions.h"

static void amount_print(const json_t *row, const char *key, const char *none, struct cell *cell)
{
	const json_t *value = json_object_get(row, key);
	const char *unit = session_text(row, "unit");
	uint64_t number = session_number(row, key);
	char text[UNITS_TEXT_SIZE];

	if (json_is_string(value))
		column_print(cell, "%s", json_string_value(value));
	else if (!json_is_number(value))
		column_print(cell, "%s", none);
	else if (!strcmp(unit, "bytes"))
		column_print(cell, "%s", units_format_bytes(number, text));
	else if (!strcmp(unit, "ns"))
		column_print(cell, "%s", units_format_exact_duration(number, text));
	else if (!strcmp(unit, "gpu_hours"))
		column_print(
			cell, "%s",
			quota_hours_text(json_number_value(value), !strcmp(key, "value"), text));
	else
		column_print(cell, "%" PRIu64, number);
}

static void value_fill(const json_t *row, int64_t now, struct cell *cell)
{
	amount_print(row, "value", "no limit", cell);
}

static void used_fill(const json_t *row, int64_t now, struct cell *cell)
{
	amount_print(row, "used", "-", cell);
}

static void from_fill(const json_t *row, int64_t now, struct cell *cell)
{
	static const struct {
		const char *from, *before, *after;
	} texts[] = {
		{"user", "user ", ""},
		{"group", "group ", ", all members together"},
		{"each", "group ", ", each member"},
		{"everyone", "everyone, each user", ""},
		{"defaults", "carved.json, defaults", ""},
		{"carved.json", "carved.json, ", ""},
	};
	const char *from = session_text(row, "from"), *name = session_text(row, "name");

	column_print(cell, "%s%s%s", *from ? from : "-", *name ? " " : "", name);
	for (size_t i = 0; i < ARRAY_SIZE(texts); i++)
		if (!strcmp(from, texts[i].from))
			column_print(cell, "%s%s%s", texts[i].before, name, texts[i].after);
}

static const struct column columns[] = {
	{"LIMIT", "title", FORMAT_TEXT},
	{"VALUE", .fill = value_fill},
	{"USED", .fill = used_fill},
	{"FROM", .fill = from_fill},
};

int cli_limits(struct cli *cli, struct error *err)
{
	const char *user = cli->value[OPT_LIMITS_USER];
	char path[64] = "/v1/limits";
	cleanup_json json_t *answer = NULL;
	struct client client;
	uid_t uid = 0;
	int rc = user ? user_find(user, &uid, err) : 0;

	if (user)
		snprintf(path, sizeof(path), "/v1/limits?uid=%u", (unsigned)uid);
	if (rc < 0 || (rc = client_open(&client, cli->value[OPT_HOST], err)) < 0 ||
	    (rc = client_call(&client, "GET", path, NULL, NULL, &answer, err)) < 0)
		return rc;
	if (cli->value[OPT_JSON])
		return output_json(answer, err);
	table_print_rows(columns, ARRAY_SIZE(columns), json_object_get(answer, "limits"));
	return 0;
}
