#include <getopt.h>
#include <stdio.h>
#include <string.h>

#include <jansson.h>

#include "base/error.h"
#include "base/macros.h"
#include "base/units.h"
#include "host/client.h"
#include "host/verbs.h"

static const char help[] =
	"usage: {} fault KIND [OPTION]...\n"
	"       {} fault KIND|all --clear\n\n"
	"make the simulated driver fail. KIND:\n"
	"  alloc            out of memory; with --delay only slow, with --error that error\n"
	"  launch           the next launch of a kernel gives an error that sticks\n"
	"  ecc              the same with an uncorrectable ECC error; NVML counts it\n"
	"  lost             the GPU fell off the bus, for CUDA and NVML\n"
	"  hang             calls take --delay longer; with --error they end with that\n"
	"  nvml             NVML's calls fail\n"
	"  mig-destroy      destroying a MIG instance says that it is in use\n"
	"  list-managed     processes' figures have managed memory in them\n\n"
	"Options:\n"
	"  --gpu N          only on this GPU, by index (default: any)\n"
	"  --pid PID        only for this process\n"
	"  --call NAME      only this function, e.g. cuMemAlloc_v2\n"
	"  --skip N         so many calls pass first\n"
	"  --count N        so many fail (default: until cleared)\n"
	"  --for SECONDS    it clears itself after that\n"
	"  --delay SECONDS  how long a call takes\n"
	"  --error N        the number to return (CUresult; with nvml: nvmlReturn_t)\n"
	"  --clear          no more faults of this kind\n"
	"  --json           print what was set as JSON, errors too\n\n"
	"Example:\n  {} fault alloc --gpu 0 --count 1\n";

static const char *const kinds[WIRE_FAULTS + 1] = {
	[WIRE_FAULT_ALLOC] = "alloc",
	[WIRE_FAULT_LAUNCH] = "launch",
	[WIRE_FAULT_ECC] = "ecc",
	[WIRE_FAULT_LOST] = "lost",
	[WIRE_FAULT_HANG] = "hang",
	[WIRE_FAULT_NVML] = "nvml",
	[WIRE_FAULT_MIG_DESTROY] = "mig-destroy",
	[WIRE_FAULT_LIST_MANAGED] = "list-managed",
	[WIRE_FAULTS] = "all",
};

static int kind_parse(const char *text, struct wire_fault_set *set, struct error *err)
{
	for (uint32_t i = 0; i < ARRAY_SIZE(kinds); i++) {
		if (!strcmp(kinds[i], text)) {
			set->fault = i;
			return 0;
		}
	}
	error_set(err, EXIT_CODE_USAGE, "fault: '%s': no such kind", text);
	error_hint(err, "one of alloc, launch, ecc, lost, hang, nvml, mig-destroy, list-managed");
	return -EXIT_CODE_USAGE;
}

static int count_parse(const char *option, uint64_t max, uint32_t *ret, struct error *err)
{
	uint64_t value;
	int status = units_parse_count(optarg, option, 0, max, &value, err);

	if (status == 0)
		*ret = (uint32_t)value;
	return status;
}

static int option_apply(int option, struct wire_fault_set *set, struct error *err)
{
	switch (option) {
	case 'g':
		set->any_device = 0;
		return count_parse("--gpu", WIRE_GPUS_MAX - 1, &set->device, err);
	case 'p':
		return count_parse("--pid", INT32_MAX, (uint32_t *)&set->pid, err);
	case 'e':
		return count_parse("--error", 9999, (uint32_t *)&set->error, err);
	case 's':
		return count_parse("--skip", UINT32_MAX, &set->skip, err);
	case 'n':
		return count_parse("--count", UINT32_MAX, &set->count, err);
	case 'd':
		return units_parse_seconds(optarg, "--delay", &set->delay_ns, err);
	case 'f':
		return units_parse_seconds(optarg, "--for", &set->for_ns, err);
	case 'c':
		snprintf(set->call, sizeof(set->call), "%s", optarg);
		return 0;
	case 'x':
		set->clear = 1;
		return 0;
	case 'j':
		return 0;
	default:
		return -EXIT_CODE_USAGE;
	}
}

