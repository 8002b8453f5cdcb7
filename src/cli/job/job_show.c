/* Jobs as people read them. */
#include "cli/job/job_show.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/macros.h"
#include "base/units.h"
#include "cli/columns.h"
#include "cli/moment.h"
#include "cli/output.h"
#include "client/sessions.h"

#define NS_PER_SECOND 1000000000ll

static void gpus_text(const json_t *job, char *buf, size_t size)
{
	size_t i, used = 0;
	json_t *gpu;

	buf[0] = '\0';
	json_array_foreach(json_object_get(job, "gpus"), i, gpu)
	{
		if (used < size)
			used += (size_t)snprintf(buf + used, size - used, "%s%d", i ? "," : "",
						 (int)json_integer_value(gpu));
	}
	if (!*buf)
		snprintf(buf, size, "-");
}

/* In the order of the GPUs. */
static void granted_print(const json_t *job)
{
	const json_t *granted = json_object_get(job, "granted_bytes"), *bytes;
	char text[UNITS_TEXT_SIZE];
	size_t i, count = json_array_size(granted);

	if (!count)
		return;
	printf("%-10s", "granted");
	json_array_foreach(granted, i, bytes)
		printf("%s %s", i ? "," : "",
		       units_format_bytes((uint64_t)json_integer_value(bytes), text));
	printf("\n");
}

static void code_text(const json_t *job, char *buf, size_t size)
{
	const json_t *code = json_object_get(job, "exit_code");

	if (json_is_integer(code))
		snprintf(buf, size, "%d", (int)json_integer_value(code));
	else
		snprintf(buf, size, "-");
}

/* The memory that was granted on each of its GPUs, "20 GiB-40 GiB" if these differ. Until a job
 * starts, the size that it waits for. */
static const char *size_text(const json_t *job, char *buf, size_t size)
{
	const json_t *granted = json_object_get(job, "granted_bytes"), *item;
	char least[UNITS_TEXT_SIZE], most[UNITS_TEXT_SIZE];
	json_int_t low = INT64_MAX, high = 0;
	size_t i;

	json_array_foreach(granted, i, item)
	{
		low = MIN(low, json_integer_value(item));
		high = MAX(high, json_integer_value(item));
	}
	units_format_bytes((uint64_t)low, least);
	units_format_bytes((uint64_t)high, most);
	if (!high)
		snprintf(buf, size, "%s", session_text_or_dash(job, "size"));
	else
		snprintf(buf, size, "%s%s%s", least, low != high ? "-" : "",
			 low != high ? most : "");
	return buf;
}

/* "1-02:03:04", without the days and hours that it has none of: as batch systems write it. */
static const char *elapsed_text(const json_t *job, int64_t now, char buf[static UNITS_TEXT_SIZE])
{
	int64_t from = moment_parse(session_text(job, "started"));
	int64_t to = moment_parse(session_text(job, "ended"));
	int64_t seconds = MAX((to ? to : now) - from, 0), days = seconds / 86400;
	int hours = (int)(seconds / 3600 % 24), minutes = (int)(seconds / 60 % 60);

	if (!from)
		snprintf(buf, UNITS_TEXT_SIZE, "-");
	else if (days)
		snprintf(buf, UNITS_TEXT_SIZE, "%" PRId64 "-%02d:%02d:%02d", days, hours, minutes,
			 (int)(seconds % 60));
	else if (hours)
		snprintf(buf, UNITS_TEXT_SIZE, "%d:%02d:%02d", hours, minutes, (int)(seconds % 60));
	else
		snprintf(buf, UNITS_TEXT_SIZE, "%d:%02d", minutes, (int)(seconds % 60));
	return buf;
}

static void size_fill(const json_t *job, int64_t now, struct cell *cell)
{
	(void)size_text(job, cell->text, sizeof(cell->text));
}

static void elapsed_fill(const json_t *job, int64_t now, struct cell *cell)
{
	char text[UNITS_TEXT_SIZE];

	column_print(cell, "%s", elapsed_text(job, now, text));
}

static void gpus_fill(const json_t *job, int64_t now, struct cell *cell)
{
	gpus_text(job, cell->text, sizeof(cell->text));
}

static void code_fill(const json_t *job, int64_t now, struct cell *cell)
{
	code_text(job, cell->text, sizeof(cell->text));
}

void jobs_print(const json_t *jobs)
{
	static const struct column columns[] = {
		{"JOB", "id", FORMAT_TEXT},
		{"NAME", "name", FORMAT_TEXT},
		{"QUEUE", "queue", FORMAT_TEXT},
		{"USER", "user", FORMAT_TEXT},
		{"STATE", "state", FORMAT_TEXT},
		{"SIZE", .fill = size_fill},
		{"SUBMITTED", "enqueued", FORMAT_MOMENT},
		{"STARTED", "started", FORMAT_MOMENT},
		{"ELAPSED", .fill = elapsed_fill},
		{"GPUS", .fill = gpus_fill},
		{"EXIT", .fill = code_fill},
		{"REASON", "reason", FORMAT_KNOWN},
	};

	table_print_rows(columns, ARRAY_SIZE(columns), jobs);
}

