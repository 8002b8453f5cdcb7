/* carve timeslicing trace: the turns that the daemon remembers, as Chrome's trace viewer reads
 * them: a process a GPU, a lane a session. */
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/error.h"
#include "base/macros.h"
#include "base/units.h"
#include "cli/cli.h"
#include "cli/output.h"
#include "cli/timeslicing/lanes_svg.h"
#include "client/client.h"
#include "client/sessions.h"

#define PAUSE_NS 250000000ull
#define LANES_MAX 4096u

/* Sessions in the order in which they are met; others' have no name and share a lane. */
struct lanes {
	const char *name[LANES_MAX];
	unsigned count;
};

static unsigned lane_of(struct lanes *lanes, const json_t *turn)
{
	const char *session = session_text(turn, "session");

	for (unsigned i = 0; i < lanes->count; i++)
		if (!strcmp(lanes->name[i], session))
			return i + 1;
	if (lanes->count < LANES_MAX)
		lanes->name[lanes->count++] = session;
	return lanes->count;
}

/* ---- asking ------------------------------------------------------------------------------ */

struct watched {
	json_t *turns; /* those that ended, then those that go on */
	uint64_t from; /* the number of the next turn to ask for */
	uint64_t begin_ns, now_ns;
};

/* Appends what ended since; with `open` also what goes on. */
static int turns_fetch(const struct client *client, struct watched *w, bool open, struct error *err)
{
	for (;;) {
		cleanup_json json_t *answer = NULL;
		char path[64];

		snprintf(path, sizeof(path), "/v1/timeslicing/trace?from=%" PRIu64, w->from);
		int rc = client_call(client, "GET", path, NULL, NULL, &answer, err);
		if (rc < 0)
			return rc;
		const json_t *ended = json_object_get(answer, "turns");
		json_array_extend(w->turns, (json_t *)ended);
		w->from = session_number(answer, "next");
		w->now_ns = session_number(answer, "now_ns");
		if (json_array_size(ended))
			continue;
		if (open)
			json_array_extend(w->turns, json_object_get(answer, "open"));
		return 0;
	}
}

static volatile sig_atomic_t ended;

static void on_end(int number)
{
	ended = number;
}

/* A user who ends it early gets the trace so far. */
static void ends_catch(void)
{
	const struct sigaction action = {.sa_handler = on_end,
					 .sa_flags = (int)(SA_RESETHAND | SA_RESTART)};

	sigaction(SIGINT, &action, NULL);
	sigaction(SIGTERM, &action, NULL);
}

static int turns_watch(const struct client *client, uint64_t for_ns, struct watched *w,
		       struct error *err)
{
	if (for_ns)
		ends_catch();
	/* Beyond any turn there was: from the next one on. */
	w->from = for_ns ? INT64_MAX : 0;
	int rc = for_ns ? turns_fetch(client, w, false, err) : 0;
	w->begin_ns = w->now_ns;
	while (rc == 0 && !ended && for_ns && w->now_ns - w->begin_ns < for_ns) {
		uint64_t left = for_ns - (w->now_ns - w->begin_ns);

		nanosleep(&(struct timespec){.tv_nsec = (long)MIN(left, PAUSE_NS)}, NULL);
		rc = turns_fetch(client, w, false, err);
	}
	return rc < 0 ? rc : turns_fetch(client, w, true, err);
}

/* ---- the trace's lines ------------------------------------------------------------------- */

static void event_add(json_t *events, const char *name, uint64_t gpu, unsigned lane,
		      uint64_t from_ns, uint64_t to_ns, json_t *args)
{
	json_array_append_new(
		events,
		json_pack("{s:s, s:s, s:I, s:i, s:f, s:f, s:o*}", "name", name, "ph", "X", "pid",
			  (json_int_t)gpu, "tid", (int)lane, "ts", (double)from_ns / 1e3, "dur",
			  (double)(to_ns > from_ns ? to_ns - from_ns : 0) / 1e3, "args", args));
}

/* The lease as a whole, and inside it what came after it was to end. */
static void turn_add(json_t *events, const json_t *turn, uint64_t gpu, unsigned lane,
		     uint64_t now_ns)
{
	uint64_t opened = session_number(turn, "opened_ns");
	uint64_t until = session_number(turn, "until_ns");
	uint64_t revoked = session_number(turn, "revoked_ns");
	uint64_t closed = session_number(turn, "closed_ns");
	const char *end = session_text(turn, "end");

	closed = closed ? closed : now_ns;
	event_add(events, "lease", gpu, lane, opened, closed,
		  json_pack("{s:s, s:b}", "end", end, "contended",
			    json_is_true(json_object_get(turn, "contended"))));
	if (revoked && revoked < closed)
		event_add(events, until && revoked >= until ? "overrun" : "drain", gpu, lane,
			  revoked, closed, NULL);
}