/* 1: help was asked for. */
static int arguments_parse(int argc, char **argv, struct wire_fault_set *set, struct error *err)
{
	static const struct option options[] = {
		{"gpu", required_argument, NULL, 'g'},   {"pid", required_argument, NULL, 'p'},
		{"call", required_argument, NULL, 'c'},  {"skip", required_argument, NULL, 's'},
		{"count", required_argument, NULL, 'n'}, {"delay", required_argument, NULL, 'd'},
		{"for", required_argument, NULL, 'f'},   {"error", required_argument, NULL, 'e'},
		{"clear", no_argument, NULL, 'x'},       {"json", no_argument, NULL, 'j'},
		{"help", no_argument, NULL, 'h'},        {0},
	};
	int option;

	opterr = 0;
	while ((option = getopt_long(argc, argv, "h", options, NULL)) != -1) {
		if (option == 'h')
			return 1;
		if (option == '?')
			return verb_bad_option(argv, err);
		int status = option_apply(option, set, err);
		if (status < 0)
			return status;
	}
	if (optind == argc) {
		error_set(err, EXIT_CODE_USAGE, "fault: KIND is missing");
		error_hint(
			err,
			"one of alloc, launch, ecc, lost, hang, nvml, mig-destroy, list-managed");
		return -EXIT_CODE_USAGE;
	}
	if (optind + 1 != argc)
		return error_set(err, EXIT_CODE_USAGE, "fault: unexpected argument '%.64s'",
				 argv[optind + 1]);
	int status = kind_parse(argv[optind], set, err);
	if (status == 0 && set->fault == WIRE_FAULTS && !set->clear)
		return error_set(err, EXIT_CODE_USAGE, "fault: 'all' goes with --clear only");
	if (status == 0 && set->fault == WIRE_FAULT_HANG && !set->clear && !set->delay_ns &&
	    !set->error)
		return error_set(err, EXIT_CODE_USAGE, "fault: hang needs --delay, e.g. --delay 2");
	return status;
}

static json_t *number_or_null(uint64_t number, bool given)
{
	return given ? json_integer((json_int_t)number) : json_null();
}

/* What was set; null: any, or for ever. */
static void fault_tell(const struct wire_fault_set *set)
{
	json_t *o = json_pack(
		"{s:s, s:b, s:o, s:o, s:o, s:I, s:o, s:I, s:I, s:o}", "fault", kinds[set->fault],
		"cleared", set->clear != 0, "gpu", number_or_null(set->device, !set->any_device),
		"pid", number_or_null((uint64_t)set->pid, set->pid != 0), "call",
		set->call[0] ? json_string_nocheck(set->call) : json_null(), "skip",
		(json_int_t)set->skip, "count", number_or_null(set->count, set->count != 0),
		"delay_ns", (json_int_t)set->delay_ns, "for_ns", (json_int_t)set->for_ns, "error",
		number_or_null((uint64_t)set->error, set->error != 0));

	json_dumpf(o, stdout, JSON_COMPACT);
	putchar('\n');
	json_decref(o);
}

int verb_fault(int argc, char **argv)
{
	bool json = verb_wants_json(argc, argv);
	struct wire_fault_set set = {.head.type = WIRE_FAULT_SET, .any_device = 1};
	struct wire_head reply;
	struct error err = {0};
	int status = arguments_parse(argc, argv, &set, &err);

	if (status < 0)
		return verb_fail(&err, json);
	if (status > 0)
		return verb_help(help);
	struct client *c = verb_host_open(json);
	if (!c)
		return EXIT_CODE_UNREACHABLE;
	int n = client_call(c, &set, sizeof(set), -1, &reply, sizeof(reply), NULL);
	client_disconnect(c);
	if (n >= 0 && json)
		fault_tell(&set);
	return verb_report("fault", MIN(n, 0), json);
}
