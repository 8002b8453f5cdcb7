#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "base/error.h"
#include "base/macros.h"
#include "base/units.h"
#include "host/call_names.h"
#include "host/client.h"
#include "host/verbs.h"

static const char help[] =
	"usage: {} fault KIND [OPTION]...\n"
	"       {} fault [KIND|all] --clear\n"
	"       {} fault reset|reboot [--gpu N]\n\n"
	"make the simulated driver fail. KIND:\n"
	"  alloc            out of memory; with --delay only slow, with --error that error\n"
	"  launch           the next launch of a kernel gives an error that sticks\n"
	"  ecc              the same with an uncorrectable ECC error; NVML counts it.\n"
	"                   Contexts opened later are not hit\n"
	"  lost             the GPU fell off the bus, for CUDA and NVML\n"
	"  hang             calls take --delay longer; with --error they end with that\n"
	"  nvml             NVML's calls fail; with --delay they are only slow\n"
	"  list-managed     processes' figures have managed memory in them\n"
	"  mig-create       making a MIG instance fails: too few resources, or --error\n"
	"  mig-destroy      destroying one says that it is in use, or --error\n"
	"  mig-hold         somebody holds a handle: nothing there can be destroyed, nor\n"
	"                   MIG mode be changed; with --pid until that process ends\n"
	"  mig-time         making and destroying take --delay, or what they really do\n"
	"  mig-capacity     NVML's RemainingCapacity is wrong\n"
	"  mig-ids          GPU instance IDs count from the other end\n"
	"  mig-mode         a change of MIG mode stays pending until a reset\n"
	"  mig-clients      nor does it work while other programs have the driver open\n"
	"  vgpu             the GPU is a virtual machine's: its MIG cannot be managed\n\n"
	"reset resets GPUs: processes lose them, MIG instances are gone, a pending MIG\n"
	"mode becomes the current one. reboot does so with all processes; from Hopper on,\n"
	"MIG mode is off then.\n\n"
	"Options:\n"
	"  --gpu N          only on this GPU, by index (default: any)\n"
	"  --instance ID    only on this GPU instance of it\n"
	"  --pid PID        only for this process\n"
	"  --call NAME      only this function, e.g. cuMemAlloc_v2\n"
	"  --skip N         let N calls pass first\n"
	"  --count N        N calls fail (default: until cleared)\n"
	"  --for SECONDS    it clears itself after that\n"
	"  --delay SECONDS  how long a call takes\n"
	"  --error N        the number to return (CUresult; with nvml, mig-*: nvmlReturn_t)\n"
	"  --after          with mig-create, mig-destroy: it is done, and then it fails\n"
	"  --clear          no more faults of this kind; without KIND of any\n"
	"  --json           print what was set as JSON, errors too\n\n"
	"Examples:\n  {} fault alloc --gpu 0 --count 1\n"
	"  {} fault mig-create --call nvmlGpuInstanceCreateComputeInstance --count 1\n";

#define KINDS_TEXT                                                                             \
	"one of alloc, launch, ecc, lost, hang, nvml, list-managed, mig-create, mig-destroy, " \
	"mig-hold, mig-time, mig-capacity, mig-ids, mig-mode, mig-clients, vgpu, reset, reboot"

/* An event that is not a fault, but happens at once. Beyond all numbers of faults. */
enum {
	ACTION_RESET = WIRE_FAULTS + 1,
	ACTION_REBOOT,
};

static const char *const kinds[] = {
	[WIRE_FAULT_ALLOC] = "alloc",
	[WIRE_FAULT_LAUNCH] = "launch",
	[WIRE_FAULT_ECC] = "ecc",
	[WIRE_FAULT_LOST] = "lost",
	[WIRE_FAULT_HANG] = "hang",
	[WIRE_FAULT_NVML] = "nvml",
	[WIRE_FAULT_MIG_DESTROY] = "mig-destroy",
	[WIRE_FAULT_LIST_MANAGED] = "list-managed",
	[WIRE_FAULT_MIG_CREATE] = "mig-create",
	[WIRE_FAULT_MIG_HOLD] = "mig-hold",
	[WIRE_FAULT_MIG_TIME] = "mig-time",
	[WIRE_FAULT_MIG_CAPACITY] = "mig-capacity",
	[WIRE_FAULT_MIG_IDS] = "mig-ids",
	[WIRE_FAULT_MIG_MODE] = "mig-mode",
	[WIRE_FAULT_MIG_CLIENTS] = "mig-clients",
	[WIRE_FAULT_VGPU] = "vgpu",
	[WIRE_FAULTS] = "all",
	[ACTION_RESET] = "reset",
	[ACTION_REBOOT] = "reboot",
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
	error_hint(err, KINDS_TEXT);
	return -EXIT_CODE_USAGE;
}

static int count_parse(const char *option, uint64_t least, uint64_t max, uint32_t *ret,
		       struct error *err)
{
	uint64_t value;
	int status = units_parse_count(optarg, option, least, max, &value, err);

