#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/macros.h"
#include "daemon/host/crowd.h"
#include "daemon/queue/job.h"
#include "daemon/request/request.h"
#include "proto/shim_name.h"
#include "proto/warden_jobs.h"

#define SECONDS_MAX 1e9
#define ARRAY_INDEX_MAX 1000000000l

/* ---- states ------------------------------------------------------------------------------ */

static const char *const states[JOB_STATES] = {
	[JOB_QUEUED] = "queued",       [JOB_HELD] = "held",       [JOB_STARTING] = "starting",
	[JOB_RUNNING] = "running",     [JOB_DONE] = "done",       [JOB_FAILED] = "failed",
	[JOB_CANCELLED] = "cancelled", [JOB_TIMEOUT] = "timeout", [JOB_LOST] = "lost",
};

#define TO(state) (1u << (state))
#define ENDS (TO(JOB_DONE) | TO(JOB_FAILED) | TO(JOB_CANCELLED) | TO(JOB_TIMEOUT) | TO(JOB_LOST))

/* From QUEUED to an end: it was cancelled, what it waits for cannot come, or it can never start.
 * From RUNNING back to QUEUED: it is tried again. */
static const uint32_t changes[JOB_STATES] = {
	[JOB_QUEUED] = TO(JOB_HELD) | TO(JOB_STARTING) | TO(JOB_CANCELLED) | TO(JOB_FAILED),
	[JOB_HELD] = TO(JOB_QUEUED) | TO(JOB_CANCELLED),
	[JOB_STARTING] = TO(JOB_RUNNING) | TO(JOB_QUEUED) | TO(JOB_HELD) | ENDS,
	[JOB_RUNNING] = TO(JOB_QUEUED) | TO(JOB_HELD) | ENDS,
};

const char *job_state_text(enum job_state state)
{
	return state < JOB_STATES ? states[state] : "unknown";
}

bool job_state_may(enum job_state from, enum job_state to)
{
	return from < JOB_STATES && changes[from] >> to & 1;
}

/* ---- IDs --------------------------------------------------------------------------------- */

int job_id_parse(const char *text, int64_t *ret_id, int32_t *ret_index)
{
	char *end;

	if (!isdigit((unsigned char)*text))
		return -EINVAL;
	errno = 0;
	long long id = strtoll(text, &end, 10);
	*ret_index = -1;
	if (*end == '_' && isdigit((unsigned char)end[1])) {
		long index = strtol(end + 1, &end, 10);

		if (index > ARRAY_INDEX_MAX)
			return -EINVAL;
		*ret_index = (int32_t)index;
	}
	if (*end || errno || id < 1)
		return -EINVAL;
	*ret_id = id;
	return 0;
}

const char *job_id_text(const struct job_record *record, char buf[static JOB_ID_TEXT])
{
	if (record->array)
		snprintf(buf, JOB_ID_TEXT, "%" PRId64 "_%d", record->array, record->index);
	else
		snprintf(buf, JOB_ID_TEXT, "%" PRId64, job_id_number(record->id));
	return buf;
}

const char *job_after_text(const struct job_after *after, char buf[static JOB_ID_TEXT])
{
	const struct job_record named = {.id = after->job,
					 .array = after->index < 0 ? 0 : after->job,
					 .index = after->index};

	return job_id_text(&named, buf);
}

/* ---- fields ------------------------------------------------------------------------------ */

/* A text that is being read: into `spec`, with what comes out besides. */
struct reading {
	struct job_spec *spec;
	bool may_raise;
	uint32_t count;
	int32_t *indexes;
	uint64_t sweep;
};

#define WRONG_TYPE (-1000)

typedef int (*field_parse)(const json_t *value, struct reading *to, struct error *err);

static int usage(struct error *err, const char *field, const char *text, const char *what,
		 const char *hint)
{
	error_set(err, EXIT_CODE_USAGE, "%s: '%.64s' %s", field, text, what);
	error_hint(err, "%s", hint);
	return -EXIT_CODE_USAGE;
}

