/* carve timeslicing simulate: the lease policy's own code with imagined sessions and time. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/macros.h"
#include "base/units.h"
#include "cli/cli.h"
#include "cli/output.h"
#include "cli/timeslicing/lanes_svg.h"
#include "cli/timeslicing/simulation.h"
#include "client/client.h"

/* Characters of the text picture, for all plans shown. */
#define PICTURE_COLUMNS 80u
#define NAME_SIZE 32
#define IDLE_LANE s->count

static double percent(const struct simulation *s, uint64_t ns)
{
	return 100.0 * (double)ns / (double)s->length_ns;
}

static const char *name_of(const struct simulation *s, uint32_t i, char buf[static NAME_SIZE])
{
	if (i == IDLE_LANE)
		snprintf(buf, NAME_SIZE, "idle");
	else if (s->clients[i].fraction_ppm)
		snprintf(buf, NAME_SIZE, "%" PRIu32 ": %g%%", i + 1,
			 s->clients[i].fraction_ppm / 1e4);
	else
		snprintf(buf, NAME_SIZE, "%" PRIu32 ": memory", i + 1);
	return buf;
}

static uint64_t mean_wait(const struct lease_sim_result *r)
{
	return r->waits ? r->wait_sum_ns / r->waits : 0;
}

/* One that waits at the end has waited, too. */
static uint64_t longest_wait(const struct lease_sim_result *r)
{
	return MAX(r->wait_longest_ns, r->stat.waited_longest_ns);
}

/* ---- as a table -------------------------------------------------------------------------- */

static void client_add(struct table *table, const struct simulation *s, uint32_t i)
{
	const struct lease_sim_result *r = &s->results[i];
	char text[UNITS_TEXT_SIZE];

	table_add(table, "%" PRIu32, i + 1);
	table_add(table, "%g%%", r->stat.request_ppm / 1e4);
	table_add(table, "%g%%", r->stat.limit_ppm / 1e4);
	table_add(table, "%.2f%%", percent(s, r->busy_ns));
	table_add(table, "%" PRIu64, r->stat.leases);
	table_add(table, "%s", units_format_duration(longest_wait(r), text));
	table_add(table, "%s", units_format_duration(mean_wait(r), text));
	if (r->bursts)
		table_add(table, "up to %s", units_format_duration(r->burst_longest_ns, text));
	else
		table_add(table, "-");
}

static void table_show(const struct simulation *s)
{
	static const char *const headings[] = {"SESSION",   "REQUEST",       "LIMIT",
					       "RECEIVED",  "LEASES",        "LONGEST WAIT",
					       "MEAN WAIT", "10 MS OF WORK", NULL};
	cleanup_table struct table table;

	table_begin(&table, headings);
	for (uint32_t i = 0; i < s->count; i++)
		client_add(&table, s, i);
	table_print(&table);
}

/* ---- as lanes of text -------------------------------------------------------------------- */

/* How much of [from, to) the lane has, ns; the idle lane what nobody has. */
static uint64_t lane_part(const struct simulation *s, uint32_t lane, uint64_t from, uint64_t to)
{
	uint64_t part = 0;

	for (size_t i = 0; i < s->span_count; i++) {
		uint64_t a = MAX(s->spans[i].from, from), b = MIN(s->spans[i].to, to);

		if (a < b && (lane == IDLE_LANE || s->spans[i].client == lane))
			part += b - a;
	}
	return lane == IDLE_LANE ? to - from - MIN(part, to - from) : part;
}

static void lane_show(const struct simulation *s, uint32_t lane)
{
	uint64_t plan = lease_plan_ns(&s->setting), whole = SIMULATION_PLANS_SHOWN * plan;
	uint32_t per_plan = PICTURE_COLUMNS / SIMULATION_PLANS_SHOWN;
	char name[NAME_SIZE];

	printf("%10s ", name_of(s, lane, name));
	for (uint32_t i = 0; i < PICTURE_COLUMNS; i++) {
		uint64_t from = whole * i / PICTURE_COLUMNS, to = whole * (i + 1) / PICTURE_COLUMNS;
		uint64_t part = lane_part(s, lane, from, to);
		bool shown = to <= s->length_ns;

		if (i % per_plan == 0)
			putchar('|');
		/* Short leases would not be seen at all by the majority's rule. */
		putchar(!shown || part * 50 < to - from ? ' '
			: part * 2 < to - from          ? (lane == IDLE_LANE ? ' ' : ':')
							: (lane == IDLE_LANE ? '/' : '#'));
	}
	printf("|\n");
}

