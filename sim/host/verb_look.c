#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <jansson.h>

#include "base/error.h"
#include "base/file.h"
#include "base/macros.h"
#include "base/units.h"
#include "host/client.h"
#include "host/mig.h"
#include "host/models.h"
#include "host/spec.h"
#include "host/verbs.h"

static const char stat_help[] =
	"usage: {} stat [--json] [--watch]\n\n"
	"show what the simulated GPUs hold and did: memory by kind, peaks, kernels, busy time,\n"
	"copies, calls that the simulated driver lacks. A GPU's own clock falls behind the host's\n"
	"where work takes longer to play than on a GPU: shares are right by that clock "
	"(clock_ns; globaltimer_ns: as kernels read it).\n\n"
	"Options:\n"
	"  --json   print JSON, errors too\n"
	"  --watch  repeat it every second\n\nExample:\n  {} stat --json\n";
static const char trace_help[] =
	"usage: {} trace FILE [--json]\n\n"
	"write a timeline in Chrome's trace format: who had the GPU when, and every change of\n"
	"memory. \"chrome://tracing\" and Perfetto show it. FILE - is standard output.\n\n"
	"Options:\n"
	"  --json   print what was written as JSON, errors too\n\n"
	"Example:\n  {} trace host.json\n";
static const char list_help[] =
	"usage: {} list [--json]\n\n"
	"list the models of GPUs that a simulated host can be made of\n\nExample:\n  {} list\n";

struct flags {
	bool json, watch, help;
	char wrong[64]; /* the option that is none */
};

static int flags_parse(int argc, char **argv, struct flags *flags)
{
	static const struct option options[] = {
		{"json", no_argument, NULL, 'j'},
		{"watch", no_argument, NULL, 'w'},
		{"help", no_argument, NULL, 'h'},
		{0},
	};
	int option;

	flags->json = verb_wants_json(argc, argv);
	opterr = 0;
	while ((option = getopt_long(argc, argv, "h", options, NULL)) != -1) {
		if (option == '?') {
			snprintf(flags->wrong, sizeof(flags->wrong), "%s", argv[optind - 1]);
			return -EINVAL;
		}
		flags->watch |= option == 'w';
		flags->help |= option == 'h';
	}
	return 0;
}

/* `extra` is the first argument that there should not be; NULL: one is missing. */
static int bad_arguments(const char *verb, const struct flags *flags, const char *extra)
{
	struct error err = {0};

	if (flags->wrong[0])
		error_set(&err, EXIT_CODE_USAGE, "%s: unknown option '%s'", verb, flags->wrong);
	else if (extra)
		error_set(&err, EXIT_CODE_USAGE, "%s: unexpected argument '%.64s'", verb, extra);
	else
		error_set(&err, EXIT_CODE_USAGE, "%s: FILE is missing", verb);
	error_hint(&err, "%s %s --help", verb_program(), verb);
	return verb_fail(&err, flags->json);
}

/* ---- list ---- */

static json_t *profile_json(const struct mig_board *b, const struct mig_profile *p)
{
	const struct mig_legal *legal = mig_legal(b, p);
	json_t *starts = json_array();

	for (size_t i = 0; i < legal->count; i++)
		json_array_append_new(starts, json_integer(legal->starts[i]));
	return json_pack("{s:s, s:i, s:I, s:i, s:i, s:i, s:[i,i,i,i], s:i, s:o}", "name", p->name,
			 "nvml_enum", (int)p->nvml_enum, "memory_bytes",
			 (json_int_t)mig_memory_mib(b, p) << 20, "sm_count", (int)mig_sm(b, p),
			 "slices", (int)p->compute_slices, "instances", (int)p->max_instances,
			 "engines", (int)p->dec, (int)p->enc, (int)p->jpeg, (int)p->ofa, "size",
			 (int)legal->size, "starts", starts);
}

/* With the default driver. */
static json_t *profiles_json(const struct sim_model *m)
{
	const struct spec_driver *driver = spec_driver_find(SPEC_DRIVER_DEFAULT, NULL);
	json_t *all = json_array();
	struct mig_board board;

	if (!mig_board_find(m, driver->branch, &board))
		return all;
	for (size_t i = 0; i < board.family->profile_count; i++)
		json_array_append_new(all, profile_json(&board, &board.family->profiles[i]));
	return all;
}

static json_t *model_json(const struct sim_model *m)
{
	return json_pack("{s:s, s:s, s:I, s:i, s:i, s:b, s:o}", "key", m->key, "name", m->name,
			 "memory_bytes", (json_int_t)m->memory_total, "sm_count", (int)m->sm_count,
			 "copy_engines", (int)m->copy_engines, "mig", m->mig_class != NULL,
			 "mig_profiles", profiles_json(m));
}