static int read_texts(const json_t *value)
{
	size_t i;
	json_t *item;

	if (!json_is_array(value))
		return WRONG_TYPE;
	json_array_foreach(value, i, item) if (!json_is_string(item)) return WRONG_TYPE;
	return 0;
}

static int read_argv(const json_t *value, struct reading *to, struct error *err)
{
	int rc = read_texts(value);

	if (rc < 0)
		return rc;
	const char *first = json_string_value(json_array_get(value, 0));
	return first && *first ? 0
			       : error_set(err, EXIT_CODE_USAGE, "argv: there is no command in it");
}

static int read_env(const json_t *value, struct reading *to, struct error *err)
{
	return read_texts(value);
}

static int read_cwd(const json_t *value, struct reading *to, struct error *err)
{
	const char *text = json_string_value(value);

	if (!text)
		return WRONG_TYPE;
	return *text == '/' ? 0
			    : usage(err, "cwd", text, "is not an absolute path",
				    "for example: /home/alice/project");
}

static int read_text(const json_t *value, struct reading *to, struct error *err)
{
	return json_is_string(value) ? 0 : WRONG_TYPE;
}

static int read_number(const json_t *value, struct reading *to, struct error *err)
{
	return json_is_integer(value) ? 0 : WRONG_TYPE;
}

static int read_object(const json_t *value, struct reading *to, struct error *err)
{
	return json_is_object(value) ? 0 : WRONG_TYPE;
}

static int read_name(const json_t *value, struct reading *to, struct error *err)
{
	const char *text = json_string_value(value);

	if (!text)
		return WRONG_TYPE;
	size_t length = strlen(text);
	bool plain = length && length < JOB_NAME_SIZE;
	for (size_t i = 0; i < length; i++)
		plain &= text[i] > ' ' && text[i] != '/' && text[i] != 127;
	if (!plain)
		return usage(err, "name", text, "is not the name of a job",
			     "1 to 63 ASCII characters without spaces and /");
	memcpy(to->spec->name, text, length + 1);
	return 0;
}

static int read_image(const json_t *value, struct reading *to, struct error *err)
{
	const char *text = json_string_value(value);

	if (!text)
		return WRONG_TYPE;
	if (!*text || strlen(text) >= sizeof(to->spec->image) || *text == '-' ||
	    strpbrk(text, " \t\n"))
		return usage(err, "image", text, "is not the name of an image",
			     "for example: docker.io/library/python:3.12");
	snprintf(to->spec->image, sizeof(to->spec->image), "%s", text);
	return 0;
}

/* Whether a value of a runtime's switch is false, as podman and docker read it. */
static bool is_off(const char *value)
{
	static const char *const off[] = {"false", "False", "FALSE", "f", "F", "0"};

	for (size_t i = 0; i < ARRAY_SIZE(off); i++)
		if (!strcmp(value, off[i]))
			return true;
	return false;
}

/* Options with which a container could outlive its job. NULL: it is none, else what is wrong with
 * it. */
static const char *outlives(const char *option)
{
	if (!strncmp(option, "--cidfile", 9) && (!option[9] || option[9] == '='))
		return "names a file that is the job's own, by which its container is removed";
	if (!strncmp(option, "--detach", 8) &&
	    (!option[8] || (option[8] == '=' && !is_off(option + 9))))
		return "would end the job before its container";
	return NULL;
}

/* Each is one word, so that its name is what the runtime takes for its name. */
static int read_container_args(const json_t *value, struct reading *to, struct error *err)
{
	char *list = to->spec->container_args;
	size_t i, used = 0, room = sizeof(to->spec->container_args);
	json_t *item;

	if (read_texts(value) < 0)
		return WRONG_TYPE;
	json_array_foreach(value, i, item)
	{
		const char *text = json_string_value(item);

		if (strncmp(text, "--", 2) != 0 || !text[2] || strchr(text, '\n') ||
		    used + strlen(text) + 2 > room)
			return usage(err, "container_args", text, "is no option of a runtime",
				     "for example: --ipc=host");
		if (outlives(text))
			return usage(err, "container_args", text, outlives(text),
				     "leave that option out");
		used += (size_t)snprintf(list + used, room - used, "%s%s", used ? "\n" : "", text);
	}
	return 0;
}