static void lanes_show(const struct simulation *s)
{
	char plan[UNITS_TEXT_SIZE];

	printf("\nThe first %u plans, %s each (#: has the GPU, ':': for less than half of that "
	       "time, "
	       "/: nobody has it)\n",
	       SIMULATION_PLANS_SHOWN, units_format_duration(lease_plan_ns(&s->setting), plan));
	for (uint32_t i = 0; i <= s->count; i++)
		lane_show(s, i);
}

/* ---- notes on the result ------------------------------------------------------------------ */

static uint64_t busy_sum(const struct simulation *s)
{
	uint64_t sum = 0;

	for (uint32_t i = 0; i < s->count; i++)
		sum += s->results[i].busy_ns;
	return sum;
}

static void summary_show(const struct simulation *s)
{
	uint64_t used = busy_sum(s), lost = s->length_ns - MIN(s->length_ns, used + s->idle_ns);
	uint32_t worst = 0;
	char text[UNITS_TEXT_SIZE], lease[UNITS_TEXT_SIZE], length[UNITS_TEXT_SIZE];

	for (uint32_t i = 1; i < s->count; i++)
		if (longest_wait(&s->results[i]) > longest_wait(&s->results[worst]))
			worst = i;
	printf("\nOver %s: %.2f%% of the GPU's time used, %.2f%% idle, %.2f%% lost to switching "
	       "(%s a switch).\n",
	       units_format_duration(s->length_ns, length), percent(s, used),
	       percent(s, s->idle_ns), percent(s, lost),
	       units_format_duration(SIMULATION_SWITCH_NS, text));
	if (longest_wait(&s->results[worst]))
		printf("With work to do, a session waits for its turn for %s at the longest "
		       "(session %" PRIu32 ").\n",
		       units_format_duration(longest_wait(&s->results[worst]), text), worst + 1);
	else
		puts("No session has to wait for its turn.");
	units_format_duration(s->setting.lease_ns, lease);
	printf("Shares are exact over a plan, and within one lease (%s) over any shorter time.\n"
	       "A shorter --lease makes turns come sooner and costs more switches.\n",
	       lease);
}

/* ---- as JSON ------------------------------------------------------------------------------ */

static json_t *client_json(const struct simulation *s, uint32_t i)
{
	const struct lease_sim_result *r = &s->results[i];

	return json_pack("{s:i, s:f, s:f, s:f, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "session",
			 (int)i + 1, "request", r->stat.request_ppm / 1e6, "limit",
			 r->stat.limit_ppm / 1e6, "received", percent(s, r->busy_ns) / 100,
			 "busy_ns", (json_int_t)r->busy_ns, "leases", (json_int_t)r->stat.leases,
			 "waits", (json_int_t)r->waits, "longest_wait_ns",
			 (json_int_t)longest_wait(r), "mean_wait_ns", (json_int_t)mean_wait(r),
			 "overrun_ns", (json_int_t)r->stat.overrun_ns, "longest_burst_ns",
			 (json_int_t)r->burst_longest_ns);
}

static json_t *simulation_json(const struct simulation *s)
{
	json_t *clients = json_array(), *leases = json_array();

	for (uint32_t i = 0; i < s->count; i++)
		json_array_append_new(clients, client_json(s, i));
	for (size_t i = 0; i < s->span_count; i++)
		json_array_append_new(leases, json_pack("{s:i, s:I, s:I}", "session",
							(int)s->spans[i].client + 1, "from_ns",
							(json_int_t)s->spans[i].from, "to_ns",
							(json_int_t)s->spans[i].to));
	return json_pack("{s:s, s:I, s:f, s:I, s:I, s:I, s:f, s:f, s:o, s:o}", "mode",
			 compute_mode_text(s->setting.mode), "lease_ns",
			 (json_int_t)s->setting.lease_ns, "granularity",
			 s->setting.granularity_ppm / 1e6, "plan_ns",
			 (json_int_t)lease_plan_ns(&s->setting), "length_ns",
			 (json_int_t)s->length_ns, "switch_ns", (json_int_t)SIMULATION_SWITCH_NS,
			 "used", percent(s, busy_sum(s)) / 100, "idle",
			 percent(s, s->idle_ns) / 100, "sessions", clients, "leases", leases);
}

/* ---- as a picture -------------------------------------------------------------------------- */

struct drawing {
	const struct simulation *simulation;
	uint64_t end; /* the end of the time that is shown */
	struct lane lanes[SIMULATION_CLIENTS_MAX + 1];
	char names[SIMULATION_CLIENTS_MAX + 1][NAME_SIZE],
		notes[SIMULATION_CLIENTS_MAX + 1][NAME_SIZE];
	struct lane_span *spans;
	size_t count;
};

