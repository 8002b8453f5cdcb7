/* carve job list, and how jobs are found: by filters, by IDs and by names. The daemon gives lists
 * in parts: jobs that ended, the latest first, and jobs that have not ended. */
#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/macros.h"
#include "base/units.h"
#include "cli/cli.h"
#include "cli/job/job_show.h"
#include "cli/job/jobs.h"
#include "cli/moment.h"
#include "cli/output.h"
#include "cli/user.h"
#include "cli/when.h"
#include "client/client.h"
#include "client/sessions.h"
#include "client/text.h"

#define ENDED_MAX 100000u
#define ENDED_DEFAULT 20u
/* A queue's, a user's and a job's name, each of whose bytes may take three characters. */
#define FILTER_SIZE 512
/* Jobs of one name that an error lists. */
#define NAMED_SHOWN 8u

/* ---- lists of the daemon ------------------------------------------------------------------ */

/* Puts the parts of a list together, up to `most`. `first` is the path up to where the part is
 * named. With `since` (seconds since 1970) the list is of jobs that ended, the latest first, and
 * the last part is the one that reaches to before then. */
static int parts_get(const struct client *client, const char *first, size_t most, int64_t since,
		     const struct client_patience *patience, json_t **ret, struct error *err)
{
	cleanup_json json_t *all = json_array();
	char path[FILTER_SIZE + 256], next[100] = "";
	bool more = true;

	while (more && json_array_size(all) < most) {
		cleanup_json json_t *part = NULL;

		snprintf(path, sizeof(path), "%.*s%s", FILTER_SIZE + 100, first, next);
		int rc = client_call(client, "GET", path, NULL, patience, &part, err);
		if (rc < 0)
			return rc;
		json_array_extend(all, json_object_get(part, "jobs"));
		const char *text = json_string_value(json_object_get(part, "next"));
		const json_t *last = json_array_get(all, json_array_size(all) - 1);
		more = text &&
		       (!since || !last || moment_parse(session_text(last, "ended")) >= since);
		snprintf(next, sizeof(next), "%s", text ? text : "");
	}
	*ret = steal_ptr(&all);
	return 0;
}

int jobs_meant(const struct client *client, const char *id, bool waits, json_t **ret,
	       struct error *err)
{
	struct client_patience patience = {.wait_ns = UINT64_MAX / 2};
	char path[JOB_PATH_SIZE];
	int rc = job_path(id, waits ? "?wait=1&part=" : "?part=", path, err);

	return rc < 0 ? rc
		      : parts_get(client, path, SIZE_MAX, 0, waits ? &patience : NULL, ret, err);
}

int jobs_living(const struct client *client, const char *filter, json_t **ret, struct error *err)
{
	char path[FILTER_SIZE + 64];

	snprintf(path, sizeof(path), "/v1/jobs?ended=0%s&part=", filter);
	return parts_get(client, path, SIZE_MAX, 0, NULL, ret, err);
}

/* The `most` jobs that ended last, the latest first, and where `since` is not 0 all of which ended
 * since then. */
static int jobs_ended(const struct client *client, const char *filter, uint64_t most, int64_t since,
		      json_t **ret, struct error *err)
{
	cleanup_json json_t *list = NULL;
	char path[FILTER_SIZE + 64];

	snprintf(path, sizeof(path), "/v1/jobs?ended=%u%s&before=", (unsigned)most, filter);
	int rc = most ? parts_get(client, path, most, since, NULL, &list, err) : 0;
	if (rc < 0)
		return rc;
	*ret = json_array();
	for (size_t i = 0; i < MIN(json_array_size(list), most); i++) {
		json_t *job = json_array_get(list, i);

		if (!since || moment_parse(session_text(job, "ended")) >= since)
			json_array_append(*ret, job);
	}
	return 0;
}

static void filter_add(char filter[static FILTER_SIZE], const char *key, const char *value)
{
	size_t used = strlen(filter);

	snprintf(filter + used, FILTER_SIZE - used, "&%s=", key);
	text_url_append(filter, FILTER_SIZE, value);
}

/* ---- in one order ------------------------------------------------------------------------- */

/* Negative: job `a` was enqueued before `b`. */
static int order_of(const json_t *a, const json_t *b)
{
	char *first, *second;
	unsigned long long one = strtoull(session_text(a, "id"), &first, 10);
	unsigned long long other = strtoull(session_text(b, "id"), &second, 10);

	if (one == other) {
		one = *first == '_' ? strtoull(first + 1, NULL, 10) : 0;
		other = *second == '_' ? strtoull(second + 1, NULL, 10) : 0;
	}
	return (one > other) - (one < other);
}

bool job_came_before(const json_t *a, const json_t *b)
{
	return order_of(a, b) < 0;
}

static int by_coming(const void *a, const void *b)
{
	return order_of(*(json_t *const *)a, *(json_t *const *)b);
}