static int seconds(const json_t *value, const char *field, uint64_t *ret, struct error *err)
{
	double number = json_number_value(value);

	if (!json_is_number(value))
		return WRONG_TYPE;
	if (number < 0 || number > SECONDS_MAX)
		return error_set(err, EXIT_CODE_USAGE, "%s: %.15g s is outside 0 s to 30 years",
				 field, number);
	*ret = (uint64_t)(number * 1e9);
	return 0;
}

static int read_time(const json_t *value, struct reading *to, struct error *err)
{
	int rc = seconds(value, "time", &to->spec->limit_ns, err);

	if (rc == 0 && !to->spec->limit_ns)
		return error_set(err, EXIT_CODE_USAGE, "time: a limit must be more than 0 s");
	return rc;
}

static int read_grace(const json_t *value, struct reading *to, struct error *err)
{
	return seconds(value, "grace", &to->spec->grace_ns, err);
}

static int read_begin(const json_t *value, struct reading *to, struct error *err)
{
	if (!json_is_integer(value))
		return WRONG_TYPE;
	to->spec->begin = json_integer_value(value);
	return to->spec->begin >= 0 ? 0
				    : error_set(err, EXIT_CODE_USAGE, "begin: it is before 1970");
}

static int read_bool_requeue(const json_t *value, struct reading *to, struct error *err)
{
	to->spec->requeue = json_is_true(value);
	return json_is_boolean(value) ? 0 : WRONG_TYPE;
}

static int read_bool_hold(const json_t *value, struct reading *to, struct error *err)
{
	to->spec->hold = json_is_true(value);
	return json_is_boolean(value) ? 0 : WRONG_TYPE;
}

static int read_retries(const json_t *value, struct reading *to, struct error *err)
{
	json_int_t number = json_integer_value(value);

	if (!json_is_integer(value))
		return WRONG_TYPE;
	if (number < 0 || number > 1000)
		return error_set(err, EXIT_CODE_USAGE, "retries: %lld is outside 0 to 1000",
				 (long long)number);
	to->spec->retries = (unsigned)number;
	return 0;
}

static int read_retry_on(const json_t *value, struct reading *to, struct error *err)
{
	size_t i;
	json_t *item;

	if (!json_is_array(value))
		return WRONG_TYPE;
	if (json_array_size(value) > JOB_RETRY_ON_MAX)
		return error_set(err, EXIT_CODE_USAGE, "retry_on: there are more than %u",
				 JOB_RETRY_ON_MAX);
	json_array_foreach(value, i, item)
	{
		json_int_t code = json_integer_value(item);

		if (!json_is_integer(item) || code < -64 || code > 255 || !code)
			return error_set(err, EXIT_CODE_USAGE,
					 "retry_on: it takes exit codes from 1 to 255, and signals "
					 "as negative numbers");
		to->spec->retry_on[to->spec->retry_on_count++] = (int16_t)code;
	}
	return 0;
}

static int read_priority(const json_t *value, struct reading *to, struct error *err)
{
	json_int_t number = json_integer_value(value);

	if (!json_is_integer(value))
		return WRONG_TYPE;
	if (number < -REQUEST_PRIORITY_MAX || number > REQUEST_PRIORITY_MAX)
		return error_set(err, EXIT_CODE_USAGE, "priority: %lld is outside -%d to %d",
				 (long long)number, REQUEST_PRIORITY_MAX, REQUEST_PRIORITY_MAX);
	if (number > 0 && !to->may_raise)
		return error_set(err, EXIT_CODE_NOT_PERMITTED,
				 "priority: above 0 is for root and members of group carve");
	to->spec->priority = (int)number;
	return 0;
}

