#include "cli/mig/mig_trace.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/error.h"
#include "base/macros.h"
#include "base/units.h"
#include "cli/mig/mig_models.h"

/* A longer line is none of a trace. */
#define LINE_SIZE 256
#define FIELDS 3
/* Nanoseconds of that many fit into a signed number of 64 bits. */
#define SECONDS_MAX 9e9

struct reader {
	const char *name;
	uint64_t line;
	const struct mig_models *models;
	struct mig_trace trace;
	size_t room;
};

static int line_hint(struct error *err)
{
	error_hint(err, "a line is ARRIVAL,SIZE or PROFILE,DURATION in seconds: 12.5,10GiB,3600");
	return -EXIT_CODE_USAGE;
}

static int line_fail(const struct reader *r, struct error *err, const char *why)
{
	error_set(err, EXIT_CODE_USAGE, "%.128s, line %" PRIu64 ": %s", r->name, r->line, why);
	return line_hint(err);
}

static int empty_fail(const struct reader *r, struct error *err)
{
	error_set(err, EXIT_CODE_USAGE, "%.128s: the trace has no request", r->name);
	return line_hint(err);
}

/* A field without the quotes that some programs put round each. */
static char *field_bare(char *at, char *end)
{
	if (end - at >= 2 && *at == '"' && end[-1] == '"') {
		end[-1] = '\0';
		return at + 1;
	}
	return at;
}

/* Cuts the line at its commas, in place. Returns how many fields there are; FIELDS + 1: too many.
 */
static size_t fields_split(char *line, char *field[FIELDS])
{
	size_t n = 0;

	for (char *at = line; at; n++) {
		char *comma = strchr(at, ','), *end;

		if (n == FIELDS)
			return FIELDS + 1;
		end = comma ? comma : at + strlen(at);
		while (end > at && isspace((unsigned char)end[-1]))
			end--;
		*end = '\0';
		while (isspace((unsigned char)*at))
			at++;
		field[n] = field_bare(at, end);
		at = comma ? comma + 1 : NULL;
	}
	return n;
}

/* Nothing in it is a number: a heading. */
static bool is_heading(char *const field[FIELDS])
{
	return !isdigit((unsigned char)*field[0]) && !isdigit((unsigned char)*field[2]) &&
	       *field[0] && *field[2] && *field[0] != '-' && *field[0] != '.';
}

/* A bare number, with or without an exponent (1e-05), as programs write them. A trace may count
 * from 1970, so more is taken than for a duration of `carve`. False: it is none. */
static bool number_parse(const char *text, double *ret)
{
	char *end;

	if (!isdigit((unsigned char)text[strspn(text, ".")]) ||
	    text[strspn(text, "0123456789.eE+-")])
		return false;
	*ret = strtod(text, &end);
	return !*end;
}

static int seconds_parse(const struct reader *r, const char *text, double *ret, struct error *err)
{
	struct error why = {0};
	uint64_t ns;

	if (number_parse(text, ret)) {
		if (*ret <= SECONDS_MAX)
			return 0;
		snprintf(why.message, sizeof(why.message),
			 "seconds: '%.64s' is more than 9000000000 (285 years)", text);
		return line_fail(r, err, why.message);
	}
	if (units_parse_seconds(text, "seconds", &ns, &why) < 0)
		return line_fail(r, err, why.message);
	*ret = (double)ns / 1e9;
	return 0;
}

/* ---- the requests -----------------------------------------------------------------------------
 */

/* True where a die has a profile of that name; *want is then what each has. */
static bool want_named(const struct mig_models *m, const char *name, struct mig_trace_want *want)
{
	bool found = false;

	for (uint32_t d = 0; d < m->die_count; d++) {
		want->profile[d] = MIG_NO_PROFILE;
		for (uint32_t p = 0; p < m->dies[d].profile_count; p++) {
			if (strcmp(m->names[d][p], name) != 0)
				continue;
			want->profile[d] = (uint8_t)p;
			want->least = want->most = m->dies[d].profile[p].memory_bytes;
			found = true;
		}
	}
	return found;
}

static void want_sized(const struct mig_models *m, uint64_t bytes, struct mig_trace_want *want)
{
	struct mig_request request = {
		.kind = MIG_ASK_BYTES, .bytes = bytes, .count = 1, .strict = true};

	for (uint32_t d = 0; d < m->die_count; d++) {
		struct mig_match match;

		mig_match(&m->dies[d], d, &request, &match);
		want->profile[d] = match.fit_count ? match.fit[0] : MIG_NO_PROFILE;
	}
	want->least = want->most = bytes;
}

