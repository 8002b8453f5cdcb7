/* The configuration file: a table of its keys, and a function for each key that takes more than a
 * word, a number or a text.
 *
 * A text is read into a copy of the defaults, and the copy is given out only where every key was
 * right. So a wrong file changes nothing, and the daemon keeps the settings that it has. A file is
 * read when the daemon starts, and when it is told to read the file again.
 *
 * Time-slicing can be written in two ways, as the document has it and directly. Both are read, and
 * slicing_agree() refuses a file in which they differ. */
#include "daemon/config.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/error.h"
#include "base/file.h"
#include "base/macros.h"
#include "base/record_json.h"
#include "daemon/slicing/slicing.h"
#include "daemon/store/store.h"
#include "daemon/waiting/quota_fields.h"

/* A file that is larger is no configuration. */
#define HISTORY_MAX 10000000
#define TO_HISTORY_MAX " to 10000000"
/* Ended jobs, and their logs. */
#define HISTORY_JOBS_DEFAULT 1000000
/* A request is some 4 KiB, most of it the environment, and half a MiB at most: this is room for a
 * quarter of these jobs. Those of arrays and sweeps share theirs. */
#define HISTORY_TEXT_MIB_DEFAULT 1024

/* A job takes some 400 bytes: 1.6 GB, of the 2 that the service may have (MemoryMax). */
#define LIVING_JOBS_DEFAULT 4000000

const struct config config_default = {
	.over_policy = OVER_REPORT,
	.over_after_ns = 3000000000ull,
	.history_sessions = STORE_HISTORY_DEFAULT,
	.history_per_minute = STORE_HISTORY_PER_MINUTE_DEFAULT,
	.history_jobs = HISTORY_JOBS_DEFAULT,
	.history_text_mib = HISTORY_TEXT_MIB_DEFAULT,
	.living_sessions = LIVING_SESSIONS_DEFAULT,
	.living_jobs = LIVING_JOBS_DEFAULT,
	.slicing_policy = SLICING_DEFAULT,
	.outside = {.policy = OUTSIDE_REPORT, .after_ns = 10000000000ull},
	.defaults = QUOTA_NOTHING,
	.slicing = {.mode = COMPUTE_OFF,
		    .lease_ns = LEASE_NS_DEFAULT,
		    .granularity_ppm = LEASE_GRANULARITY_DEFAULT},
	.metrics = {.readers = METRICS_READERS_DEFAULT},
	.web = {.user = WEB_USER_DEFAULT},
};

static int take_tolerance(const json_t *value, void *record, struct error *err)
{
	struct config *to = record;
	const char *text = json_is_string(value) ? json_string_value(value) : "";
	char *unit;
	double number = strtod(text, &unit);

	/* Nothing is nothing in any unit. */
	if ((json_is_number(value) && json_number_value(value) == 0) ||
	    (unit != text && number == 0 && (!*unit || strcmp(unit, "B") == 0))) {
		to->over_tolerance_bytes = 0;
		return 0;
	}
	if (unit == text || !(number >= 0 && number < 1e6) ||
	    (strcmp(unit, "MiB") != 0 && strcmp(unit, "GiB") != 0))
		return RECORD_WRONG_TYPE;
	to->over_tolerance_bytes = (uint64_t)(number * (double)(*unit == 'G' ? GIB(1) : MIB(1)));
	return 0;
}

static int take_seconds(const json_t *value, void *record, struct error *err)
{
	struct config *to = record;
	double seconds = json_number_value(value);

	if (!json_is_number(value) || !(seconds >= 1 && seconds <= 3600))
		return RECORD_WRONG_TYPE;
	to->over_after_ns = (uint64_t)(seconds * 1e9);
	return 0;
}

static bool is_absolute(const char *path)
{
	return *path == '/';
}

/* A name or a number; whether there is such a group may change, and is no matter of the file. */
static int take_share_group(const json_t *value, void *record, struct error *err)
{
	struct config *to = record;
	json_int_t number = json_integer_value(value);
	const char *name = json_is_string(value) ? json_string_value(value) : "";

	if (json_is_integer(value) && number >= 0 && number < UINT32_MAX) {
		snprintf(to->mig_share_group, sizeof(to->mig_share_group), "%u", (unsigned)number);
		return 0;
	}
	if (!*name || strlen(name) >= sizeof(to->mig_share_group) ||
	    strlen(name) != json_string_length(value))
		return RECORD_WRONG_TYPE;
	snprintf(to->mig_share_group, sizeof(to->mig_share_group), "%s", name);
	return 0;
}