/* Both lists as one, in the order in which the jobs were enqueued. */
static json_t *in_order(const json_t *ended, const json_t *living)
{
	size_t count = json_array_size(ended) + json_array_size(living), n = 0, i;
	json_t **order = calloc(count + 1, sizeof(json_t *)), *all = json_array(), *job;

	json_array_foreach(ended, i, job) if (order) order[n++] = job;
	json_array_foreach(living, i, job) if (order) order[n++] = job;
	if (order)
		qsort(order, n, sizeof(json_t *), by_coming);
	for (i = 0; i < n; i++)
		json_array_append(all, order[i]);
	free(order);
	return all;
}

/* ---- names -------------------------------------------------------------------------------- */

static bool looks_like_id(const char *text)
{
	size_t number = strspn(text, "0123456789");

	return number && number <= 15 &&
	       (!text[number] || (text[number] == '_' &&
				  (!strcmp(text + number, "_*") ||
				   (isdigit((unsigned char)text[number + 1]) &&
				    !text[number + 1 + strspn(text + number + 1, "0123456789")]))));
}

/* The jobs of an array have one name, and are one candidate: the array. */
static const char *candidate_id(const json_t *job, char buf[static JOB_ID_SIZE])
{
	snprintf(buf, JOB_ID_SIZE, "%.*s", (int)strcspn(session_text(job, "id"), "_"),
		 session_text(job, "id"));
	return buf;
}

/* One job or array for each that the list has, by coming. */
static json_t *candidates(const json_t *jobs)
{
	json_t *found = json_array(), *job;
	char last[JOB_ID_SIZE] = "", id[JOB_ID_SIZE];
	size_t i;

	json_array_foreach(jobs, i, job)
	{
		if (strcmp(candidate_id(job, id), last) != 0)
			json_array_append(found, job);
		memcpy(last, id, sizeof(last));
	}
	return found;
}

static int ambiguous(const char *name, const json_t *found, struct error *err)
{
	size_t count = json_array_size(found),
	       first = count > NAMED_SHOWN ? count - NAMED_SHOWN : 0;
	char list[256] = "", id[JOB_ID_SIZE];

	for (size_t i = first; i < count; i++) {
		const json_t *job = json_array_get(found, i);
		size_t used = strlen(list);

		snprintf(list + used, sizeof(list) - used, "%s%s (%s)", i > first ? ", " : "",
			 candidate_id(job, id),
			 json_is_integer(json_object_get(job, "array"))
				 ? "array"
				 : session_text(job, "state"));
	}
	error_set(err, EXIT_CODE_USAGE, "'%.64s' is the name of %zu jobs: %s%s", name, count,
		  first ? "the last of them are " : "", list);
	error_hint(err, "name the job by its ID, for example: %.*s", (int)strcspn(list, " "), list);
	return -EXIT_CODE_USAGE;
}

/* The jobs and arrays that have a name, by coming. With `living` those that have not ended, if
 * there are any. A list, owned by the caller. */
static int named_jobs(const struct client *client, const char *name, bool living, json_t **ret,
		      struct error *err)
{
	cleanup_json json_t *alive = NULL, *ended = NULL, *all = NULL;
	char filter[FILTER_SIZE] = "";

	filter_add(filter, "name", name);
	int rc = jobs_living(client, filter, &alive, err);
	if (rc == 0 && (!living || !json_array_size(alive)))
		rc = jobs_ended(client, filter, ENDED_MAX, 0, &ended, err);
	if (rc < 0)
		return rc;
	all = in_order(ended, alive);
	*ret = candidates(all);
	return 0;
}

/* Splits "NAME_3" and "NAME_*" of an array's name. `ret` gets the name. NULL: the text is no such.
 */
static const char *index_split(const char *text, char ret[static 64])
{
	const char *last = strrchr(text, '_');
	size_t digits = last ? strspn(last + 1, "0123456789") : 0;

	if (!last || last == text || last - text >= 64 ||
	    (strcmp(last, "_*") != 0 && (!digits || digits > 9 || last[1 + digits])))
		return NULL;
	snprintf(ret, 64, "%.*s", (int)(last - text), text);
	return last;
}

/* Finds the job that "NAME_3" means where no job has this text as its whole name. */
static int indexed_find(const struct client *client, const char *text, bool living,
			char ret[static JOB_ID_SIZE], struct error *err)
{
	cleanup_json json_t *found = NULL;
	char name[64], id[JOB_ID_SIZE];
	const char *index = index_split(text, name);
	int rc = index ? named_jobs(client, name, living, &found, err) : 0;

	if (rc < 0)
		return rc;
	const json_t *only = json_array_get(found, 0);
	if (json_array_size(found) > 1)
		return ambiguous(name, found, err);
	if (only && json_is_integer(json_object_get(only, "array"))) {
		snprintf(ret, JOB_ID_SIZE, "%.20s%s", candidate_id(only, id),
			 strcmp(index, "_*") != 0 ? index : "");
		return 0;
	}
	error_set(err, EXIT_CODE_FAILED, "there is no job '%.64s'", text);
	error_hint(err, "`carve job list` shows the IDs and names of jobs; for example: 17, or "
			"17_3 of an array");
	return -EXIT_CODE_FAILED;
}