/* With columns as wide as the longest of each. */
static void models_print(const struct sim_model *models, size_t count)
{
	size_t key = 0, name = 0;

	for (size_t i = 0; i < count; i++) {
		key = MAX(key, strlen(models[i].key));
		name = MAX(name, strlen(models[i].name));
	}
	for (size_t i = 0; i < count; i++)
		printf("%-*s  %-*s  %7" PRIu64 " MiB%s\n", (int)key, models[i].key, (int)name,
		       models[i].name, models[i].memory_total >> 20,
		       models[i].mig_class ? "  mig" : "");
}

int verb_list(int argc, char **argv)
{
	struct flags flags = {0};
	size_t count;
	const struct sim_model *models = sim_models(&count);

	if (flags_parse(argc, argv, &flags) < 0 || optind < argc)
		return bad_arguments("list", &flags, argv[optind]);
	if (flags.watch) {
		snprintf(flags.wrong, sizeof(flags.wrong), "--watch");
		return bad_arguments("list", &flags, NULL);
	}
	if (flags.help)
		return verb_help(list_help);
	if (!flags.json) {
		models_print(models, count);
		return EXIT_CODE_OK;
	}
	json_t *all = json_array();
	for (size_t i = 0; i < count; i++)
		json_array_append_new(all, model_json(&models[i]));
	json_dumpf(all, stdout, JSON_INDENT(1));
	putchar('\n');
	json_decref(all);
	return EXIT_CODE_OK;
}

/* ---- figures of the host itself ---- */

struct client *verb_host_open(bool json)
{
	struct client *c = NULL;
	struct error err = {0};
	int status = client_connect(WIRE_ROLE_TOOL, &c);

	if (status == 0)
		return c;
	if (status == -ENODEV) {
		error_set(&err, EXIT_CODE_UNREACHABLE, "this is not inside a simulated host");
		error_hint(&err, "run this on one; see `%s --help`", verb_program());
	} else {
		error_set(&err, EXIT_CODE_UNREACHABLE, "the simulated host does not answer: %s",
			  strerrordesc_np(-status));
	}
	verb_fail(&err, json);
	return NULL;
}

/* The memfd that a request is answered with, or -errno. */
static int host_ask(struct client *c, enum wire_type type)
{
	struct wire_head request = {.type = type}, reply;
	int fd = -1;
	int n = client_call(c, &request, sizeof(request), -1, &reply, sizeof(reply), &fd);

	if (n < 0)
		return n;
	return fd < 0 ? -EPROTO : fd;
}

static int copy_out(int from, int to)
{
	char buf[65536];
	ssize_t n;

	while ((n = read(from, buf, sizeof(buf))) > 0) {
		int status = write_all(to, buf, (size_t)n);
		if (status < 0)
			return status;
	}
	return n < 0 ? -errno : 0;
}

static uint64_t number(const json_t *o, const char *key)
{
	return (uint64_t)json_integer_value(json_object_get(o, key));
}

/* Microseconds as such: in seconds they would look like nothing. */
static const char *duration_format(uint64_t ns, char text[UNITS_TEXT_SIZE])
{
	static const struct {
		uint64_t ns;
		const char *name;
	} units[] = {{1000000000, "s"}, {1000000, "ms"}, {1000, "us"}, {1, "ns"}};
	size_t i = 0;

	while (i + 1 < ARRAY_SIZE(units) && ns < units[i].ns)
		i++;
	snprintf(text, UNITS_TEXT_SIZE, "%.*f %s", units[i].ns > 1 ? 3 : 0,
		 (double)ns / (double)units[i].ns, units[i].name);
	return text;
}

static void process_print(const json_t *p)
{
	char used[UNITS_TEXT_SIZE], peak[UNITS_TEXT_SIZE], busy[UNITS_TEXT_SIZE];
	const char *name;
	json_t *count;

	printf("  %8" PRIu64 "  %-16s %10s  peak %10s  busy %10s  %8" PRIu64 " launches  %6" PRIu64
	       " copies\n",
	       number(p, "pid"), json_string_value(json_object_get(p, "command")),
	       units_format_bytes(number(p, "memory_bytes"), used),
	       units_format_bytes(number(p, "memory_peak_bytes"), peak),
	       duration_format(number(p, "busy_ns"), busy), number(p, "launches"),
	       number(p, "copies"));
	json_object_foreach(json_object_get(p, "unsupported_calls"), name, count)
		printf("            not supported: %s (%s)\n", name,
		       units_format_count((uint64_t)json_integer_value(count), "time", used));
}