static int after_one(const json_t *item, struct job_after *ret, struct error *err)
{
	static const struct {
		const char *word;
		enum job_after_kind kind;
	} kinds[] = {{"ok:", JOB_AFTER_OK}, {"any:", JOB_AFTER_ANY}, {"notok:", JOB_AFTER_NOTOK}};
	const char *text = json_string_value(item);

	if (!text)
		return WRONG_TYPE;
	for (size_t i = 0; i < ARRAY_SIZE(kinds); i++) {
		size_t length = strlen(kinds[i].word);

		if (strncmp(text, kinds[i].word, length) != 0)
			continue;
		ret->kind = kinds[i].kind;
		if (job_id_parse(text + length, &ret->job, &ret->index) == 0)
			return 0;
	}
	return usage(err, "after", text, "does not name a job",
		     "for example: ok:17, any:17 or notok:17_3");
}

static int read_after(const json_t *value, struct reading *to, struct error *err)
{
	size_t i;
	json_t *item;

	if (!json_is_array(value))
		return WRONG_TYPE;
	if (json_array_size(value) > JOB_AFTER_MAX)
		return error_set(err, EXIT_CODE_USAGE, "after: there are more than %u jobs in it",
				 JOB_AFTER_MAX);
	json_array_foreach(value, i, item)
	{
		int rc = after_one(item, &to->spec->after[to->spec->after_count], err);

		if (rc < 0)
			return rc;
		to->spec->after_count++;
	}
	return 0;
}

static int array_error(const char *text, int rc, struct error *err)
{
	if (rc == -E2BIG) {
		error_set(err, EXIT_CODE_USAGE, "array: '%.64s' has too many jobs: %u are possible",
			  text, JOB_ARRAY_MAX);
		error_hint(err, "for example: 0-99999");
		return -EXIT_CODE_USAGE;
	}
	return usage(err, "array", text, "is not a list of indexes",
		     "for example: 0-99, 0-99%4, 1,3,5-9 or 0-90:10; 100000 jobs at most");
}

/* FIRST-LAST:STEP, the latter two optional. */
static int array_range(const char **at, struct reading *to)
{
	char *end;
	long step = 1;

	if (!isdigit((unsigned char)**at))
		return -EINVAL;
	long first = strtol(*at, &end, 10), last = first;
	if (*end == '-' && isdigit((unsigned char)end[1]))
		last = strtol(end + 1, &end, 10);
	if (*end == ':' && isdigit((unsigned char)end[1]))
		step = strtol(end + 1, &end, 10);
	*at = end;
	if (last < first || last > ARRAY_INDEX_MAX || step < 1 || step > ARRAY_INDEX_MAX)
		return -EINVAL;
	for (long i = first; i <= last; i += step) {
		if (to->count == JOB_ARRAY_MAX)
			return -E2BIG;
		to->indexes[to->count++] = (int32_t)i;
	}
	return 0;
}

static int ascending(const void *a, const void *b)
{
	int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;

	return (x > y) - (x < y);
}

static int read_array(const json_t *value, struct reading *to, struct error *err)
{
	const char *text = json_string_value(value), *at = text;
	char *end;

	if (!text)
		return WRONG_TYPE;
	to->indexes = malloc(JOB_ARRAY_MAX * sizeof(*to->indexes));
	if (!to->indexes)
		return error_set(err, EXIT_CODE_FAILED, "out of memory");
	to->count = 0;
	do {
		at += at != text; /* the comma */
		int rc = array_range(&at, to);
		if (rc < 0)
			return array_error(text, rc, err);
	} while (*at == ',');
	if (*at == '%' && isdigit((unsigned char)at[1])) {
		long most = strtol(at + 1, &end, 10);

		at = end;
		if (most < 1 || most > JOB_ARRAY_MAX)
			return array_error(text, -EINVAL, err);
		to->spec->array_most = (uint32_t)most;
	}
	if (*at)
		return array_error(text, -EINVAL, err);
	bool sorted = true;
	for (uint32_t i = 1; i < to->count && sorted; i++)
		sorted = to->indexes[i] > to->indexes[i - 1];
	if (!sorted)
		qsort(to->indexes, to->count, sizeof(*to->indexes), ascending);
	for (uint32_t i = 1; !sorted && i < to->count; i++)
		if (to->indexes[i] == to->indexes[i - 1])
			return usage(err, "array", text, "names an index twice",
				     "each index is one job");
	return 0;
}

