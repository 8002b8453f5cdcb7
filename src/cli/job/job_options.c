#include "cli/job/job_options.h"

#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/macros.h"
#include "base/units.h"
#include "cli/cli.h"
#include "cli/job/jobs.h"
#include "cli/job/snapshot.h"
#include "cli/session/slice_request.h"
#include "cli/when.h"
#include "client/client.h"
#include "container/container_find.h"

#define PRIORITY_MAX 100
#define RETRY_ON_EXAMPLE "for example: --retry-on 75,137,KILL"

static int wrong(struct error *err, const char *option, const char *text, const char *hint)
{
	error_set(err, EXIT_CODE_USAGE, "--%s: '%.64s' is not understood", option, text);
	error_hint(err, "%s", hint);
	return -EXIT_CODE_USAGE;
}

/* ---- times -------------------------------------------------------------------------------- */

// NOLINTBEGIN(cert-err34-c): fields of at most four digits

/* "MM:SS", "HH:MM:SS", "D-HH:MM:SS", as batch systems have it. */
static int colon_time(const char *text, int64_t *ret_seconds)
{
	unsigned days = 0, a, b, c = 0;
	int used = 0;

	if (sscanf(text, "%4u-%2u:%2u:%2u%n", &days, &a, &b, &c, &used) == 4 && !text[used])
		*ret_seconds = (int64_t)days * 86400 + (int64_t)a * 3600 + (int64_t)b * 60 + c;
	else if (sscanf(text, "%4u:%2u:%2u%n", &a, &b, &c, &used) == 3 && !text[used])
		*ret_seconds = (int64_t)a * 3600 + (int64_t)b * 60 + c;
	else if (sscanf(text, "%4u:%2u%n", &a, &b, &used) == 2 && !text[used])
		*ret_seconds = (int64_t)a * 60 + b;
	else
		return -1;
	return 0;
}

static int time_read(const char *text, json_t *body, struct error *err)
{
	int64_t seconds;
	char hint[128];

	/* Batch systems count minutes, shells seconds: neither is guessed. */
	if (strspn(text, "0123456789") == strlen(text) && strspn(text, "0") < strlen(text)) {
		snprintf(hint, sizeof(hint), "it has no unit: say %.18ss, or %.18sm for minutes",
			 text, text);
		return wrong(err, "time", text, hint);
	}
	if (!isdigit((unsigned char)*text) ||
	    (when_unit_time(text, &seconds) < 0 && colon_time(text, &seconds) < 0) || !seconds)
		return wrong(err, "time", text,
			     "for example: 90s, 30m, 2h, 1d, 01:30:00, 1-12:00:00");
	json_object_set_new(body, "time", json_integer(seconds));
	return 0;
}

// NOLINTEND(cert-err34-c)

static int begin_read(const char *text, json_t *body, struct error *err)
{
	int64_t seconds;

	/* The daemon's times end in the year 2262. */
	if (!strcmp(text, "now"))
		seconds = now_realtime_ns() / 1000000000;
	else if (!strncmp(text, "now+", 4) && when_unit_time(text + 4, &seconds) == 0)
		seconds += now_realtime_ns() / 1000000000;
	else if (when_calendar_time(text, &seconds) < 0)
		return wrong(err, "begin", text, "for example: now+30m, 18:30, 2026-11-30T08:00");
	else if (seconds > INT64_MAX / 1000000000)
		return wrong(err, "begin", text, "it is after the year 2262");
	else if (seconds < now_realtime_ns() / 1000000000) {
		error_set(err, EXIT_CODE_USAGE, "--begin: '%.64s' is in the past", text);
		error_hint(err, "for example: now, now+30m, 18:30, 2026-11-30T08:00");
		return -EXIT_CODE_USAGE;
	}
	json_object_set_new(body, "begin", json_integer(seconds * 1000000000));
	return 0;
}

/* ---- options that both have --------------------------------------------------------------- */

static int signal_number(const char *name)
{
	if (!strncmp(name, "SIG", 3))
		name += 3;
	for (int number = 1; number < 32; number++)
		if (sigabbrev_np(number) && !strcmp(sigabbrev_np(number), name))
			return number;
	return 0;
}

