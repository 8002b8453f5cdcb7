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
#include "daemon/slicing/slicing.h"
#include "daemon/store/store.h"

/* A file that is larger is no configuration. */
#define HISTORY_MAX 10000000
/* Ended jobs, and their logs. */
#define HISTORY_JOBS_DEFAULT 1000000
/* A request is some 4 KiB, most of it the environment, and half a MiB at most: this is room for a
 * quarter of these jobs. Those of arrays and sweeps share theirs. */
#define HISTORY_TEXT_MIB_DEFAULT 1024

/* At the same time. More than the slices of 16 GPUs with 80 GB: a context alone takes some 500 MB.
 */
#define LIVING_SESSIONS_DEFAULT 4096

/* A job takes some 400 bytes: 1.6 GB, of the 2 that the service may have (MemoryMax). */
#define LIVING_JOBS_DEFAULT 4000000

/* A job has a shim, a shell and a few threads of its program. */
#define JOB_TASKS_LEAST 16

const struct config config_default = {
	.over_policy = OVER_REPORT,
	.over_after_ns = 3000000000ull,
	.history_sessions = STORE_HISTORY_DEFAULT,
	.history_per_minute = STORE_HISTORY_PER_MINUTE_DEFAULT,
	.history_jobs = HISTORY_JOBS_DEFAULT,
	.history_text_mib = HISTORY_TEXT_MIB_DEFAULT,
	.living_sessions = LIVING_SESSIONS_DEFAULT,
	.living_jobs = LIVING_JOBS_DEFAULT,
	.slicing = {.mode = COMPUTE_OFF,
		    .lease_ns = LEASE_NS_DEFAULT,
		    .granularity_ppm = LEASE_GRANULARITY_DEFAULT},
};

static int take_policy(const json_t *value, struct config *to, struct error *err)
{
	const char *text = json_is_string(value) ? json_string_value(value) : "";

	if (strcmp(text, "report") != 0 && strcmp(text, "kill") != 0)
		return error_set(err, EXIT_CODE_USAGE, "over_policy takes \"report\" or \"kill\"");
	to->over_policy = text[0] == 'k' ? OVER_KILL : OVER_REPORT;
	return 0;
}

static int take_slicing_policy(const json_t *value, struct config *to, struct error *err)
{
	const char *text = json_is_string(value) ? json_string_value(value) : "";

	if (strcmp(text, "report") != 0 && strcmp(text, "kill") != 0)
		return error_set(err, EXIT_CODE_USAGE,
				 "slicing_policy takes \"report\" or \"kill\"");
	to->slicing_policy = text[0] == 'k' ? SLICING_KILL : SLICING_REPORT;
	return 0;
}

static int take_tolerance(const json_t *value, struct config *to, struct error *err)
{
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
		return error_set(err, EXIT_CODE_USAGE,
				 "over_tolerance takes a size such as \"64MiB\" or \"1GiB\"; 0 "
				 "by default");
	to->over_tolerance_bytes = (uint64_t)(number * (double)(*unit == 'G' ? GIB(1) : MIB(1)));
	return 0;
}

static int take_seconds(const json_t *value, struct config *to, struct error *err)
{
	double seconds = json_number_value(value);

	if (!json_is_number(value) || !(seconds >= 1 && seconds <= 3600))
		return error_set(err, EXIT_CODE_USAGE,
				 "over_seconds takes a number from 1 to 3600");
	to->over_after_ns = (uint64_t)(seconds * 1e9);
	return 0;
}

static int count_take(const json_t *value, const char *key, int least, uint32_t *to,
		      struct error *err)
{
	json_int_t count = json_integer_value(value);

	if (!json_is_integer(value) || count < least || count > HISTORY_MAX)
		return error_set(err, EXIT_CODE_USAGE, "%s takes a whole number from %d to %d", key,
				 least, HISTORY_MAX);
	*to = (uint32_t)count;
	return 0;
}

static int take_history(const json_t *value, struct config *to, struct error *err)
{
	return count_take(value, "history_sessions", 0, &to->history_sessions, err);
}

static int take_jobs(const json_t *value, struct config *to, struct error *err)
{
	return count_take(value, "history_jobs", 0, &to->history_jobs, err);
}

static int take_text(const json_t *value, struct config *to, struct error *err)
{
	return count_take(value, "history_text_mib", 1, &to->history_text_mib, err);
}

static int take_living_jobs(const json_t *value, struct config *to, struct error *err)
{
	return count_take(value, "living_jobs", 2, &to->living_jobs, err);
}