static int read_params(const json_t *value, struct reading *to, struct error *err)
{
	const char *key;
	json_t *values;

	if (!json_is_object(value))
		return WRONG_TYPE;
	to->sweep = 1;
	json_object_foreach((json_t *)value, key, values)
	{
		bool name = isalpha((unsigned char)*key) || *key == '_';

		for (const char *at = key; *at; at++)
			name &= isalnum((unsigned char)*at) || *at == '_';
		if (!name)
			return usage(err, "param", key, "is not the name of a parameter",
				     "letters, digits and _, as the environment has them");
		if (read_texts(values) < 0)
			return WRONG_TYPE;
		to->sweep *= json_array_size(values);
		if (!to->sweep || to->sweep > JOB_ARRAY_MAX)
			return error_set(err, EXIT_CODE_USAGE,
					 "param: the sweep has %s jobs, and 1 to %u are possible",
					 to->sweep ? "too many" : "no", JOB_ARRAY_MAX);
	}
	return 0;
}

struct field {
	const char *name;
	field_parse parse;
	const char *takes;
};

static const struct field fields[] = {
	{"argv", read_argv, "a list of texts"},
	{"env", read_env, "a list of texts NAME=VALUE"},
	{"cwd", read_cwd, "an absolute path"},
	{"umask", read_number, "a whole number"},
	{"limits", read_object, "an object of soft limits by number"},
	{"in", read_text, "a path"},
	{"wait_in", read_text, "a path"},
	{"out", read_text, "a path"},
	{"err", read_text, "a path"},
	{"name", read_name, "a text"},
	{"container_args", read_container_args, "a list of texts"},
	{"image", read_image, "the name of a container's image"},
	{"time", read_time, "a number of seconds"},
	{"grace", read_grace, "a number of seconds"},
	{"begin", read_begin, "nanoseconds since 1970"},
	{"retries", read_retries, "a whole number"},
	{"retry_on", read_retry_on, "a list of exit codes"},
	{"requeue", read_bool_requeue, "true or false"},
	{"hold", read_bool_hold, "true or false"},
	{"priority", read_priority, "a whole number"},
	{"after", read_after, "a list of texts such as \"ok:17\""},
	{"array", read_array, "a text such as \"0-99%4\""},
	{"params", read_params, "an object of lists of texts"},
};

/* Sizes are those of sessions: request.h. */
static const char *const size_fields[] = {"vram_bytes",  "vram",        "gpu_memory", "gpu",
					  "gpu_compute", "vram_strict", "gpus"};

static bool is_size_field(const char *key)
{
	for (size_t i = 0; i < ARRAY_SIZE(size_fields); i++)
		if (!strcmp(size_fields[i], key))
			return true;
	return false;
}

static const struct field *field_find(const char *key)
{
	for (size_t i = 0; i < ARRAY_SIZE(fields); i++)
		if (!strcmp(fields[i].name, key))
			return &fields[i];
	return NULL;
}

static int size_read(const json_t *sizes, struct job_spec *spec, struct error *err)
{
	struct slice_request request;

	if (!json_object_size(sizes))
		return 0;
	int rc = request_parse(sizes, &request, err);

	if (rc < 0)
		return rc;
	spec->sized = true;
	spec->request = request.place;
	/* A job can wait for its whole size: the 93% rule is for people, who see what they get. */
	spec->request.strict = spec->request.lacks_resident = true;
	return 0;
}