/* The number of what is asked: of what was asked before, where it gets the same. */
static int want_number(struct reader *r, const struct mig_trace_want *want, bool named,
		       uint32_t *ret, struct error *err)
{
	struct mig_trace *t = &r->trace;
	uint32_t i = 0;

	while (i < t->want_count &&
	       memcmp(t->about[i].profile, want->profile, r->models->die_count) != 0)
		i++;
	if (i == MIG_TRACE_WANTS_MAX)
		return line_fail(r, err, "more than 1024 different profiles are asked for");
	if (i == t->want_count) {
		t->about[i] = *want;
		t->wants[i] = (struct mig_request){
			.kind = named ? MIG_ASK_PROFILE : MIG_ASK_BYTES,
			.bytes = want->least,
			.profile = t->about[i].profile,
			.count = 1,
			.strict = true,
		};
		t->want_count++;
	}
	t->about[i].least = MIN(t->about[i].least, want->least);
	t->about[i].most = MAX(t->about[i].most, want->most);
	t->about[i].jobs++;
	*ret = i;
	return 0;
}

static int want_parse(struct reader *r, const char *text, uint32_t *ret, struct error *err)
{
	struct mig_trace_want want = {.least = 0};
	struct error why = {0};
	uint64_t bytes;

	if (want_named(r->models, text, &want))
		return want_number(r, &want, true, ret, err);
	if (units_parse_vram(text, &bytes, &why) < 0) {
		char both[sizeof(why.message)];

		snprintf(both, sizeof(both),
			 "'%.64s' is neither a size nor a profile of these GPUs", text);
		return line_fail(r, err, both);
	}
	want_sized(r->models, bytes, &want);
	return want_number(r, &want, false, ret, err);
}

/* ---- lines ------------------------------------------------------------------------------------
 */

static int job_add(struct reader *r, struct mig_sim_job job, struct error *err)
{
	struct mig_trace *t = &r->trace;

	if (t->count == MIG_TRACE_JOBS_MAX)
		return line_fail(r, err, "more than 10 million requests");
	struct mig_sim_job *jobs = array_grown(t->jobs, t->count, &r->room, sizeof(*jobs));
	if (!jobs)
		return error_set(err, EXIT_CODE_FAILED, "out of memory");
	t->jobs = jobs;
	t->jobs[t->count++] = job;
	return 0;
}

static int line_read(struct reader *r, char *line, struct error *err)
{
	struct mig_sim_job job = {.want = 0};
	char *field[FIELDS] = {NULL};
	size_t n;
	int rc;

	line[strcspn(line, "\r\n")] = '\0';
	if (line[strspn(line, " \t")] == '\0' || line[0] == '#')
		return 0;
	n = fields_split(line, field);
	if (n != FIELDS)
		return line_fail(r, err,
				 n < FIELDS ? "fewer than three fields" : "more than three fields");
	if (r->trace.count == 0 && is_heading(field))
		return 0;
	rc = seconds_parse(r, field[0], &job.arrival, err);
	if (rc == 0)
		rc = seconds_parse(r, field[2], &job.duration, err);
	if (rc == 0)
		rc = want_parse(r, field[1], &job.want, err);
	return rc < 0 ? rc : job_add(r, job, err);
}

static int by_arrival(const void *a, const void *b)
{
	const struct mig_sim_job *x = a, *y = b;

	if (x->arrival != y->arrival)
		return x->arrival < y->arrival ? -1 : 1;
	if (x->want != y->want)
		return x->want < y->want ? -1 : 1;
	return (x->duration > y->duration) - (x->duration < y->duration);
}

static int lines_read(struct reader *r, FILE *file, struct error *err)
{
	char line[LINE_SIZE];
	int rc = 0;

	while (rc == 0 && fgets(line, sizeof(line), file)) {
		r->line++;
		if (!strchr(line, '\n') && !feof(file))
			rc = line_fail(r, err, "longer than 255 characters");
		else
			rc = line_read(r, line, err);
	}
	if (rc == 0 && ferror(file))
		rc = error_set(err, EXIT_CODE_FAILED, "cannot read %.128s: %s", r->name,
			       strerrordesc_np(errno));
	if (rc == 0 && !r->trace.jobs)
		rc = empty_fail(r, err);
	return rc;
}

int mig_trace_read(FILE *file, const char *name, const struct mig_models *models,
		   struct mig_trace *ret, struct error *err)
{
	struct reader r = {.name = name, .models = models};
	int rc;

	r.trace.wants = calloc(MIG_TRACE_WANTS_MAX, sizeof(*r.trace.wants));
	r.trace.about = calloc(MIG_TRACE_WANTS_MAX, sizeof(*r.trace.about));
	if (!r.trace.wants || !r.trace.about)
		rc = error_set(err, EXIT_CODE_FAILED, "out of memory");
	else
		rc = lines_read(&r, file, err);
	if (rc < 0) {
		mig_trace_free(&r.trace);
		return rc;
	}
	if (r.trace.jobs)
		qsort(r.trace.jobs, r.trace.count, sizeof(*r.trace.jobs), by_arrival);
	*ret = r.trace;
	return 0;
}

void mig_trace_free(struct mig_trace *trace)
{
	free(trace->jobs);
	free(trace->wants);
	free(trace->about);
	*trace = (struct mig_trace){0};
}
