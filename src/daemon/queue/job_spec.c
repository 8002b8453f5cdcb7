/* This file holds the states of a job, the IDs of jobs, and the request of a job.
 *
 * job_spec_parse() reads the body of POST /v1/jobs. A field is found in one of three tables: the
 * fields of a job's processes (proto/job_text.h), the fields of a size (daemon/request/request.h),
 * and the fields below. Sizes are put aside first and read at the end, as a request for a session.
 * An array's list of indexes and a sweep's parameters both become a list of indexes, because a
 * sweep's jobs are an array, too.
 *
 * job_spec_load() reads a text again that was accepted before, when a new daemon takes up the jobs
 * of the last daemon. It takes the same way, so that a text has one meaning. Loop thread. */
#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/macros.h"
#include "base/record_json.h"
#include "daemon/host/budget.h"
#include "daemon/queue/job.h"
#include "daemon/request/request.h"
#include "proto/job_text.h"
#include "proto/warden_jobs.h"

#define SECONDS_MAX 1e9
#define ARRAY_INDEX_MAX 1000000000l
_Static_assert(JOB_NAME_SIZE == JOB_TEXT_NAME_SIZE && QUEUE_IMAGE_SIZE == JOB_TEXT_IMAGE_SIZE &&
		       sizeof(((struct job_spec *)NULL)->container_args) == JOB_TEXT_ARGS_SIZE &&
		       JOB_ARRAY_MAX == JOB_TEXT_SWEEP_MAX,
	       "a job's text fits its spec");

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

/* A text that is being read: into `text` and `spec`, with what comes out besides. */
struct reading {
	struct job_text text;
	struct job_spec spec;
	bool may_raise;
	uint32_t count;
	int32_t *indexes;
};

static int seconds(const json_t *value, const char *field, uint64_t *ret, struct error *err)
{
	double number = json_number_value(value);

	if (!json_is_number(value))
		return RECORD_WRONG_TYPE;
	if (number < 0 || number > SECONDS_MAX)
		return error_set(err, EXIT_CODE_USAGE, "%s: %.15g s is outside 0 s to 30 years",
				 field, number);
	*ret = (uint64_t)(number * 1e9);
	return 0;
}

static int read_time(const json_t *value, void *record, struct error *err)
{
	struct reading *to = record;
	int rc = seconds(value, "time", &to->spec.limit_ns, err);

	if (rc == 0 && !to->spec.limit_ns)
		return error_set(err, EXIT_CODE_USAGE, "time: a limit must be more than 0 s");
	return rc;
}

static int read_grace(const json_t *value, void *record, struct error *err)
{
	struct reading *to = record;

	return seconds(value, "grace", &to->spec.grace_ns, err);
}

static int begin_check(void *record, struct error *err)
{
	const struct reading *to = record;

	return to->spec.begin >= 0 ? 0
				   : error_set(err, EXIT_CODE_USAGE, "begin: it is before 1970");
}

static int read_retry_on(const json_t *value, void *record, struct error *err)
{
	struct reading *to = record;
	size_t i;
	json_t *item;

	if (!json_is_array(value))
		return RECORD_WRONG_TYPE;
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
		to->spec.retry_on[to->spec.retry_on_count++] = (int16_t)code;
	}
	return 0;
}

static int priority_check(void *record, struct error *err)
{
	const struct reading *to = record;

	if (to->spec.priority > 0 && !to->may_raise)
		return error_set(err, EXIT_CODE_NOT_PERMITTED,
				 "priority: above 0 is for root and members of group carve");
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
		return RECORD_WRONG_TYPE;
	for (size_t i = 0; i < ARRAY_SIZE(kinds); i++) {
		size_t length = strlen(kinds[i].word);

		if (strncmp(text, kinds[i].word, length) != 0)
			continue;
		ret->kind = kinds[i].kind;
		if (job_id_parse(text + length, &ret->job, &ret->index) == 0)
			return 0;
	}
	return record_wrong(err, "after", text, "does not name a job",
			    "for example: ok:17, any:17 or notok:17_3");
}