/* Cuts the text up. */
static int codes_add(char *text, json_t *list, struct error *err)
{
	char *state, *word;

	for (word = strtok_r(text, ", ", &state); word; word = strtok_r(NULL, ", ", &state)) {
		char *end;
		long code = strtol(word, &end, 10);

		if (*end)
			code = -signal_number(word);
		if (!code || code > 255 || (!*end && code < 0))
			return wrong(err, "retry-on", word, RETRY_ON_EXAMPLE);
		json_array_append_new(list, json_integer(code));
	}
	return 0;
}

static int retry_on_read(const char *text, json_t *body, struct error *err)
{
	json_t *list = json_array();
	char *copy = strdup(text);
	int rc = copy ? codes_add(copy, list, err)
		      : error_set(err, EXIT_CODE_FAILED, "out of memory");

	free(copy);
	if (rc == 0 && !json_array_size(list))
		rc = wrong(err, "retry-on", text, RETRY_ON_EXAMPLE);
	json_object_set_new(body, "retry_on", list);
	return rc;
}

static int number_read(const struct cli *cli, enum cli_option_id id, const char *option,
		       const char *key, long least, long most, json_t *body, struct error *err)
{
	const char *text = cli->value[id];
	char *end, hint[64];

	if (!text)
		return 0;
	long number = strtol(text, &end, 10);
	snprintf(hint, sizeof(hint), "a whole number from %ld to %ld", least, most);
	if (end == text || *end || number < least || number > most)
		return wrong(err, option, text, hint);
	json_object_set_new(body, key, json_integer(number));
	return 0;
}

/* "ok:17", "17", or the name of a job in place of 17, which the daemon is asked for. */
static int after_add(const struct cli *cli, const char *text, json_t *list, struct error *err)
{
	static const char *const kinds[] = {"ok:", "any:", "notok:"};
	const char *kind = "ok:", *job = text;
	char id[JOB_ID_SIZE];
	struct client client;

	for (size_t i = 0; i < ARRAY_SIZE(kinds); i++)
		if (!strncmp(text, kinds[i], strlen(kinds[i]))) {
			kind = kinds[i];
			job = text + strlen(kind);
		}
	if (!*job || strpbrk(job, ",:"))
		return wrong(err, "after", text,
			     "repeat --after for each job: --after ok:17 --after any:18 --after "
			     "notok:17_3");
	struct error why = {0};
	int rc = client_open(&client, cli->value[OPT_HOST], &why);
	if (rc == 0)
		rc = job_id_find(&client, job, false, id, &why);
	if (rc < 0) {
		/* A job that is not there is a wrong value of the option. */
		int code = why.code == EXIT_CODE_FAILED ? EXIT_CODE_USAGE : why.code;

		error_set(err, code, "--after: %s", why.message);
		error_hint(err, "%s", why.hint);
		return -code;
	}
	json_array_append_new(list, json_sprintf("%s%s", kind, id));
	return 0;
}

static int after_read(const struct cli *cli, json_t *body, struct error *err)
{
	json_t *list = json_array();
	int rc = 0;

	for (int i = 0; i < cli->given_count; i++) {
		const char *text = cli->given[i].value;
		if (cli->given[i].id != OPT_JOB_AFTER)
			continue;
		if (rc == 0)
			rc = after_add(cli, text, list, err);
	}
	json_object_set_new(body, "after", list);
	return rc;
}

static int sizes_read(const struct cli *cli, json_t *body, struct error *err)
{
	cleanup_request struct slice_request request = {0};
	int rc = slice_request_read(cli, &request, err);

	if (rc < 0)
		return rc;
	if (!request.sized && request.option) {
		error_set(err, EXIT_CODE_USAGE, "--%s only goes with a size", request.option);
		error_hint(err, "for example: --vram 4 --%s ...", request.option);
		return -EXIT_CODE_USAGE;
	}
	json_object_update(body, request.body);
	return 0;
}

static void text_set(const struct cli *cli, enum cli_option_id id, const char *key, json_t *body)
{
	if (cli->value[id])
		json_object_set_new(body, key, json_string(cli->value[id]));
}