static void stat_print(const json_t *stat)
{
	size_t i, k;
	json_t *gpu, *process;
	char used[UNITS_TEXT_SIZE], total[UNITS_TEXT_SIZE], peak[UNITS_TEXT_SIZE];
	char busy[UNITS_TEXT_SIZE], lag[UNITS_TEXT_SIZE];

	json_array_foreach(json_object_get(stat, "gpus"), i, gpu)
	{
		printf("GPU %zu  %s  %s\n  used %s of %s  peak %s  busy %s  clock %s late\n", i,
		       json_string_value(json_object_get(gpu, "name")),
		       json_string_value(json_object_get(gpu, "uuid")),
		       units_format_bytes(number(gpu, "memory_used_bytes"), used),
		       units_format_bytes(number(gpu, "memory_total_bytes"), total),
		       units_format_bytes(number(gpu, "memory_peak_bytes"), peak),
		       duration_format(number(gpu, "busy_ns"), busy),
		       duration_format(number(gpu, "lag_ns"), lag));
		json_array_foreach(json_object_get(gpu, "processes"), k, process)
			process_print(process);
	}
}

static int stat_show(struct client *c, bool json)
{
	cleanup_close int fd = host_ask(c, WIRE_STAT);

	if (fd < 0)
		return fd;
	if (json) {
		int status = copy_out(fd, STDOUT_FILENO);
		return status < 0 ? status : write_all(STDOUT_FILENO, "\n", 1);
	}
	json_t *stat = json_loadfd(fd, 0, NULL);
	if (!stat)
		return -EPROTO;
	stat_print(stat);
	json_decref(stat);
	return fflush(stdout) == 0 ? 0 : -errno;
}

int verb_report(const char *verb, int status, bool json)
{
	struct error err = {0};

	if (status == 0)
		return EXIT_CODE_OK;
	error_set(&err, status == -ENOTCONN ? EXIT_CODE_UNREACHABLE : EXIT_CODE_FAILED, "%s: %s",
		  verb,
		  status == -ENOTCONN ? "the simulated host is gone" : strerrordesc_np(-status));
	return verb_fail(&err, json);
}

int verb_stat(int argc, char **argv)
{
	const struct timespec second = {.tv_sec = 1};
	struct flags flags = {0};

	if (flags_parse(argc, argv, &flags) < 0 || optind < argc)
		return bad_arguments("stat", &flags, argv[optind]);
	if (flags.help)
		return verb_help(stat_help);
	struct client *c = verb_host_open(flags.json);
	if (!c)
		return EXIT_CODE_UNREACHABLE;
	int status = stat_show(c, flags.json);
	while (status == 0 && flags.watch) {
		nanosleep(&second, NULL);
		if (!flags.json && isatty(STDOUT_FILENO))
			fputs("\033[H\033[2J", stdout);
		status = stat_show(c, flags.json);
	}
	client_disconnect(c);
	return verb_report("stat", status, flags.json);
}

static void trace_tell(const char *path)
{
	json_t *o = json_pack("{s:o}", "file", json_string_nocheck(path));

	json_dumpf(o, stdout, JSON_COMPACT);
	putchar('\n');
	json_decref(o);
}

static int trace_is_stdout_already(void)
{
	struct error err = {0};

	error_set(&err, EXIT_CODE_USAGE,
		  "--json: the timeline is to be written to standard output, too");
	error_hint(&err, "give the timeline a file");
	return verb_fail(&err, true);
}

int verb_trace(int argc, char **argv)
{
	struct flags flags = {0};

	if (flags_parse(argc, argv, &flags) < 0 || (!flags.help && optind + 1 != argc))
		return bad_arguments("trace", &flags, optind < argc ? argv[optind + 1] : NULL);
	if (flags.help)
		return verb_help(trace_help);
	if (!*argv[optind])
		return bad_arguments("trace", &flags, NULL);
	bool to_stdout = !strcmp(argv[optind], "-");
	if (to_stdout && flags.json)
		return trace_is_stdout_already();
	struct client *c = verb_host_open(flags.json);
	if (!c)
		return EXIT_CODE_UNREACHABLE;
	cleanup_close int from = host_ask(c, WIRE_TRACE);
	cleanup_close int to = -1;
	int status = MIN(from, 0);
	if (status == 0) {
		to = to_stdout ? fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 0)
			       : open(argv[optind], O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
		status = to < 0 ? -errno : copy_out(from, to);
	}
	client_disconnect(c);
	if (status == 0 && flags.json)
		trace_tell(argv[optind]);
	return verb_report(to_stdout ? "standard output" : argv[optind], status, flags.json);
}