	if (status == 0)
		*ret = (uint32_t)value;
	return status;
}

static int by_name(const void *name, const void *entry)
{
	return strcmp(name, *(const char *const *)entry);
}

/* A fault of a function that no driver has would hit nothing. */
static int call_parse(const char *name, struct wire_fault_set *set, struct error *err)
{
	char newer[WIRE_NAME_MAX + 4];

	if (strlen(name) < sizeof(set->call) &&
	    bsearch(name, call_names, call_name_count, sizeof(call_names[0]), by_name)) {
		snprintf(set->call, sizeof(set->call), "%s", name);
		return 0;
	}
	error_set(err, EXIT_CODE_USAGE, "--call: no simulated driver has a function '%.64s'", name);
	snprintf(newer, sizeof(newer), "%.*s_v2", WIRE_NAME_MAX, name);
	error_hint(err, "for example: --call %s",
		   bsearch(newer, call_names, call_name_count, sizeof(call_names[0]), by_name)
			   ? newer
			   : "cuMemAlloc_v2");
	return -EXIT_CODE_USAGE;
}

static int pid_parse(struct wire_fault_set *set, struct error *err)
{
	int rc = count_parse("--pid", 1, INT32_MAX, (uint32_t *)&set->pid, err);

	if (rc < 0 || set->clear || kill(set->pid, 0) == 0 || errno != ESRCH)
		return rc;
	error_set(err, EXIT_CODE_USAGE, "--pid: there is no process %d", set->pid);
	error_hint(err, "`%s stat` shows the processes that use this host's GPUs", verb_program());
	return -EXIT_CODE_USAGE;
}

static int for_parse(struct wire_fault_set *set, struct error *err)
{
	int rc = units_parse_seconds(optarg, "--for", &set->for_ns, err);

	if (rc < 0 || set->for_ns)
		return rc;
	error_set(err, EXIT_CODE_USAGE, "--for: '%.32s' leaves the fault no time", optarg);
	error_hint(err, "for example: --for 2, or leave it out for a fault until --clear");
	return -EXIT_CODE_USAGE;
}

/* Behind --gpu or before it: the two are put together when all options are read. */
#define NO_INSTANCE_GIVEN UINT32_MAX

static int option_apply(int option, struct wire_fault_set *set, uint32_t *instance,
			struct error *err)
{
	switch (option) {
	case 'i':
		return count_parse("--instance", 0, WIRE_NO_INSTANCE - 1, instance, err);
	case 'a':
		set->after = 1;
		return 0;
	case 'g':
		set->any_device = 0;
		return count_parse("--gpu", 0, WIRE_GPUS_MAX - 1, &set->device, err);
	case 'p':
		return pid_parse(set, err);
	case 'e':
		return count_parse("--error", 0, 9999, (uint32_t *)&set->error, err);
	case 's':
		return count_parse("--skip", 0, UINT32_MAX, &set->skip, err);
	case 'n':
		return count_parse("--count", 1, UINT32_MAX, &set->count, err);
	case 'd':
		return units_parse_seconds(optarg, "--delay", &set->delay_ns, err);
	case 'f':
		return for_parse(set, err);
	case 'c':
		return call_parse(optarg, set, err);
	case 'x':
		set->clear = 1;
		return 0;
	case 'j':
		return 0;
	default:
		return -EXIT_CODE_USAGE;
	}
}

/* The options that go together; sets the device. */
static int order_check(struct wire_fault_set *set, uint32_t instance, struct error *err)
{
	bool is_change =
		set->fault == WIRE_FAULT_MIG_CREATE || set->fault == WIRE_FAULT_MIG_DESTROY;

	/* A reset happens at once: the GPU is all that it can be told. */
	if (set->fault > WIRE_FAULTS &&
	    (set->clear || set->pid || set->call[0] || set->skip || set->count || set->for_ns ||
	     set->delay_ns || set->error || set->after || instance != NO_INSTANCE_GIVEN))
		return error_set(err, EXIT_CODE_USAGE, "fault: %s takes no option but --gpu",
				 kinds[set->fault]);
	if (set->fault == WIRE_FAULTS && !set->clear)
		return error_set(err, EXIT_CODE_USAGE, "fault: 'all' goes with --clear only");
	if (set->fault == WIRE_FAULT_HANG && !set->clear && !set->delay_ns && !set->error)
		return error_set(err, EXIT_CODE_USAGE, "fault: hang needs --delay, e.g. --delay 2");
	if (set->after && !is_change)
		return error_set(err, EXIT_CODE_USAGE,
				 "fault: --after goes with mig-create and mig-destroy only");
	if (instance == NO_INSTANCE_GIVEN)
		return 0;
	if (set->any_device)
		return error_set(err, EXIT_CODE_USAGE,
				 "fault: --instance needs --gpu, e.g. --gpu 0 --instance %u",
				 instance);
	set->device = WIRE_DEVICE_MIG(set->device, instance, WIRE_NO_INSTANCE);
	return 0;
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
		{"help", no_argument, NULL, 'h'},        {"instance", required_argument, NULL, 'i'},
		{"after", no_argument, NULL, 'a'},       {0},
	};
	uint32_t instance = NO_INSTANCE_GIVEN;
	int option;

	opterr = 0;
	while ((option = getopt_long(argc, argv, "h", options, NULL)) != -1) {
		if (option == 'h')
			return 1;
		if (option == '?')
			return verb_bad_option(argv, err);
		int status = option_apply(option, set, &instance, err);
		if (status < 0)
			return status;
	}
	if (optind == argc && set->clear) {
		set->fault = WIRE_FAULTS;
		return order_check(set, instance, err);
	}
	if (optind == argc) {
		error_set(err, EXIT_CODE_USAGE, "fault: KIND is missing");
		error_hint(err, KINDS_TEXT);
		return -EXIT_CODE_USAGE;
	}
	if (optind + 1 != argc)
		return error_set(err, EXIT_CODE_USAGE, "fault: unexpected argument '%.64s'",
				 argv[optind + 1]);
	int status = kind_parse(argv[optind], set, err);
	return status < 0 ? status : order_check(set, instance, err);
}

