#include "cli/timeslicing/simulation.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/error.h"
#include "base/macros.h"
#include "base/units.h"
#include "cli/cli.h"
#include "cli/timeslicing/timeslicing.h"

#define ITEM_SIZE 64
#define PLANS 20u
/* One that is idle for a part of the time has this much work at a time. */
#define BURST_NS 10000000ull
#define LENGTH_MAX_NS (24 * 3600ull * 1000000000)

/* Copies the next item of a list with commas. False: there is none left. */
static bool item_next(const char **list, char item[static ITEM_SIZE])
{
	const char *from = *list;

	if (!from)
		return false;
	size_t length = strcspn(from, ",");
	snprintf(item, ITEM_SIZE, "%.*s", (int)MIN(length, ITEM_SIZE - 1), from);
	*list = from[length] ? from + length + 1 : NULL;
	return true;
}

static int client_add(struct simulation *s, const char *option, uint32_t fraction_ppm,
		      struct error *err)
{
	if (s->count == SIMULATION_CLIENTS_MAX) {
		error_set(err, EXIT_CODE_USAGE, "%s: more than %u sessions", option,
			  SIMULATION_CLIENTS_MAX);
		error_hint(err, "a GPU with fewer of them shows the same");
		return -EXIT_CODE_USAGE;
	}
	s->clients[s->count++] = (struct lease_sim_client){
		.gpus = 1, .fraction_ppm = fraction_ppm, .kernel_ns = 1000000};
	return 0;
}

static int fraction_missing(const char *list, struct error *err)
{
	error_set(err, EXIT_CODE_USAGE, "--fractions: '%.64s' has an empty place", list);
	error_hint(err, "a fraction before and after each comma: --fractions 0.25,0.75");
	return -EXIT_CODE_USAGE;
}

static int fractions_read(const char *list, struct simulation *s, struct error *err)
{
	uint64_t sum = 0;
	char item[ITEM_SIZE];

	for (const char *left = list; item_next(&left, item);) {
		uint32_t ppm;
		int rc = *item ? units_parse_share(item, "--fractions", &ppm, err)
			       : fraction_missing(list, err);

		if (rc < 0 || (rc = client_add(s, "--fractions", ppm, err)) < 0)
			return rc;
		sum += ppm;
	}
	if (sum <= SHARE_ONE)
		return 0;
	error_set(err, EXIT_CODE_USAGE, "--fractions: '%.64s' comes to %g, more than the whole GPU",
		  list, (double)sum / SHARE_ONE);
	error_hint(err, "fractions of one GPU come to 1 at most: --fractions 0.25,0.75");
	return -EXIT_CODE_USAGE;
}

/* N, or N:PERCENT. */
static int idle_read(char *item, struct simulation *s, struct error *err)
{
	char *part = strchr(item, ':');
	uint64_t number;
	uint32_t ppm = SHARE_ONE;

	if (part)
		*part++ = '\0';
	int rc = units_parse_count(item, "--idle", 1, s->count, &number, err);

	if (rc < 0)
		return rc;
	if (part && (rc = units_parse_share(part, "--idle", &ppm, err)) < 0) {
		error_hint(err, "a part of the time after the colon: --idle %" PRIu64 ":25%%",
			   number);
		return rc;
	}
	struct lease_sim_client *c = &s->clients[number - 1];
	if (c->work_ns) {
		error_set(err, EXIT_CODE_USAGE, "--idle: session %" PRIu64 " is given twice",
			  number);
		error_hint(err, "each session once: --idle 1:50%%,2:20%%");
		return -EXIT_CODE_USAGE;
	}
	c->idle = ppm == SHARE_ONE;
	c->work_ns = BURST_NS;
	c->rest_ns = c->idle ? 0 : BURST_NS * ppm / (SHARE_ONE - ppm);
	return 0;
}