static void drawing_lanes(struct drawing *d)
{
	const struct simulation *s = d->simulation;

	for (uint32_t i = 0; i <= s->count; i++) {
		uint64_t ns = i == IDLE_LANE ? s->idle_ns : s->results[i].busy_ns;

		snprintf(d->notes[i], NAME_SIZE, "%.2f%%", percent(s, ns));
		d->lanes[i] = (struct lane){name_of(s, i, d->names[i]), d->notes[i]};
	}
}

static void drawing_spans(struct drawing *d)
{
	const struct simulation *s = d->simulation;
	uint64_t at = 0;

	for (size_t i = 0; i < s->span_count; i++) {
		const struct lease_sim_span *span = &s->spans[i];
		uint64_t until = MIN(MAX(span->until, span->from), span->to);

		/* The switches are no idle time. */
		if (span->from > at + 2 * SIMULATION_SWITCH_NS)
			d->spans[d->count++] =
				(struct lane_span){IDLE_LANE, at, span->from, LANE_IDLE, NULL};
		d->spans[d->count++] =
			(struct lane_span){span->client, span->from, until, LANE_LEASE, NULL};
		if (span->to > until)
			d->spans[d->count++] = (struct lane_span){span->client, until, span->to,
								  LANE_OVERRUN, NULL};
		at = span->to;
	}
	if (at + 2 * SIMULATION_SWITCH_NS < d->end)
		d->spans[d->count++] = (struct lane_span){IDLE_LANE, at, d->end, LANE_IDLE, NULL};
}

static int drawing_write(FILE *file, const void *data)
{
	const struct drawing *d = data;
	const struct simulation *s = d->simulation;
	char title[128], lease[UNITS_TEXT_SIZE], plan[UNITS_TEXT_SIZE];

	snprintf(title, sizeof(title), "Time-slicing, %s: leases of %s, plans of %s",
		 compute_mode_text(s->setting.mode),
		 units_format_duration(s->setting.lease_ns, lease),
		 units_format_duration(lease_plan_ns(&s->setting), plan));
	return lanes_svg_write(
		file,
		&(struct lane_picture){
			.title = title,
			.subtitle = "Simulated. To the right: part of the GPU's time over the "
				    "whole simulation.",
			.lanes = d->lanes,
			.count = s->count + 1,
			.to_ns = d->end,
			.plan_ns = lease_plan_ns(&s->setting),
			.spans = d->spans,
			.span_count = d->count});
}

static int picture_write(const struct simulation *s, const char *path, struct error *err)
{
	struct drawing *d = calloc(1, sizeof(*d));
	int rc;

	if (d)
		d->spans = calloc(3 * s->span_count + 1, sizeof(*d->spans));
	if (d && d->spans) {
		d->simulation = s;
		d->end = MIN(SIMULATION_PLANS_SHOWN * lease_plan_ns(&s->setting), s->length_ns);
		drawing_lanes(d);
		drawing_spans(d);
		rc = output_file(path, drawing_write, d, err);
	} else {
		rc = error_set(err, EXIT_CODE_FAILED, "out of memory");
	}
	if (d)
		free(d->spans);
	free(d);
	return rc;
}

static int simulation_show(const struct cli *cli, const struct simulation *s, struct error *err)
{
	const char *svg = cli->value[OPT_SVG];
	int rc = svg ? picture_write(s, svg, err) : 0;

	if (rc < 0 || output_is_stdout(svg))
		return rc;
	if (cli->value[OPT_JSON]) {
		cleanup_json json_t *json = simulation_json(s);

		return output_json(json, err);
	}
	table_show(s);
	lanes_show(s);
	summary_show(s);
	if (svg)
		printf("The picture is in %s.\n", svg);
	return 0;
}

int cli_timeslicing_simulate(struct cli *cli, struct error *err)
{
	struct simulation s = {0};
	int rc = output_check_json(cli->value[OPT_JSON], cli->value[OPT_SVG], "--svg",
				   "the picture is", err);

	if (rc == 0 && cli->value[OPT_SVG])
		rc = output_check_path(cli->value[OPT_SVG], err);
	if (rc == 0)
		rc = simulation_read(cli, &s, err);
	if (rc == 0)
		rc = simulation_run(&s, err);
	if (rc == 0)
		rc = simulation_show(cli, &s, err);
	simulation_free(&s);
	return rc;
}