/* Names of files may be any bytes elsewhere. */
static int path_set(json_t *body, const char *key, const char *option, const char *path,
		    struct error *err)
{
	if (!*path)
		return error_set(err, EXIT_CODE_USAGE, "--%s: the path is empty", option);
	if (json_object_set_new(body, key, json_string(path)) == 0)
		return 0;
	error_set(err, EXIT_CODE_USAGE, "--%s: '%.200s' is not UTF-8", option, path);
	error_hint(err, "rename it, or have a script do what the job does");
	return -EXIT_CODE_USAGE;
}

static int files_read(const struct cli *cli, json_t *body, struct error *err)
{
	static const struct {
		enum cli_option_id id;
		const char *key, *option;
	} files[] = {{OPT_JOB_INPUT, "in", "input"},
		     {OPT_JOB_OUTPUT, "out", "output"},
		     {OPT_JOB_ERROR, "err", "error"}};
	int rc = 0;

	for (size_t i = 0; i < ARRAY_SIZE(files) && rc == 0; i++)
		if (cli->value[files[i].id])
			rc = path_set(body, files[i].key, files[i].option, cli->value[files[i].id],
				      err);
	return rc;
}

int job_image_check(const struct cli *cli, struct error *err)
{
	const char *image = cli->value[OPT_JOB_DOCKER];

	if (!image || (*image && *image != '-' && !strpbrk(image, " \t\n")))
		return 0;
	error_set(err, EXIT_CODE_USAGE, "--docker: '%.64s' is not the name of an image", image);
	error_hint(err, "for example: docker.io/library/python:3.12");
	return -EXIT_CODE_USAGE;
}

/* A job in a container: refused here already where none can run. */
static int container_read(const struct cli *cli, json_t *body, struct error *err)
{
	json_t *args = json_array();

	for (int i = 0; i < cli->given_count; i++)
		if (cli->given[i].id == OPT_JOB_DOCKER_ARG)
			json_array_append_new(args, json_string(cli->given[i].value));
	if (json_array_size(args))
		json_object_set(body, "container_args", args);
	json_decref(args);
	text_set(cli, OPT_JOB_DOCKER, "image", body);
	if (job_image_check(cli, err) < 0)
		return -EXIT_CODE_USAGE;
	return cli->value[OPT_JOB_DOCKER] && !container_runtime_find(err) ? -EXIT_CODE_NOT_FOUND
									  : 0;
}

int job_options_read(const struct cli *cli, json_t *body, struct error *err)
{
	uint64_t grace;
	int rc = sizes_read(cli, body, err);

	if (rc == 0)
		rc = container_read(cli, body, err);

	text_set(cli, OPT_JOB_QUEUE, "queue", body);
	text_set(cli, OPT_JOB_NAME, "name", body);
	if (rc == 0)
		rc = files_read(cli, body, err);
	if (cli->value[OPT_JOB_REQUEUE])
		json_object_set_new(body, "requeue", json_true());
	if (rc == 0)
		rc = number_read(cli, OPT_JOB_PRIORITY, "priority", "priority", -PRIORITY_MAX,
				 PRIORITY_MAX, body, err);
	if (rc == 0)
		rc = number_read(cli, OPT_JOB_RETRIES, "retries", "retries", 0, 1000, body, err);
	if (rc == 0 && cli->value[OPT_JOB_RETRY_ON])
		rc = retry_on_read(cli->value[OPT_JOB_RETRY_ON], body, err);
	if (rc == 0 && cli->value[OPT_JOB_TIME])
		rc = time_read(cli->value[OPT_JOB_TIME], body, err);
	if (rc == 0 && cli->value[OPT_JOB_BEGIN])
		rc = begin_read(cli->value[OPT_JOB_BEGIN], body, err);
	if (rc == 0 && cli->value[OPT_JOB_AFTER])
		rc = after_read(cli, body, err);
	if (rc == 0 && cli->value[OPT_JOB_GRACE] &&
	    (rc = units_parse_seconds(cli->value[OPT_JOB_GRACE], "--grace", &grace, err)) == 0)
		json_object_set_new(body, "grace", json_real((double)grace / 1e9));
	return rc;
}

