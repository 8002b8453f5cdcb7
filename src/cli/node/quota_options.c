#include "cli/node/quota_options.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/units.h"
#include "cli/cli.h"
#include "client/text.h"
#include "core/quota.h"

#define LIMIT_MAX 1000000u

const char *quota_hours_text(double hours, bool is_limit, char buf[static UNITS_TEXT_SIZE])
{
	if (is_limit)
		return quota_format_hours((uint64_t)(hours * 3600000 + 0.5), buf);
	snprintf(buf, UNITS_TEXT_SIZE, "%.2f", hours);
	return buf;
}

/* ---- the owner of a quota ---------------------------------------------------------------- */

/* Appends a name as it can stand in a URL. */
static int path_append(char buf[static QUOTA_PATH_SIZE], const char *name, struct error *err)
{
	if (!*name)
		return error_set(err, EXIT_CODE_USAGE, "'' is no user's or group's name");
	if (strchr(name, '/') || !text_url_append(buf, QUOTA_PATH_SIZE, name))
		return error_set(err, EXIT_CODE_USAGE, "'%.64s' is no user's or group's name",
				 name);
	return 0;
}

static int whose_check(const struct cli *cli, bool own, struct error *err)
{
	const char *user = cli->arguments[0], *group = cli->value[OPT_GROUP];
	bool everyone = cli->value[OPT_EVERYONE];

	if (user && (group || everyone)) {
		error_set(err, EXIT_CODE_USAGE, "a user and %s are both given",
			  group ? "--group" : "--everyone");
		error_hint(err, "a quota is one user's, one group's or everyone's: leave one of "
				"them out");
	} else if (group && everyone) {
		error_set(err, EXIT_CODE_USAGE, "--group and --everyone are both given");
		error_hint(err, "a quota is one user's, one group's or everyone's: leave one of "
				"them out");
	} else if (cli->value[OPT_EACH] && !group) {
		error_set(err, EXIT_CODE_USAGE, "--each is given without --group");
		error_hint(err, "name the group for each of whose members the quota is (--group "
				"GROUP --each), or use --everyone for each user");
	} else if (!user && !group && !everyone && !own) {
		error_set(err, EXIT_CODE_USAGE, "%s: no user given", cli->verb->name);
		error_hint(err, "name a user, or --group GROUP, or --everyone; for example: %s",
			   cli->verb->example);
	} else {
		return 0;
	}
	return -EXIT_CODE_USAGE;
}

int quota_options_path(const struct cli *cli, bool own, char buf[static QUOTA_PATH_SIZE],
		       struct error *err)
{
	const char *user = cli->arguments[0], *group = cli->value[OPT_GROUP];
	char number[16];
	int rc = whose_check(cli, own, err);

	if (rc < 0)
		return rc;
	snprintf(number, sizeof(number), "%u", (unsigned)getuid());
	snprintf(buf, QUOTA_PATH_SIZE, "/v1/quotas/%s",
		 cli->value[OPT_EVERYONE] ? "everyone"
		 : cli->value[OPT_EACH]   ? "each/"
		 : group                  ? "group/"
					  : "user/");
	if (cli->value[OPT_EVERYONE])
		return 0;
	return path_append(buf, group ? group : user ? user : number, err);
}

/* ---- limits ------------------------------------------------------------------------------ */

/* A value that is no number: it leaves the limit to less specific quotas, or takes it away. */
static bool word_read(const char *text, const char *key, json_t *body)
{
	if (!strcmp(text, "none") || !strcmp(text, "-"))
		json_object_set_new(body, key, json_null());
	else if (!strcmp(text, "unlimited"))
		json_object_set_new(body, key, json_string(text));
	else
		return false;
	return true;
}

static int vram_read(const char *text, json_t *body, struct error *err)
{
	uint64_t bytes;

	if (word_read(text, "vram_bytes", body))
		return 0;
	int rc = quota_parse_vram(text, "--vram", &bytes, err);
	if (rc == 0)
		json_object_set_new(body, "vram_bytes", json_integer((json_int_t)bytes));
	return rc;
}

static int count_read(const char *text, const char *option, const char *key, json_t *body,
		      struct error *err)
{
	uint64_t count;

	if (word_read(text, key, body))
		return 0;
	int rc = units_parse_count(text, option, 0, LIMIT_MAX, &count, err);
	if (rc == 0)
		json_object_set_new(body, key, json_integer((json_int_t)count));
	return rc;
}

static int hours_read(const char *text, json_t *body, struct error *err)
{
	uint64_t ms;

	if (word_read(text, "gpu_hours", body))
		return 0;
	int rc = quota_parse_hours(text, "--gpu-hours", &ms, err);
	if (rc == 0)
		json_object_set_new(body, "gpu_hours", json_real((double)ms / 3600000));
	return rc;
}

int quota_options_read(const struct cli *cli, json_t *body, struct error *err)
{
	const char *vram = cli->value[OPT_LIMIT_VRAM], *sessions = cli->value[OPT_LIMIT_SESSIONS];
	const char *gpus = cli->value[OPT_LIMIT_GPUS], *hours = cli->value[OPT_LIMIT_HOURS];
	int rc = 0;

	if (!vram && !sessions && !gpus && !hours) {
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
	if (rc == 0 && hours)
		rc = hours_read(hours, body, err);
	return rc;
}