static int sessions_read(const struct cli *cli, struct simulation *s, struct error *err)
{
	const char *fractions = cli->value[OPT_FRACTIONS], *idle = cli->value[OPT_IDLE];
	uint64_t memory_only = 0;
	char item[ITEM_SIZE];
	int rc = fractions ? fractions_read(fractions, s, err) : 0;

	if (rc == 0 && cli->value[OPT_MEMORY_ONLY])
		rc = units_parse_count(cli->value[OPT_MEMORY_ONLY], "--memory-only", 0,
				       SIMULATION_CLIENTS_MAX, &memory_only, err);
	for (uint64_t i = 0; rc == 0 && i < memory_only; i++)
		rc = client_add(s, "--memory-only", 0, err);
	if (rc == 0 && !s->count) {
		error_set(err, EXIT_CODE_USAGE, "no sessions to simulate");
		error_hint(err, "for example: --fractions 0.25,0.75 or --memory-only 2");
		return -EXIT_CODE_USAGE;
	}
	while (rc == 0 && item_next(&idle, item))
		rc = idle_read(item, s, err);
	return rc;
}

static int length_read(const char *text, struct simulation *s, struct error *err)
{
	uint64_t plan = lease_plan_ns(&s->setting);

	if (!text) {
		s->length_ns = PLANS * plan;
		return 0;
	}
	int rc = units_parse_seconds(text, "--seconds", &s->length_ns, err);
	if (rc < 0)
		return rc;
	if (s->length_ns >= plan && s->length_ns <= LENGTH_MAX_NS)
		return 0;
	error_set(err, EXIT_CODE_USAGE, "--seconds: '%.32s' is outside one plan (%g s) to a day",
		  text, (double)plan / 1e9);
	error_hint(err, "for example: --seconds 60");
	return -EXIT_CODE_USAGE;
}

int simulation_read(const struct cli *cli, struct simulation *s, struct error *err)
{
	*s = (struct simulation){
		.setting = {COMPUTE_FAIR, LEASE_NS_DEFAULT, LEASE_GRANULARITY_DEFAULT}};
	int rc = timeslicing_setting_read(cli, &s->setting, err);

	if (rc == 0 && s->setting.mode == COMPUTE_OFF) {
		error_set(err, EXIT_CODE_USAGE,
			  "--mode: 'off' leaves the GPU's time to the driver; there is no plan");
		error_hint(err, "for example: --mode strict");
		return -EXIT_CODE_USAGE;
	}
	if (rc == 0)
		rc = sessions_read(cli, s, err);
	return rc < 0 ? rc : length_read(cli->value[OPT_SIMULATE_SECONDS], s, err);
}

static void span_keep(void *context, const struct lease_sim_span *span)
{
	struct simulation *s = context;

	if (span->from >= SIMULATION_PLANS_SHOWN * lease_plan_ns(&s->setting) ||
	    span->from == span->to)
		return;
	struct lease_sim_span *more =
		array_grown(s->spans, s->span_count, &s->span_room, sizeof(*more));
	if (!more) /* the picture lacks something; the figures do not */
		return;
	s->spans = more;
	s->spans[s->span_count++] = *span;
}

int simulation_run(struct simulation *s, struct error *err)
{
	struct lease_sim *sim = lease_sim_new(1, span_keep, s);
	int rc = sim ? 0 : -ENOMEM;

	if (sim) {
		lease_sim_costs(sim, SIMULATION_SWITCH_NS, 200000);
		lease_sim_set(sim, 0, &s->setting);
	}
	for (uint32_t i = 0; rc >= 0 && i < s->count; i++)
		rc = lease_sim_add(sim, &s->clients[i]);
	if (rc >= 0)
		rc = lease_sim_run(sim, s->length_ns);
	if (rc < 0) {
		lease_sim_free(sim);
		return error_set(err, EXIT_CODE_FAILED, "the simulation failed: %s",
				 strerrordesc_np(-rc));
	}
	lease_sim_flush(sim);
	for (uint32_t i = 0; i < s->count; i++)
		s->results[i] = lease_sim_result(sim, i);
	s->idle_ns = lease_sim_idle(sim, 0);
	lease_sim_free(sim);
	return 0;
}

void simulation_free(struct simulation *s)
{
	free(s->spans);
	s->spans = NULL;
}