/* ---- options of a new job alone ----------------------------------------------------------- */

static bool is_name(const char *entry, size_t length)
{
	for (size_t i = 0; i < length; i++)
		if (!isalnum((unsigned char)entry[i]) && entry[i] != '_')
			return false;
	return length && !isdigit((unsigned char)*entry);
}

/* A slice that this process is in is not the job's. */
static bool is_slices(const char *entry)
{
	static const char *const own[] = {
		"CARVE_SESSION=", "CARVE_STAMP=", "CARVE_ATTACH=", "CARVE_DRIVER_", "CARVE_JOB_"};

	for (size_t i = 0; i < ARRAY_SIZE(own); i++)
		if (!strncmp(entry, own[i], strlen(own[i])))
			return true;
	return false;
}

/* JSON carries UTF-8 only: `entry` is NULL for another one. */
static void entry_add(json_t *list, const char *name, size_t length, json_t *entry)
{
	if (json_array_append_new(list, entry) < 0)
		fprintf(stderr,
			"carve: note: the job does not get %.*s, whose value is not UTF-8\n",
			(int)MIN(length, 64), name);
}

/* Removes an entry of this name, so that a later one counts. */
static void entry_put(json_t *list, const char *name, size_t length, const char *value)
{
	for (size_t i = 0; i < json_array_size(list); i++) {
		const char *entry = json_string_value(json_array_get(list, i));

		if (!strncmp(entry, name, length) && entry[length] == '=')
			json_array_remove(list, i--);
	}
	entry_add(list, name, length, json_sprintf("%.*s=%s", (int)length, name, value));
}

/* The environment that a login gives, for --export=NONE and lists. */
static void least_environment(json_t *list)
{
	static const char *const kept[] = {"HOME", "USER", "LOGNAME", "SHELL", "PATH", "TERM"};

	for (size_t i = 0; i < ARRAY_SIZE(kept); i++) {
		const char *value = secure_getenv(kept[i]);

		if (value)
			entry_put(list, kept[i], strlen(kept[i]), value);
	}
}

static void whole_environment(json_t *list)
{
	for (char **entry = environ; *entry; entry++)
		if (!is_slices(*entry))
			entry_add(list, *entry, strcspn(*entry, "="), json_string(*entry));
}

static int export_read(const char *text, json_t *body, struct error *err)
{
	json_t *list = json_array();
	cleanup_json json_t *owner = list;
	char *copy = strdup(text ? text : "ALL"), *state, *word;
	bool all = false;

	if (text && !*text) {
		free(copy);
		return wrong(err, "export", text, "for example: ALL, NONE or HOME,LR=0.1");
	}

	least_environment(list);
	for (word = strtok_r(copy, ",", &state); word; word = strtok_r(NULL, ",", &state)) {
		const char *equals = strchr(word, '=');
		size_t length = equals ? (size_t)(equals - word) : strlen(word);

		if (!strcmp(word, "NONE") || !strcmp(word, "ALL")) {
			all = !strcmp(word, "ALL");
			if (all)
				whole_environment(list);
			continue;
		}
		if (!is_name(word, length)) {
			wrong(err, "export", word, "for example: ALL, NONE or HOME,LR=0.1");
			free(copy);
			return -EXIT_CODE_USAGE;
		}
		const char *now = equals ? equals + 1 : secure_getenv(word);
		if (now)
			entry_put(list, word, length, now);
	}
	free(copy);
	json_object_set(body, "env", list);
	return 0;
}

static int chdir_read(const char *text, json_t *body, struct error *err)
{
	char path[PATH_MAX];
	struct stat st;

	if (!text) {
		/* As the shell has it: a link stays one. */
		const char *logical = secure_getenv("PWD");
		struct stat here;

		if (logical && *logical == '/' && stat(logical, &st) == 0 &&
		    stat(".", &here) == 0 && st.st_dev == here.st_dev && st.st_ino == here.st_ino) {
			return path_set(body, "cwd", "chdir", logical, err);
		}
		text = ".";
		if (!getcwd(path, sizeof(path)))
			return error_set(err, EXIT_CODE_FAILED, "the current directory is gone");
	}
	if (!*text)
		return error_set(err, EXIT_CODE_USAGE, "--chdir: the path is empty");
	if (!realpath(text, path) || stat(path, &st) < 0 || !S_ISDIR(st.st_mode)) {
		error_set(err, EXIT_CODE_USAGE, "--chdir: %.200s is not a directory", text);
		return -EXIT_CODE_USAGE;
	}
	/* The job runs as this user. */
	if (access(path, X_OK) < 0)
		return error_set(err, EXIT_CODE_USAGE, "--chdir: %.200s cannot be entered: %s",
				 path, strerrordesc_np(errno));
	return path_set(body, "cwd", "chdir", path, err);
}