/* As the daemon tells other times. */
static void time_print(int64_t ns)
{
	char text[UNITS_TEXT_SIZE];

	printf("%s", units_format_time(ns, UNITS_MILLISECONDS, text));
}

static void seconds_print(int64_t seconds)
{
	char text[UNITS_TEXT_SIZE];

	printf("%s", units_format_duration((uint64_t)(seconds * NS_PER_SECOND), text));
}

static void bytes_print(int64_t bytes)
{
	char text[UNITS_TEXT_SIZE];

	printf("%s", units_format_bytes((uint64_t)bytes, text));
}

/* Exit codes, and signals as negative numbers. */
static void code_print(int64_t code)
{
	const char *name = code < 0 ? sigabbrev_np((int)-code) : NULL;

	if (name)
		printf("%s", name);
	else
		printf("%" PRId64, code);
}

static void word_print(const json_t *value, void (*number_print)(int64_t number))
{
	if (json_is_string(value)) {
		printf("%s", json_string_value(value));
	} else if (json_is_integer(value) && number_print) {
		number_print(json_integer_value(value));
	} else {
		char *text = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT);

		printf("%s", text ? text : "");
		free(text);
	}
}

/* The request, of a daemon that tells it. */
static void asked_print(const json_t *asked)
{
	static const struct {
		const char *key, *title; /* title NULL: the key */
		void (*number_print)(int64_t number);
	} keys[] = {
		{"cwd"},
		{"image"},
		{"vram"},
		{"vram_bytes", "vram", bytes_print},
		{"gpu_memory", "gpu memory"},
		{"gpu"},
		{"gpus"},
		{"gpu_compute", "compute"},
		{"time", NULL, seconds_print},
		{"begin", NULL, time_print},
		{"retries"},
		{"retry_on", "retry on", code_print},
		{"requeue"},
		{"after"},
		{"array"},
		{"in", "input"},
		{"out", "output"},
		{"err", "errors"},
	};
	const json_t *params = json_object_get(asked, "params");
	const char *key;
	size_t i, at;
	json_t *value;

	if (!asked)
		return;
	printf("%-10s", "command");
	json_array_foreach(json_object_get(asked, "argv"), i, value)
		printf(" %s", json_string_value(value));
	printf("\n");
	if (json_object_size(params)) {
		printf("%-10s", "parameters");
		json_object_foreach((json_t *)params, key, value)
			printf(" %s=%s", key, json_string_value(value));
		printf("\n");
	}
	for (i = 0; i < ARRAY_SIZE(keys); i++) {
		const json_t *one = json_object_get(asked, keys[i].key);

		/* No job to come after is an empty list. */
		if (!one || (json_is_array(one) && !json_array_size(one)))
			continue;
		printf("%-10s", keys[i].title ? keys[i].title : keys[i].key);
		if (!json_is_array(one)) {
			printf(" ");
			word_print(one, keys[i].number_print);
		}
		json_array_foreach(one, at, value)
		{
			printf(" ");
			word_print(value, keys[i].number_print);
		}
		printf("\n");
	}
}

void job_print(const json_t *job)
{
	static const struct {
		const char *title, *key;
	} texts[] = {{"job", "id"},
		     {"name", "name"},
		     {"queue", "queue"},
		     {"user", "user"},
		     {"state", "state"},
		     {"reason", "reason"},
		     {"session", "session"},
		     {"enqueued", "enqueued"},
		     {"started", "started"},
		     {"ended", "ended"},
		     {"idle since", "idle_since"},
		     {"idle end", "idle_release_at"},
		     {"log", "log"}};
	char text[128];

	for (size_t i = 0; i < ARRAY_SIZE(texts); i++)
		if (*session_text(job, texts[i].key))
			printf("%-10s %s\n", texts[i].title, session_text(job, texts[i].key));
	asked_print(json_object_get(job, "asked"));
	if (json_integer_value(json_object_get(job, "priority")))
		printf("%-10s %" JSON_INTEGER_FORMAT "\n", "priority",
		       json_integer_value(json_object_get(job, "priority")));
	gpus_text(job, text, sizeof(text));
	printf("%-10s %s\n", "GPUs", text);
	granted_print(job);
	code_text(job, text, sizeof(text));
	printf("%-10s %s\n", "exit code", text);
	printf("%-10s %d\n", "attempt", (int)session_number(job, "attempt"));
	if (session_number(job, "gpu_ns"))
		printf("%-10s %s of a whole GPU\n", "GPU time",
		       units_format_rough_duration(session_number(job, "gpu_ns"), text));
	if (session_number(job, "peak_bytes"))
		printf("%-10s %s\n", "GPU peak",
		       units_format_bytes(session_number(job, "peak_bytes"), text));
	if (session_number(job, "rss_bytes"))
		printf("%-10s %s\n", "memory",
		       units_format_bytes(session_number(job, "rss_bytes"), text));
}
