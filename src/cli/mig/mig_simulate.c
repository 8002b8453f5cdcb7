/* carve mig simulate: the placement policy's own code, and others, with the requests of a trace. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <jansson.h>

#include "base/error.h"
#include "base/units.h"
#include "cli/cli.h"
#include "cli/mig/bars_svg.h"
#include "cli/mig/mig_models.h"
#include "cli/mig/mig_trace.h"
#include "cli/output.h"
#include "client/client.h"

#define GPUS_DEFAULT "h100-80gb:8"
/* As the daemon's WAITING_PASSES: how often a request that does not fit is passed. */
#define PASSES 16u
/* With fewer the figures are there before a person would read of progress. */
#define PROGRESS_REQUESTS 10000u

struct mig_simulation {
	struct mig_models models;
	struct mig_trace trace;
	const char *gpus; /* as asked */
	bool waits;
	const char *policy; /* that is being simulated, and how far, in per cent */
	size_t percent;
	struct mig_sim_result results[MIG_POLICIES];
};

/* The placement alone, without reuse, is for docs/dev/benchmarks.md's comparisons. */
static bool policy_is_shown(int policy)
{
	return policy != MIG_POLICY_EAGER;
}

static double accepted(const struct mig_sim_result *r)
{
	return r->offered > 0 ? r->accepted / r->offered : 0;
}

static double used(const struct mig_simulation *s, const struct mig_sim_result *r)
{
	return r->span > 0 ? r->used / (r->span * s->models.gpu_count) : 0;
}

/* Waits add up: to more than 64 bits hold, where run times are decades. */
static uint64_t ns_of(double seconds)
{
	return seconds < 9e9 ? (uint64_t)(seconds * 1e9) : INT64_MAX;
}

static uint64_t mean_wait_ns(const struct mig_sim_result *r)
{
	return r->granted ? ns_of(r->wait_sum / (double)r->granted) : 0;
}

static uint64_t longest_wait_ns(const struct mig_sim_result *r)
{
	return ns_of(r->wait_longest);
}

/* ---- the question, and its answer -------------------------------------------------------------
 */

/* "1g.10gb", or one for each kind of GPU: "1g.10gb, 1g.20gb". */
static void profiles_text(const struct mig_simulation *s, const struct mig_trace_want *want,
			  char *out, size_t size)
{
	const struct mig_models *m = &s->models;
	size_t length = 0;

	out[0] = '\0';
	for (uint32_t d = 0; d < m->die_count && length < size; d++) {
		const char *name =
			want->profile[d] == MIG_NO_PROFILE ? "-" : m->names[d][want->profile[d]];

		length +=
			(size_t)snprintf(out + length, size - length, "%s%s", d ? ", " : "", name);
	}
}

static void asked_text(const struct mig_trace_want *want, char *out, size_t size)
{
	char least[UNITS_TEXT_SIZE], most[UNITS_TEXT_SIZE];

	units_format_bytes(want->least, least);
	units_format_bytes(want->most, most);
	if (want->least == want->most)
		snprintf(out, size, "%s", most);
	else
		snprintf(out, size, "%s to %s", least, most);
}

static void wants_show(const struct mig_simulation *s)
{
	static const char *const headings[] = {"ASKED", "PROFILE", "REQUESTS", NULL};
	cleanup_table struct table table;

	table_begin(&table, headings);
	for (uint32_t i = 0; i < s->trace.want_count; i++) {
		const struct mig_trace_want *want = &s->trace.about[i];
		char asked[2 * UNITS_TEXT_SIZE + 8], profiles[256];

		asked_text(want, asked, sizeof(asked));
		profiles_text(s, want, profiles, sizeof(profiles));
		table_add(&table, "%s", asked);
		table_add(&table, "%s", profiles);
		table_add(&table, "%" PRIu64, want->jobs);
	}
	table_print(&table);
}

/* ---- as a table -------------------------------------------------------------------------------
 */

static void policy_add(struct table *table, const struct mig_simulation *s, int policy)
{
	const struct mig_sim_result *r = &s->results[policy];
	char text[UNITS_TEXT_SIZE];

	table_add(table, "%s", mig_policy_text((enum mig_policy)policy));
	table_add(table, "%" PRIu64, r->granted);
	table_add(table, "%.2f%%", 100 * accepted(r));
	table_add(table, "%.2f%%", 100 * used(s, r));
	if (s->waits) {
		table_add(table, "%s", units_format_rough_duration(mean_wait_ns(r), text));
		table_add(table, "%s", units_format_rough_duration(longest_wait_ns(r), text));
	}
	table_add(table, "%" PRIu64, r->reused);
	table_add(table, "%" PRIu64, r->created);
}