static int snapshot_read(const struct cli *cli, json_t *body, struct error *err)
{
	char path[PATH_MAX];

	if (cli->value[OPT_JOB_CHDIR])
		return error_set(
			err, EXIT_CODE_USAGE,
			"--snapshot runs the job in its copy: it does not go with --chdir");
	int rc = snapshot_make(path, err);
	return rc < 0 ? rc : path_set(body, "cwd", "snapshot", path, err);
}

static void limits_note(json_t *body)
{
	json_t *limits = json_object();
	mode_t mask = umask(0);
	char name[16];

	umask(mask);
	json_object_set_new(body, "umask", json_integer(mask));
	for (int which = 0; which < RLIM_NLIMITS; which++) {
		struct rlimit limit;

		snprintf(name, sizeof(name), "%d", which);
		if (getrlimit((__rlimit_resource_t)which, &limit) == 0)
			json_object_set_new(limits, name,
					    json_integer(limit.rlim_cur == RLIM_INFINITY
								 ? -1
								 : (json_int_t)limit.rlim_cur));
	}
	json_object_set_new(body, "limits", limits);
}

static int param_add(const char *text, json_t *params, struct error *err)
{
	const char *equals = strchr(text, '=');
	char name[64];

	if (!equals || !is_name(text, (size_t)(equals - text)) ||
	    (size_t)(equals - text) >= sizeof(name) || !equals[1])
		return wrong(err, "param", text, "for example: --param lr=0.1,0.01");
	snprintf(name, sizeof(name), "%.*s", (int)(equals - text), text);
	if (json_object_get(params, name))
		return wrong(err, "param", name,
			     "each parameter is given once, with all its values");
	json_t *values = json_array();
	json_object_set_new(params, name, values);
	for (const char *value = equals; value; value = strchr(value, ',')) {
		size_t length = strcspn(++value, ",");

		if (!length)
			return wrong(err, "param", text,
				     "a value is empty; for example: --param lr=0.1,0.01");
		json_array_append_new(values, json_stringn(value, length));
	}
	return 0;
}

static int params_read(const struct cli *cli, json_t *body, struct error *err)
{
	json_t *params = json_object();
	int rc = 0;

	for (int i = 0; rc == 0 && i < cli->given_count; i++)
		if (cli->given[i].id == OPT_JOB_PARAM)
			rc = param_add(cli->given[i].value, params, err);
	if (rc == 0 && json_object_size(params))
		json_object_set(body, "params", params);
	json_decref(params);
	return rc;
}

int job_options_new(const struct cli *cli, json_t *body, struct error *err)
{
	if (cli->value[OPT_JOB_RETRY_ON] && !cli->value[OPT_JOB_RETRIES]) {
		error_set(err, EXIT_CODE_USAGE, "--retry-on only goes with --retries");
		error_hint(err, "for example: --retries 2 --retry-on 75,KILL");
		return -EXIT_CODE_USAGE;
	}
	int rc = export_read(cli->value[OPT_JOB_EXPORT], body, err);

	if (rc == 0)
		rc = cli->value[OPT_JOB_SNAPSHOT]
			     ? snapshot_read(cli, body, err)
			     : chdir_read(cli->value[OPT_JOB_CHDIR], body, err);
	if (rc == 0)
		rc = params_read(cli, body, err);
	text_set(cli, OPT_JOB_ARRAY, "array", body);
	if (cli->value[OPT_JOB_HOLD])
		json_object_set_new(body, "hold", json_true());
	limits_note(body);
	return rc;
}