static int take_job_tasks(const json_t *value, struct config *to, struct error *err)
{
	return count_take(value, "job_tasks", JOB_TASKS_LEAST, &to->job_tasks, err);
}

static int take_rate(const json_t *value, struct config *to, struct error *err)
{
	return count_take(value, "history_per_minute", 1, &to->history_per_minute, err);
}

/* A user has half of them. */
static int take_living(const json_t *value, struct config *to, struct error *err)
{
	return count_take(value, "living_sessions", 2, &to->living_sessions, err);
}

static int take_state_dir(const json_t *value, struct config *to, struct error *err)
{
	const char *path = json_is_string(value) ? json_string_value(value) : "";

	if (*path != '/' || strlen(path) >= sizeof(to->state_dir) ||
	    strlen(path) != json_string_length(value))
		return error_set(err, EXIT_CODE_USAGE,
				 "state_dir takes an absolute path such as \"/var/lib/carve\"");
	snprintf(to->state_dir, sizeof(to->state_dir), "%s", path);
	return 0;
}

/* A name or a number; whether there is such a group may change, and is no matter of the file. */
static int take_share_group(const json_t *value, struct config *to, struct error *err)
{
	json_int_t number = json_integer_value(value);
	const char *name = json_is_string(value) ? json_string_value(value) : "";

	if (json_is_integer(value) && number >= 0 && number < UINT32_MAX) {
		snprintf(to->mig_share_group, sizeof(to->mig_share_group), "%u", (unsigned)number);
		return 0;
	}
	if (!*name || strlen(name) >= sizeof(to->mig_share_group) ||
	    strlen(name) != json_string_length(value))
		return error_set(err, EXIT_CODE_USAGE,
				 "mig_share_group takes the name or the number of a group");
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
static int take_slicing(const json_t *value, struct config *to, struct error *err)
{
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

static int take_core(const json_t *value, struct config *to, struct error *err)
{
	const json_t *slicing = json_object_get(value, "timeSlicing");

	if (!slicing || json_object_size(value) != 1)
		return error_set(err, EXIT_CODE_USAGE,
				 "global.core takes {\"timeSlicing\": {...}}, nothing else");
	return take_slicing(slicing, to, err);
}

static int take_global(const json_t *value, struct config *to, struct error *err)
{
	const json_t *core = json_object_get(value, "core");

	if (!core || json_object_size(value) != 1)
		return error_set(err, EXIT_CODE_USAGE,
				 "global takes {\"core\": {\"timeSlicing\": {...}}}, nothing else");
	return take_core(core, to, err);
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

static const struct {
	const char *name;
	int (*take)(const json_t *value, struct config *to, struct error *err);
} keys[] = {
	{"over_policy", take_policy},
	{"over_tolerance", take_tolerance},
	{"over_seconds", take_seconds},
	{"history_sessions", take_history},
	{"history_per_minute", take_rate},
	{"history_jobs", take_jobs},
	{"history_text_mib", take_text},
	{"living_sessions", take_living},
	{"living_jobs", take_living_jobs},
	{"job_tasks", take_job_tasks},
	{"state_dir", take_state_dir},
	{"slicing_policy", take_slicing_policy},
	{"mig_share_group", take_share_group},
	{"timeSlicing", take_slicing},
	{"global", take_global},
};

static int key_take(const char *name, const json_t *value, struct config *to, struct error *err)
{
	for (size_t i = 0; i < ARRAY_SIZE(keys); i++)
		if (!strcmp(keys[i].name, name))
			return keys[i].take(value, to, err);
	error_set(err, EXIT_CODE_USAGE, "unknown key '%.64s'", name);
	error_hint(
		err,
		"there are over_policy, over_tolerance, over_seconds, history_sessions, "
		"history_per_minute, history_jobs, history_text_mib, living_sessions, living_jobs, "
		"job_tasks, state_dir, slicing_policy, mig_share_group, timeSlicing, global");
	return -EXIT_CODE_USAGE;
}

static int object_take(json_t *root, struct config *to, struct error *err)
{
	const char *key;
	json_t *value;
	int rc = 0;

	if (!json_is_object(root))
		return error_set(err, EXIT_CODE_USAGE, "it is not a JSON object");
	json_object_foreach(root, key, value)
	{
		rc = key_take(key, value, to, err);
		if (rc < 0)
			return rc;
	}
	return slicing_agree(root, err);
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