static int fields_read(const json_t *body, struct reading *to, json_t *sizes, struct error *err)
{
	const char *key;
	json_t *value;

	json_object_foreach((json_t *)body, key, value)
	{
		const struct field *field = field_find(key);

		if (json_is_null(value) || !strcmp(key, "id") || !strcmp(key, "queue"))
			continue;
		if (is_size_field(key)) {
			json_object_set(sizes, key, value);
			continue;
		}
		if (!field) {
			error_set(err, EXIT_CODE_USAGE, "unknown field '%.64s'", key);
			error_hint(err,
				   "/usr/share/doc/carve/openapi.json lists what a job can say");
			return -EXIT_CODE_USAGE;
		}
		int rc = field->parse(value, to, err);
		if (rc == WRONG_TYPE)
			error_set(err, EXIT_CODE_USAGE, "'%s' takes %s", key, field->takes);
		if (rc < 0)
			return rc;
	}
	return size_read(sizes, to->spec, err);
}

/* A sweep's jobs are an array, too. */
static int sweep_make(struct reading *to, struct error *err)
{
	if (!to->sweep)
		return 0;
	/* With a list: those of the sweep's jobs, as when some are run again. */
	if (to->indexes) {
		if ((uint64_t)to->indexes[to->count - 1] < to->sweep)
			return 0;
		error_set(err, EXIT_CODE_USAGE, "array: the sweep has the jobs 0 to %d",
			  (int)to->sweep - 1);
		return -EXIT_CODE_USAGE;
	}
	to->indexes = malloc(to->sweep * sizeof(*to->indexes));
	if (!to->indexes)
		return error_set(err, EXIT_CODE_FAILED, "out of memory");
	to->count = (uint32_t)to->sweep;
	for (uint32_t i = 0; i < to->count; i++)
		to->indexes[i] = (int32_t)i;
	return 0;
}

int job_spec_parse(const json_t *body, const struct peer *peer, bool may_raise,
		   struct job_spec *ret, uint32_t *ret_count, int32_t **ret_indexes,
		   struct error *err)
{
	struct job_spec spec = {.grace_ns = JOB_GRACE_DEFAULT_NS};
	struct reading to = {.spec = &spec, .may_raise = may_raise, .count = 1};

	if (!json_is_object(body)) {
		error_set(err, EXIT_CODE_USAGE, "the body is not a JSON object");
		return -EXIT_CODE_USAGE;
	}
	json_t *sizes = json_object();
	int rc = fields_read(body, &to, sizes, err);
	json_decref(sizes);
	if (rc == 0 && !json_object_get(body, "argv"))
		rc = error_set(err, EXIT_CODE_USAGE, "argv: there is no command");
	if (rc == 0 && !json_object_get(body, "cwd"))
		rc = error_set(err, EXIT_CODE_USAGE, "cwd: there is no working directory");
	if (rc == 0)
		rc = sweep_make(&to, err);
	if (rc < 0) {
		free(to.indexes);
		return rc;
	}
	shim_name_choose(body, spec.name);
	*ret = spec;
	*ret_count = to.count;
	*ret_indexes = to.indexes;
	return 0;
}

int job_spec_load(const char *text, struct job_spec *ret)
{
	struct error ignored;
	int32_t *indexes = NULL;
	uint32_t count;
	json_t *body = json_loads(text, 0, NULL);
	int rc = body ? job_spec_parse(body, NULL, true, ret, &count, &indexes, &ignored) : -1;

	json_decref(body);
	free(indexes);
	return rc < 0 ? -EINVAL : 0;
}

void job_spec_unref(struct job_spec *spec)
{
	if (!spec || --spec->uses)
		return;
	if (spec->crowd)
		crowd_leave_many(spec->crowd, spec->owner, spec->units);
	free(spec->warrant);
	free(spec);
}

uint32_t job_spec_attempts(const struct job_spec *spec)
{
	return spec->requeue ? WARDEN_ATTEMPTS_MAX : spec->retries + 1;
}