static void name_add(json_t *events, const char *kind, uint64_t gpu, unsigned lane,
		     const char *name)
{
	json_array_append_new(events, json_pack("{s:s, s:s, s:I, s:i, s:{s:s}}", "name", kind, "ph",
						"M", "pid", (json_int_t)gpu, "tid", (int)lane,
						"args", "name", name));
}

/* The times at which nobody had the GPU, in lane 0. The turns are in the order of their ends. */
static void idle_add(json_t *events, const json_t *turns, uint64_t gpu)
{
	uint64_t free_since = 0;
	size_t i, at;
	json_t *turn, *on;

	json_array_foreach(turns, i, turn)
	{
		uint64_t opened = session_number(turn, "opened_ns");
		uint64_t closed = session_number(turn, "closed_ns");
		bool here = false;

		json_array_foreach(json_object_get(turn, "gpus"), at, on) here |=
			json_integer_value(on) == (json_int_t)gpu;
		if (!here)
			continue;
		if (free_since && opened > free_since)
			event_add(events, "idle", gpu, 0, free_since, opened, NULL);
		free_since = MAX(free_since, closed ? closed : opened);
	}
}

static json_t *events_make(const struct watched *w)
{
	static struct lanes lanes;
	uint64_t seen = 0; /* GPUs */
	json_t *events = json_array(), *turn, *gpu;
	size_t i, at;

	json_array_foreach(w->turns, i, turn)
	{
		unsigned lane = lane_of(&lanes, turn);

		json_array_foreach(json_object_get(turn, "gpus"), at, gpu)
		{
			uint64_t index = (uint64_t)json_integer_value(gpu) & 63;

			turn_add(events, turn, index, lane, w->now_ns);
			seen |= 1ull << index;
		}
	}
	for (uint64_t left = seen; left; left &= left - 1) {
		uint64_t index = (uint64_t)__builtin_ctzll(left);
		char name[16];

		snprintf(name, sizeof(name), "GPU %" PRIu64, index);
		name_add(events, "process_name", index, 0, name);
		name_add(events, "thread_name", index, 0, "idle");
		for (unsigned lane = 1; lane <= lanes.count; lane++)
			name_add(events, "thread_name", index, lane,
				 *lanes.name[lane - 1] ? lanes.name[lane - 1] : "others");
		idle_add(events, w->turns, index);
	}
	return events;
}

static int trace_write(FILE *file, const void *data)
{
	cleanup_json json_t *root =
		json_pack("{s:s, s:o}", "displayTimeUnit", "ms", "traceEvents", events_make(data));

	if (!root)
		return -ENOMEM;
	return json_dumpf(root, file, JSON_COMPACT) < 0 || fputc('\n', file) == EOF ? -errno : 0;
}

/* ---- the picture ------------------------------------------------------------------------- */

/* A lane for each session on each GPU, in the order in which they are met. */
struct drawing {
	struct lane *lanes;
	struct {
		uint64_t gpu, held_ns;
		const char *session;
		char name[64], note[32];
	} * of;
	struct lane_span *spans;
	uint32_t lane_count;
	size_t span_count;
	uint64_t from_ns, to_ns;
};

static uint32_t drawing_lane(struct drawing *d, uint64_t gpu, const char *session)
{
	uint32_t lane = 0;

	while (lane < d->lane_count &&
	       (d->of[lane].gpu != gpu || strcmp(d->of[lane].session, session) != 0))
		lane++;
	if (lane == d->lane_count) {
		d->of[lane].gpu = gpu;
		d->of[lane].session = session;
		d->lane_count++;
	}
	return lane;
}

static void drawing_span(struct drawing *d, uint32_t lane, uint64_t start, uint64_t end,
			 enum lane_kind kind)
{
	if (end > start)
		d->spans[d->span_count++] = (struct lane_span){
			.lane = lane, .start_ns = start, .end_ns = end, .kind = kind};
}

static void drawing_turn(struct drawing *d, const json_t *turn, uint64_t gpu, uint64_t now_ns)
{
	uint32_t lane = drawing_lane(d, gpu, session_text(turn, "session"));
	uint64_t opened = session_number(turn, "opened_ns");
	uint64_t revoked = session_number(turn, "revoked_ns");
	uint64_t closed = session_number(turn, "closed_ns");

	closed = closed ? closed : now_ns;
	revoked = revoked ? MIN(revoked, closed) : closed;
	drawing_span(d, lane, opened, revoked, LANE_LEASE);
	drawing_span(d, lane, revoked, closed, LANE_OVERRUN);
	d->of[lane].held_ns += closed - opened;
	d->from_ns = d->from_ns ? MIN(d->from_ns, opened) : opened;
	d->to_ns = MAX(d->to_ns, closed);
}