static const char *null_field(const json_t *object)
{
	const char *key;
	json_t *value;

	json_object_foreach((json_t *)object, key, value)
	{
		if (json_is_null(value))
			return key;
	}
	return NULL;
}

/* The keys of the document that time-slicing comes from, and lease and granularity beside them. */
static int take_slicing(const json_t *value, void *record, struct error *err)
{
	struct config *to = record;
	struct slicing_change change = {0};
	const char *key = null_field(value);

	if (key)
		return error_set(err, EXIT_CODE_USAGE,
				 "timeSlicing: %.64s is null; leave it out for the default", key);
	int rc = json_is_object(value) ? slicing_change_read(value, NULL, &change, err)
				       : error_set(err, EXIT_CODE_USAGE,
						   "timeSlicing takes an object such as "
						   "{\"mode\": \"fair\"}");

	if (rc < 0)
		return rc;
	slicing_change_apply(&change, &to->slicing);
	return 0;
}

static int take_metrics(const json_t *value, void *record, struct error *err)
{
	return metrics_config_read(value, &((struct config *)record)->metrics, err);
}

static int take_web(const json_t *value, void *record, struct error *err)
{
	return web_config_read(value, &((struct config *)record)->web, err);
}

static int take_core(const json_t *value, void *record, struct error *err)
{
	const json_t *slicing = json_object_get(value, "timeSlicing");

	if (!slicing || json_object_size(value) != 1)
		return error_set(err, EXIT_CODE_USAGE,
				 "global.core takes {\"timeSlicing\": {...}}, nothing else");
	return take_slicing(slicing, record, err);
}

static int take_global(const json_t *value, void *record, struct error *err)
{
	const json_t *core = json_object_get(value, "core");

	if (!core || json_object_size(value) != 1)
		return error_set(err, EXIT_CODE_USAGE,
				 "global takes {\"core\": {\"timeSlicing\": {...}}}, nothing else");
	return take_core(core, record, err);
}

/* Both ways of writing it may be there as long as they say the same. Both were read before. */
static int slicing_agree(const json_t *root, struct error *err)
{
	const json_t *plain = json_object_get(root, "timeSlicing");
	const json_t *global = json_object_get(
		json_object_get(json_object_get(root, "global"), "core"), "timeSlicing");
	struct slicing_change a = {0}, b = {0};

	if (!plain || !global)
		return 0;
	int rc = slicing_change_read(plain, NULL, &a, err);
	if (rc == 0)
		rc = slicing_change_read(global, NULL, &b, err);
	if (rc < 0)
		return rc;
	const char *field =
		a.mode && b.mode && a.to.mode != b.to.mode             ? "mode"
		: a.lease && b.lease && a.to.lease_ns != b.to.lease_ns ? "lease"
		: a.granularity && b.granularity && a.to.granularity_ppm != b.to.granularity_ppm
			? "granularity"
			: NULL;
	if (!field)
		return 0;
	return error_set(err, EXIT_CODE_USAGE,
			 "timeSlicing.%s and global.core.timeSlicing.%s say different things: "
			 "leave one out",
			 field, field);
}

static const char *const policies[] = {"report", "kill", NULL};
static const char *const placements[] = {"pack", "spread", NULL};

static const char *const owners[] = {"none", "group", "all", NULL};

#define DURATION "a duration such as \"8h\" or \"1h30m\"; 0 for none"

