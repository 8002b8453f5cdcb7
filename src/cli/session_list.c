#include <inttypes.h>

#include "base/error.h"
#include "base/units.h"
#include "cli/cli.h"
#include "cli/client.h"
#include "cli/output.h"
#include "cli/sessions.h"

static void sessions_print(const json_t *sessions)
{
	static const char *const headings[] = {"ID",  "STATE", "OWNER",   "SIZE", "USED",
					       "GPU", "PIDS",  "CREATED", NULL};
	cleanup_table struct table table;
	size_t i;
	json_t *session;

	table_begin(&table, headings);
	json_array_foreach(sessions, i, session)
	{
		char size[UNITS_TEXT_SIZE], used[UNITS_TEXT_SIZE], on[SESSION_GPUS_SIZE];
		size_t pids = json_array_size(json_object_get(session, "pids"));

		table_add(&table, "%s", session_text_or_dash(session, "id"));
		table_add(&table, "%s", session_text_or_dash(session, "state"));
		table_add(&table, "%s", session_text_or_dash(session, "owner"));
		table_add(&table, "%s",
			  units_format_bytes(session_number(session, "vram_bytes"), size));
		table_add(&table, "%s",
			  units_format_bytes(session_gpus_sum(session, "used_bytes"), used));
		table_add(&table, "%s", session_gpus_text(session, on));
		table_add(&table, "%zu", pids);
		table_add(&table, "%s", session_text_or_dash(session, "created"));
	}
	table_print(&table);
}

int cli_session_list(struct cli *cli, struct error *err)
{
	struct client client;
	cleanup_json json_t *sessions = NULL;
	const char *path = cli->value[OPT_ALL] ? "/v1/sessions?all=1" : "/v1/sessions";
	int rc = client_open(&client, cli->value[OPT_HOST], err);

	if (rc < 0 || (rc = client_call(&client, "GET", path, NULL, NULL, &sessions, err)) < 0)
		return rc;
	if (cli->value[OPT_JSON])
		return output_json(sessions, err);
	sessions_print(sessions);
	return 0;
}