static json_t *number_or_null(uint64_t number, bool given)
{
	return given ? json_integer((json_int_t)number) : json_null();
}

/* The settings; null: any, or for ever. */
static void fault_tell(const struct wire_fault_set *set)
{
	uint64_t gpu = wire_device_gpu(set->device);
	json_t *o = json_pack(
		"{s:s, s:b, s:o, s:o, s:o, s:I, s:o, s:I, s:I, s:o}", "fault", kinds[set->fault],
		"cleared", set->clear != 0, "gpu", number_or_null(gpu, !set->any_device), "pid",
		number_or_null((uint64_t)set->pid, set->pid != 0), "call",
		set->call[0] ? json_string_nocheck(set->call) : json_null(), "skip",
		(json_int_t)set->skip, "count", number_or_null(set->count, set->count != 0),
		"delay_ns", (json_int_t)set->delay_ns, "for_ns", (json_int_t)set->for_ns, "error",
		number_or_null((uint64_t)set->error, set->error != 0));

	if (wire_device_is_mig(set->device))
		json_object_set_new(o, "instance", json_integer(wire_device_gi(set->device)));
	if (set->after)
		json_object_set_new(o, "after", json_true());
	json_dumpf(o, stdout, JSON_COMPACT);
	putchar('\n');
	json_decref(o);
}

static int order_send(struct client *c, const struct wire_fault_set *set)
{
	struct wire_gpu_reset reset = {.head.type = WIRE_GPU_RESET,
				       .device = set->device,
				       .any_device = set->any_device,
				       .reboot = set->fault == ACTION_REBOOT};
	struct wire_head reply;

	if (set->fault > WIRE_FAULTS)
		return client_call(c, &reset, sizeof(reset), -1, &reply, sizeof(reply), NULL);
	return client_call(c, set, sizeof(*set), -1, &reply, sizeof(reply), NULL);
}

/* The host does not have what was named. */
static int device_missing(const struct client *c, wire_device device, bool json)
{
	uint32_t gpu = wire_device_gpu(device), count = client_host(c)->gpu_count;
	struct error err = {0};

	if (gpu < count) {
		error_set(&err, EXIT_CODE_USAGE, "fault: GPU %u has no GPU instance %u", gpu,
			  wire_device_gi(device));
		error_hint(&err, "carve sim stat shows those that it has");
	} else {
		error_set(&err, EXIT_CODE_USAGE, "fault: there is no GPU %u on this host", gpu);
		error_hint(&err, count > 1 ? "it has GPUs 0 to %u" : "it has GPU 0 alone",
			   count - 1);
	}
	return verb_fail(&err, json);
}

int verb_fault(int argc, char **argv)
{
	bool json = verb_wants_json(argc, argv);
	struct wire_fault_set set = {.head.type = WIRE_FAULT_SET, .any_device = 1};
	struct error err = {0};
	int status = arguments_parse(argc, argv, &set, &err);

	if (status < 0)
		return verb_fail(&err, json);
	if (status > 0)
		return verb_help(help);
	struct client *c = verb_host_open(json);
	if (!c)
		return EXIT_CODE_UNREACHABLE;
	int n = order_send(c, &set);
	if (n == -EPERM) {
		client_disconnect(c);
		error_set(&err, EXIT_CODE_NOT_PERMITTED,
			  "fault: this simulated host is another user's: only its owner and root "
			  "make "
			  "its driver fail");
		error_hint(&err, "`carve sim` starts a host of your own");
		return verb_fail(&err, json);
	}
	if (n == -ENODEV && !set.any_device) {
		int rc = device_missing(c, set.device, json);

		client_disconnect(c);
		return rc;
	}
	client_disconnect(c);
	if (n >= 0 && json)
		fault_tell(&set);
	return verb_report("fault", MIN(n, 0), json);
}