static void policies_show(const struct mig_simulation *s)
{
	static const char *const lossy[] = {"POLICY", "GRANTED", "WORK", "IN USE",
					    "REUSED", "CREATED", NULL};
	static const char *const waiting[] = {"POLICY", "GRANTED",   "WORK",
					      "IN USE", "MEAN WAIT", "LONGEST WAIT",
					      "REUSED", "CREATED",   NULL};
	cleanup_table struct table table;

	table_begin(&table, s->waits ? waiting : lossy);
	for (int policy = 0; policy < MIG_POLICIES; policy++)
		if (policy_is_shown(policy))
			policy_add(&table, s, policy);
	table_print(&table);
}

static void summary_show(const struct mig_simulation *s)
{
	const struct mig_sim_result *ours = &s->results[MIG_POLICY_CARVE];
	char span[UNITS_TEXT_SIZE], count[UNITS_TEXT_SIZE];

	printf("\n%s in %s on %s; %s.\n", units_format_count(ours->jobs, "request", count),
	       units_format_rough_duration(ns_of(ours->span), span), s->gpus,
	       s->waits ? "a request that finds no room waits"
			: "a request that finds no room is turned away (--wait: it waits)");
	if (ours->never)
		printf("%" PRIu64 " of them ask for more than any of these GPUs can give.\n",
		       ours->never);
	puts("WORK: run time times the part of a GPU, of what was asked. IN USE: of all GPUs, "
	     "until the last request.\n"
	     "repacking is no policy, but a bound: as if instances in use could be moved within "
	     "their GPU.");
}

/* ---- as JSON ----------------------------------------------------------------------------------
 */

static json_t *policy_json(const struct mig_simulation *s, int policy)
{
	const struct mig_sim_result *r = &s->results[policy];

	return json_pack("{s:s, s:I, s:f, s:f, s:I, s:I, s:I, s:I, s:I}", "policy",
			 mig_policy_text((enum mig_policy)policy), "granted",
			 (json_int_t)r->granted, "accepted", accepted(r), "used", used(s, r),
			 "mean_wait_ns", (json_int_t)mean_wait_ns(r), "longest_wait_ns",
			 (json_int_t)longest_wait_ns(r), "reused", (json_int_t)r->reused, "created",
			 (json_int_t)r->created, "destroyed", (json_int_t)r->destroyed);
}

static json_t *want_json(const struct mig_simulation *s, const struct mig_trace_want *want)
{
	json_t *profiles = json_array();

	for (uint32_t d = 0; d < s->models.die_count; d++)
		json_array_append_new(profiles,
				      want->profile[d] == MIG_NO_PROFILE
					      ? json_null()
					      : json_string(s->models.names[d][want->profile[d]]));
	return json_pack("{s:I, s:I, s:I, s:o}", "least_bytes", (json_int_t)want->least,
			 "most_bytes", (json_int_t)want->most, "requests", (json_int_t)want->jobs,
			 "profiles", profiles);
}

static json_t *simulation_json(const struct mig_simulation *s)
{
	const struct mig_sim_result *ours = &s->results[MIG_POLICY_CARVE];
	json_t *policies = json_array(), *wants = json_array();

	for (int policy = 0; policy < MIG_POLICIES; policy++)
		if (policy_is_shown(policy))
			json_array_append_new(policies, policy_json(s, policy));
	for (uint32_t i = 0; i < s->trace.want_count; i++)
		json_array_append_new(wants, want_json(s, &s->trace.about[i]));
	return json_pack("{s:s, s:i, s:b, s:I, s:I, s:I, s:o, s:o}", "gpus", s->gpus, "gpu_count",
			 (int)s->models.gpu_count, "waits", s->waits, "requests",
			 (json_int_t)ours->jobs, "never", (json_int_t)ours->never, "span_ns",
			 (json_int_t)ns_of(ours->span), "asked", wants, "policies", policies);
}

/* ---- as a picture -----------------------------------------------------------------------------
 */