static int read_after(const json_t *value, void *record, struct error *err)
{
	struct reading *to = record;
	size_t i;
	json_t *item;

	if (!json_is_array(value))
		return RECORD_WRONG_TYPE;
	if (json_array_size(value) > JOB_AFTER_MAX)
		return error_set(err, EXIT_CODE_USAGE, "after: there are more than %u jobs in it",
				 JOB_AFTER_MAX);
	json_array_foreach(value, i, item)
	{
		int rc = after_one(item, &to->spec.after[to->spec.after_count], err);

		if (rc < 0)
			return rc;
		to->spec.after_count++;
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
	return record_wrong(err, "array", text, "is not a list of indexes",
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

static int read_array(const json_t *value, void *record, struct error *err)
{
	struct reading *to = record;
	const char *text = json_string_value(value), *at = text;
	char *end;

	if (!text)
		return RECORD_WRONG_TYPE;
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
		to->spec.array_most = (uint32_t)most;
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
			return record_wrong(err, "array", text, "names an index twice",
					    "each index is one job");
	return 0;
}

#define FIELD(member, name, ...) RECORD_FIELD(struct reading, member, name, __VA_ARGS__)
const struct record_field job_spec_fields[] = {
	{"time", RECORD_REAL, .take = read_time, .takes = "a number of seconds"},
	{"grace", RECORD_REAL, .take = read_grace, .takes = "a number of seconds"},
	FIELD(spec.begin, "begin", .then = begin_check, .takes = "nanoseconds since 1970"),
	FIELD(spec.retries, "retries", .most = 1000, .takes = "a whole number"),
	{"retry_on", RECORD_SEVERAL, .take = read_retry_on, .takes = "a list of exit codes"},
	FIELD(spec.requeue, "requeue", .takes = "true or false"),
	FIELD(spec.hold, "hold", .takes = "true or false"),
	FIELD(spec.priority, "priority", .then = priority_check, .least = -REQUEST_PRIORITY_MAX,
	      .most = REQUEST_PRIORITY_MAX, .takes = "a whole number"),
	{"after", RECORD_TEXTS, .take = read_after, .takes = "a list of texts such as \"ok:17\""},
	{"array", RECORD_TEXT, .take = read_array, .takes = "a text such as \"0-99%4\""},
	{0},
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
		if (json_is_null(value) || !strcmp(key, "id") || !strcmp(key, "queue"))
			continue;
		if (is_size_field(key)) {
			json_object_set(sizes, key, value);
			continue;
		}
		const struct record_field *its = record_find(job_text_fields, key),
					  *field = record_find(job_spec_fields, key);
		if (!its && !field) {
			error_set(err, EXIT_CODE_USAGE, "unknown field '%.64s'", key);
			error_hint(err,
				   "/usr/share/doc/carve/openapi.json lists what a job can say");
			return -EXIT_CODE_USAGE;
		}
		int rc = its ? record_take(its, value, &to->text, err)
			     : record_take(field, value, to, err);
		if (rc < 0)
			return rc;
	}
	return size_read(sizes, &to->spec, err);
}

/* Takes over what the daemon keeps of the text of the job's processes. */
static void text_keep(const struct job_text *text, struct job_spec *spec)
{
	size_t i, used = 0, room = sizeof(spec->container_args);
	json_t *item;

	job_text_name(text, spec->name);
	snprintf(spec->image, sizeof(spec->image), "%s", text->image);
	json_array_foreach((json_t *)text->container_args, i, item) used +=
		(size_t)snprintf(spec->container_args + used, room - used, "%s%s", used ? "\n" : "",
				 json_string_value(item));
}

/* A sweep's jobs are an array, too. */
static int sweep_make(struct reading *to, struct error *err)
{
	if (!to->text.sweep)
		return 0;
	/* With a list: those of the sweep's jobs, as when some are run again. */
	if (to->indexes) {
		if ((uint64_t)to->indexes[to->count - 1] < to->text.sweep)
			return 0;
		error_set(err, EXIT_CODE_USAGE,
			  "array: index %d is none of the sweep's: the values of --param make jobs "
			  "0 to %d",
			  (int)to->indexes[to->count - 1], (int)to->text.sweep - 1);
		error_hint(err, "leave out --array, which chooses jobs of the sweep");
		return -EXIT_CODE_USAGE;
	}
	to->indexes = malloc(to->text.sweep * sizeof(*to->indexes));
	if (!to->indexes)
		return error_set(err, EXIT_CODE_FAILED, "out of memory");
	to->count = (uint32_t)to->text.sweep;
	for (uint32_t i = 0; i < to->count; i++)
		to->indexes[i] = (int32_t)i;
	return 0;
}

/* Commands take such a name for an ID or an option, and would never find the job. Older versions
 * took it. */
static int name_check(const char *name, struct error *err)
{
	if (isdigit((unsigned char)*name) && strspn(name, "0123456789_*") == strlen(name))
		return record_wrong(err, "name", name, "looks like the ID of a job",
				    "begin it with a letter, for example: run-17");
	if (*name == '-')
		return record_wrong(err, "name", name, "looks like an option",
				    "begin it with a letter, for example: run-17");
	return 0;
}

int job_spec_parse(const json_t *body, const struct peer *peer, bool may_raise,
		   struct job_spec *ret, uint32_t *ret_count, int32_t **ret_indexes,
		   struct error *err)
{
	struct reading to = {.text = job_text_none,
			     .spec = {.grace_ns = JOB_GRACE_DEFAULT_NS},
			     .may_raise = may_raise,
			     .count = 1};

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
	if (rc == 0 && peer)
		rc = name_check(to.text.name, err);
	if (rc < 0) {
		free(to.indexes);
		return rc;
	}
	text_keep(&to.text, &to.spec);
	*ret = to.spec;
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
	if (spec->budget)
		budget_leave_many(spec->budget, spec->owner, spec->units);
	free(spec->warrant);
	free(spec);
}

uint32_t job_spec_attempts(const struct job_spec *spec)
{
	return spec->requeue ? WARDEN_ATTEMPTS_MAX : spec->retries + 1;
}