static void drawing_name(struct drawing *d)
{
	for (uint32_t i = 0; i < d->lane_count; i++) {
		snprintf(d->of[i].name, sizeof(d->of[i].name), "GPU %" PRIu64 " %s", d->of[i].gpu,
			 *d->of[i].session ? d->of[i].session : "others");
		snprintf(d->of[i].note, sizeof(d->of[i].note), "%.1f%%",
			 100.0 * (double)d->of[i].held_ns / (double)(d->to_ns - d->from_ns));
		d->lanes[i] = (struct lane){.name = d->of[i].name, .note = d->of[i].note};
	}
}

static void drawing_clear(struct drawing *d)
{
	free(d->lanes);
	free(d->of);
	free(d->spans);
}

static int drawing_make(const struct watched *w, struct drawing *d)
{
	size_t room = 1, i, at;
	json_t *turn, *gpu;

	json_array_foreach(w->turns, i, turn) room +=
		json_array_size(json_object_get(turn, "gpus"));
	d->lanes = calloc(room, sizeof(*d->lanes));
	d->of = calloc(room, sizeof(*d->of));
	d->spans = calloc(2 * room, sizeof(*d->spans));
	if (!d->lanes || !d->of || !d->spans)
		return -ENOMEM;
	json_array_foreach(w->turns, i, turn)
		json_array_foreach(json_object_get(turn, "gpus"), at, gpu)
			drawing_turn(d, turn, (uint64_t)json_integer_value(gpu), w->now_ns);
	d->to_ns = MAX(d->to_ns, d->from_ns + 1);
	drawing_name(d);
	return 0;
}

static int drawing_write(FILE *file, const void *data)
{
	const struct drawing *d = data;
	const struct lane_picture picture = {
		.title = "Leases",
		.subtitle = d->lane_count ? "as carved gave them; darker: work after a lease's end"
					  : "there were none",
		.lanes = d->lanes,
		.count = d->lane_count,
		.from_ns = d->from_ns,
		.to_ns = d->to_ns,
		.spans = d->spans,
		.span_count = d->span_count,
	};

	return lanes_svg_write(file, &picture);
}

static int picture_write(const char *path, const struct watched *w, struct error *err)
{
	struct drawing drawing = {0};
	int rc = drawing_make(w, &drawing) < 0 ? error_set(err, EXIT_CODE_FAILED, "out of memory")
					       : output_file(path, drawing_write, &drawing, err);

	drawing_clear(&drawing);
	return rc;
}

static int seconds_read(const char *text, uint64_t *ret_ns, struct error *err)
{
	int rc = units_parse_seconds(text, "--seconds", ret_ns, err);

	if (rc < 0 || *ret_ns)
		return rc;
	error_set(err, EXIT_CODE_USAGE, "--seconds: '%.32s' is no time to watch", text);
	error_hint(err, "for example: --seconds 10; without it what is remembered is written");
	return -EXIT_CODE_USAGE;
}

static int targets_check(const char *path, const char *svg, bool json, struct error *err)
{
	int rc = output_check_json(json, path, "the leases", "the leases are", err);

	if (rc == 0)
		rc = output_check_json(json, svg, "--svg", "the picture is", err);
	if (rc == 0)
		rc = output_check_path(path, err);
	if (rc == 0 && svg)
		rc = output_check_path(svg, err);
	if (rc < 0 || !svg || !output_is_same(svg, path))
		return rc;
	error_set(err, EXIT_CODE_USAGE, "--svg: the leases are to be written to %s, too",
		  output_is_stdout(path) ? "standard output" : path);
	error_hint(err, "for example: carve timeslicing trace leases.json --svg leases.svg");
	return -EXIT_CODE_USAGE;
}

int cli_timeslicing_trace(struct cli *cli, struct error *err)
{
	const char *path = cli->arguments[0], *svg = cli->value[OPT_SVG];
	char count[UNITS_TEXT_SIZE];
	cleanup_json json_t *turns = json_array();
	struct watched watched = {.turns = turns};
	struct client client;
	uint64_t for_ns = 0;
	int rc = cli->value[OPT_SECONDS] ? seconds_read(cli->value[OPT_SECONDS], &for_ns, err) : 0;

	if (rc < 0 || (rc = targets_check(path, svg, cli->value[OPT_JSON], err)) < 0 ||
	    (rc = client_open(&client, cli->value[OPT_HOST], err)) < 0 ||
	    (rc = turns_watch(&client, for_ns, &watched, err)) < 0 ||
	    (rc = output_file(path, trace_write, &watched, err)) < 0)
		return rc;
	if (svg && (rc = picture_write(svg, &watched, err)) < 0)
		return rc;
	if (output_is_stdout(path) || output_is_stdout(svg))
		return 0;
	if (cli->value[OPT_JSON])
		return output_json(turns, err);
	printf("%s: %s\n", path, units_format_count(json_array_size(turns), "lease", count));
	if (svg)
		printf("The picture is in %s.\n", svg);
	return 0;
}