static int picture_draw(FILE *file, const void *data)
{
	const struct mig_simulation *s = data;
	struct bar bars[MIG_POLICIES];
	char notes[MIG_POLICIES][UNITS_TEXT_SIZE], title[128];
	uint32_t count = 0;

	for (int policy = 0; policy < MIG_POLICIES; policy++) {
		const struct mig_sim_result *r = &s->results[policy];

		if (!policy_is_shown(policy))
			continue;
		if (s->waits)
			units_format_rough_duration(mean_wait_ns(r), notes[count]);
		else
			snprintf(notes[count], sizeof(notes[0]), "%.2f%%", 100 * accepted(r));
		bars[count] = (struct bar){
			.name = mig_policy_text((enum mig_policy)policy),
			.note = notes[count],
			.value = s->waits ? (double)mean_wait_ns(r) : accepted(r),
			.marked = policy == MIG_POLICY_CARVE,
			.pale = policy == MIG_POLICY_REPACK,
		};
		count++;
	}
	snprintf(title, sizeof(title), "%s: %" PRIu64 " requests, %" PRIu32 " GPUs",
		 s->waits ? "Mean wait (shorter is better)" : "Work that found room",
		 s->results[MIG_POLICY_CARVE].jobs, s->models.gpu_count);
	return bars_svg_write(file, &(struct bar_picture){.title = title,
							  .subtitle = "carve mig simulate",
							  .bars = bars,
							  .count = count});
}

/* ---- the verb ---------------------------------------------------------------------------------
 */

static int trace_open(const char *path, const struct mig_models *models, struct mig_trace *ret,
		      struct error *err)
{
	bool is_stdin = !strcmp(path, "-");
	FILE *file = is_stdin ? stdin : fopen(path, "re");

	if (!file)
		return error_set(err, EXIT_CODE_FAILED, "cannot read %.256s: %s", path,
				 strerrordesc_np(errno));
	int rc = mig_trace_read(file, is_stdin ? "standard input" : path, models, ret, err);
	if (!is_stdin)
		(void)fclose(file);
	return rc;
}

/* A line on a terminal that the next one takes the place of. */
static void on_progress(void *arg, size_t events)
{
	struct mig_simulation *s = arg;
	size_t percent = events * 50 / s->trace.count;

	if (events && percent == s->percent)
		return;
	s->percent = percent;
	fprintf(stderr, "\r\033[Kcarve: simulating %s: %zu%%", s->policy, percent);
	(void)fflush(stderr);
}

static int policies_run(struct mig_simulation *s, struct error *err)
{
	struct mig_sim_setting setting = {
		.dies = s->models.dies,
		.die_count = s->models.die_count,
		.gpu_die = s->models.gpu_die,
		.gpu_count = s->models.gpu_count,
		.wants = s->trace.wants,
		.want_count = s->trace.want_count,
		.waits = s->waits,
		.passes = PASSES,
		.arg = s,
	};
	int rc = 0;

	if (s->trace.count >= PROGRESS_REQUESTS && isatty(STDERR_FILENO))
		setting.progress = on_progress;
	for (int policy = 0; policy < MIG_POLICIES && rc == 0; policy++) {
		if (!policy_is_shown(policy))
			continue;
		setting.policy = (enum mig_policy)policy;
		s->policy = mig_policy_text(setting.policy);
		if (setting.progress)
			on_progress(s, 0);
		rc = mig_sim_run(&setting, s->trace.jobs, s->trace.count, &s->results[policy]);
	}
	if (setting.progress)
		fputs("\r\033[K", stderr);
	return rc < 0 ? error_set(err, EXIT_CODE_FAILED, "cannot simulate %s: %s", s->policy,
				  strerrordesc_np(-rc))
		      : 0;
}

static int simulation_show(const struct cli *cli, const struct mig_simulation *s, struct error *err)
{
	const char *svg = cli->value[OPT_SVG];
	int rc = svg ? output_file(svg, picture_draw, s, err) : 0;

	if (rc < 0 || output_is_stdout(svg))
		return rc;
	if (cli->value[OPT_JSON]) {
		cleanup_json json_t *json = simulation_json(s);

		return output_json(json, err);
	}
	wants_show(s);
	putchar('\n');
	policies_show(s);
	summary_show(s);
	if (svg)
		printf("The picture is in %s.\n", svg);
	return 0;
}

int cli_mig_simulate(struct cli *cli, struct error *err)
{
	const char *gpus = cli->value[OPT_MIG_GPUS];
	struct mig_simulation s = {.gpus = gpus ? gpus : GPUS_DEFAULT,
				   .waits = cli->value[OPT_MIG_WAIT] != NULL};
	int rc = output_check_json(cli->value[OPT_JSON], cli->value[OPT_SVG], "--svg",
				   "the picture is", err);

	if (rc == 0 && cli->value[OPT_SVG])
		rc = output_check_path(cli->value[OPT_SVG], err);
	if (rc == 0)
		rc = mig_models_read(s.gpus, &s.models, err);
	if (rc == 0)
		rc = trace_open(cli->arguments[0], &s.models, &s.trace, err);
	if (rc == 0)
		rc = policies_run(&s, err);
	if (rc == 0)
		rc = simulation_show(cli, &s, err);
	mig_trace_free(&s.trace);
	mig_models_free(&s.models);
	return rc;
}