int job_id_find(const struct client *client, const char *text, bool living,
		char ret[static JOB_ID_SIZE], struct error *err)
{
	cleanup_json json_t *found = NULL;

	if (looks_like_id(text)) {
		snprintf(ret, JOB_ID_SIZE, "%.*s",
			 (int)(strlen(text) - (strchr(text, '*') ? 2 : 0)), text);
		return 0;
	}
	if (!*text || strlen(text) > 63 || strpbrk(text, "/ \t\n")) {
		error_set(err, EXIT_CODE_USAGE, "'%.64s' is neither the ID nor the name of a job",
			  text);
		error_hint(err,
			   "for example: 17, or 17_3 of an array; `carve job list` shows them");
		return -EXIT_CODE_USAGE;
	}
	int rc = named_jobs(client, text, living, &found, err);
	if (rc < 0)
		return rc;
	if (json_array_size(found) > 1)
		return ambiguous(text, found, err);
	if (!json_array_size(found))
		return indexed_find(client, text, living, ret, err);
	candidate_id(json_array_get(found, 0), ret);
	return 0;
}

/* ---- carve job list ----------------------------------------------------------------------- */

/* A queue is known if an agent serves it, or a job names it. */
static int queue_check(const struct client *client, const char *name, struct error *err)
{
	cleanup_json json_t *queues = NULL, *ended = NULL;
	char filter[FILTER_SIZE] = "", names[256] = "";
	size_t i;
	json_t *queue;
	int rc = client_call(client, "GET", "/v1/queues", NULL, NULL, &queues, err);

	if (rc < 0)
		return rc;
	json_array_foreach(queues, i, queue)
	{
		size_t used = strlen(names);

		if (!strcmp(session_text(queue, "name"), name))
			return 0;
		snprintf(names + used, sizeof(names) - used, "%s%s", used ? ", " : "",
			 session_text(queue, "name"));
	}
	filter_add(filter, "queue", name);
	rc = jobs_ended(client, filter, 1, 0, &ended, err);
	if (rc < 0 || json_array_size(ended))
		return rc;
	error_set(err, EXIT_CODE_USAGE, "--queue: there is no queue '%.64s'", name);
	error_hint(err,
		   *names ? "the queues are %s"
			  : "no agent is there; `carve queue list` lists the queues%s",
		   names);
	return -EXIT_CODE_USAGE;
}

/* The filters of the command line. 0, or negative with *err. */
static int filters_read(const struct cli *cli, char filter[static FILTER_SIZE], int64_t *ret_since,
			struct error *err)
{
	const char *queue = cli->value[OPT_JOB_QUEUE], *user = cli->value[OPT_JOB_USER],
		   *since = cli->value[OPT_JOB_SINCE];
	char number[16];
	uid_t uid;
	int rc = 0;

	*ret_since = 0;
	if (queue && (!*queue || strlen(queue) > 63)) {
		error_set(err, EXIT_CODE_USAGE, "--queue: '%.64s' is not the name of a queue",
			  queue);
		return -EXIT_CODE_USAGE;
	}
	if (queue)
		filter_add(filter, "queue", queue);
	if (user && (rc = user_find(user, &uid, err)) == 0) {
		snprintf(number, sizeof(number), "%u", uid);
		filter_add(filter, "uid", number);
	}
	if (rc == 0 && since)
		rc = when_since(since, ret_since, err);
	return rc;
}

int cli_job_list(struct cli *cli, struct error *err)
{
	cleanup_json json_t *ended = NULL, *living = NULL, *jobs = NULL;
	const char *queue = cli->value[OPT_JOB_QUEUE], *last = cli->value[OPT_JOB_LAST];
	uint64_t most = cli->value[OPT_JOB_SINCE] ? ENDED_MAX : ENDED_DEFAULT;
	char filter[FILTER_SIZE] = "";
	struct client client;
	int64_t since;
	int rc = last ? units_parse_count(last, "--last", 0, ENDED_MAX, &most, err) : 0;

	if (rc < 0 || (rc = filters_read(cli, filter, &since, err)) < 0 ||
	    (rc = client_open(&client, cli->value[OPT_HOST], err)) < 0 ||
	    (rc = jobs_ended(&client, filter, most, since, &ended, err)) < 0 ||
	    (rc = jobs_living(&client, filter, &living, err)) < 0)
		return rc;
	jobs = in_order(ended, living);
	if (queue && !json_array_size(jobs) && (rc = queue_check(&client, queue, err)) < 0)
		return rc;
	if (cli->value[OPT_JSON])
		return output_json(jobs, err);
	jobs_print(jobs);
	return 0;
}