/* A line with `takes` has its errors worded by that, whatever is wrong. */
#define FIELD(member, name, ...) RECORD_FIELD(struct config, member, name, __VA_ARGS__)
static const struct record_field keys[] = {
	FIELD(over_policy, "over_policy", .words = policies, .takes = "\"report\" or \"kill\""),
	{"over_tolerance", .take = take_tolerance,
	 .takes = "a size such as \"64MiB\" or \"1GiB\"; 0 by default"},
	{"over_seconds", .take = take_seconds, .takes = "a number from 1 to 3600"},
	FIELD(history_sessions, "history_sessions", .most = HISTORY_MAX,
	      .takes = "a whole number from 0" TO_HISTORY_MAX),
	FIELD(history_per_minute, "history_per_minute", .least = 1, .most = HISTORY_MAX,
	      .takes = "a whole number from 1" TO_HISTORY_MAX),
	FIELD(history_jobs, "history_jobs", .most = HISTORY_MAX,
	      .takes = "a whole number from 0" TO_HISTORY_MAX),
	FIELD(history_text_mib, "history_text_mib", .least = 1, .most = HISTORY_MAX,
	      .takes = "a whole number from 1" TO_HISTORY_MAX),
	/* A user has half of them. */
	FIELD(living_sessions, "living_sessions", .least = 2, .most = HISTORY_MAX,
	      .takes = "a whole number from 2" TO_HISTORY_MAX),
	FIELD(living_jobs, "living_jobs", .least = 2, .most = HISTORY_MAX,
	      .takes = "a whole number from 2" TO_HISTORY_MAX),
	/* A job has a shim, a shell and a few threads of its program. */
	FIELD(job_tasks, "job_tasks", .least = 16, .most = HISTORY_MAX,
	      .takes = "a whole number from 16" TO_HISTORY_MAX),
	FIELD(state_dir, "state_dir", .valid = is_absolute,
	      .takes = "an absolute path such as \"/var/lib/carve\""),
	FIELD(slicing_policy, "slicing_policy", .words = policies,
	      .takes = "\"report\" or \"kill\""),
	FIELD(outside.policy, "outside_policy", .words = policies,
	      .takes = "\"report\" or \"kill\""),
	{"outside_seconds", .take = config_take_outside_seconds,
	 .takes = "a number from 2 to 86400"},
	{"outside_exempt", .take = config_take_outside_exempt},
	FIELD(show_owners, "show_owners", .words = owners,
	      .takes = "\"none\", \"group\" or \"all\""),
	FIELD(placement, "placement", .words = placements, .takes = "\"pack\" or \"spread\""),
	{"session_timeout_default", .take = config_take_session_default, .takes = DURATION},
	{"session_timeout_max", .take = config_take_session_max, .takes = DURATION},
	{"job_time_default", .take = config_take_job_default, .takes = DURATION},
	{"job_time_max", .take = config_take_job_max, .takes = DURATION},
	{"idle_timeout", .take = config_take_idle_timeout, .takes = DURATION},
	{"idle_warning", .take = config_take_idle_warning,
	 .takes = "a duration such as \"10m\"; 0 for a tenth of idle_timeout, at most 10 minutes"},
	{"idle_exempt", .take = config_take_idle_exempt},
	{"mig_share_group", .take = take_share_group, .takes = "the name or the number of a group"},
	{"metrics", .take = take_metrics},
	{"web", .take = take_web},
	RECORD_FIELD_OF(struct config, defaults, "defaults", quota_fields,
			.takes = "an object such as {\"vram\": \"16GiB\", \"sessions\": 2}"),
	{"timeSlicing", .take = take_slicing},
	{"global", .take = take_global},
	{0},
};

static int object_take(json_t *root, struct config *to, struct error *err)
{
	int rc = json_is_object(root) ? record_take_object(keys, "", root, to, err)
				      : error_set(err, EXIT_CODE_USAGE, "it is not a JSON object");

	if (rc == 0)
		rc = config_times_agree(&to->times, err);
	return rc < 0 ? rc : slicing_agree(root, err);
}

static bool begins_as_json(const char *text, size_t size)
{
	size_t i = 0;

	while (i < size && strchr(" \t\r\n", text[i]) && text[i])
		i++;
	return i == size || text[i] == '{' || text[i] == '[';
}

int config_parse(const char *text, size_t size, struct config *ret, struct error *err)
{
	json_error_t where;
	struct config config = config_default;
	json_t *root = json_loadb(text, size, JSON_REJECT_DUPLICATES, &where);

	if (!root)
		return error_set(err, EXIT_CODE_USAGE, "line %d: %.128s%s", where.line, where.text,
				 begins_as_json(text, size)
					 ? ""
					 : "; it is JSON, as {\"timeSlicing\": {\"mode\": "
					   "\"fair\"}}, not YAML");
	int rc = object_take(root, &config, err);
	json_decref(root);
	if (rc == 0)
		*ret = config;
	return rc;
}

int config_read(const char *path, struct config *ret, struct error *err)
{
	struct error inner = {0};
	struct stat st;

	/* A reader of it waits, and with it the daemon. */
	if (stat(path, &st) == 0 && S_ISFIFO(st.st_mode))
		return error_set(err, EXIT_CODE_USAGE, "%.300s: it is a pipe, no file", path);
	cleanup_free char *text = malloc(CONFIG_SIZE_MAX);
	ssize_t size = text ? file_read(path, text, CONFIG_SIZE_MAX) : -ENOMEM;

	if (size < 0)
		return error_set(err, EXIT_CODE_USAGE, "%.300s: %s", path,
				 strerrordesc_np((int)-size));
	if (config_parse(text, (size_t)size, ret, &inner) == 0)
		return 0;
	error_set(err, EXIT_CODE_USAGE, "%.300s: %.200s", path, inner.message);
	error_hint(err, "%s", inner.hint);
	return -EXIT_CODE_USAGE;
}
