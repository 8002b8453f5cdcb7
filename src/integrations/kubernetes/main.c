/* carve-kubernetes: what a cluster runs of carve beside carved. One word says which part. */
#include <curl/curl.h>
#include <errno.h>
#include <limits.h>
#include <locale.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/file.h"
#include "base/macros.h"
#include "base/options.h"
#include "base/text_escape.h"
#include "base/units.h"
#include "integrations/kubernetes/check/check.h"
#include "integrations/kubernetes/claim/reserve.h"
#include "integrations/kubernetes/controller/controller.h"
#include "integrations/kubernetes/node/calls.h"
#include "integrations/kubernetes/node/node.h"
#include "integrations/kubernetes/pod/follow.h"
#include "integrations/kubernetes/pod/run.h"

// NOLINTBEGIN(concurrency-mt-unsafe): all of this runs before there are threads.

#define DRIVER "gpu.carve.dev"
#define DRIVER_MAX 63
/* The period at which templates that no pod names are collected: each look costs a list of the pods
 * that have slices. */
#define COLLECT_SECONDS 3600
#define COLLECT_SECONDS_MAX 604800

// clang-format off
static const char help[] =
	"carve-kubernetes - GPU slices as devices of Kubernetes (1.36 and newer)\n"
	"\n"
	"usage: carve-kubernetes node [--node-name NAME] [--kubelet-dir DIR] [--cdi-dir DIR]\n"
	"                             [--front-dir DIR] [--hook-dir DIR] [--host SOCKET] [options]\n"
	"       carve-kubernetes controller [--namespace NAME] [options]\n"
	"       carve-kubernetes run [--pod-template FILE] [--image IMAGE] [--fraction N]\n"
	"                            [--namespace NAME] [options] [-- CMD [ARG]...]\n"
	"       carve-kubernetes template [--pod-template FILE] [--image IMAGE] [--namespace NAME]\n"
	"                            [options]\n"
	"       carve-kubernetes check [--json] [options]      (also: carve kubernetes check)\n"
	"\n"
	"node serves the kubelet of this node, beside a carved; carved --kubernetes does the same.\n"
	"controller makes the claim templates that pods name. The lease's holder acts.\n"
	"run has a pod run a command: its log is the output, its exit code the exit code.\n"
	"template checks a pod template, by the API server too where it answers, and prints it.\n"
	"check says what the cluster lacks; without --api it asks by kubectl.\n"
	"\n"
	"  --node-name NAME     this node's name in the cluster (also NODE_NAME; the host's name)\n"
	"  --kubelet-dir DIR    the kubelet's directory (/var/lib/kubelet)\n"
	"  --cdi-dir DIR        where the container runtime reads CDI specs (/var/run/cdi)\n"
	"  --front-dir DIR      carve's libraries, as the container runtime sees them (beside carve)\n"
	"  --hook-dir DIR       where carve-hook is, as the container runtime sees it: with it pods whose\n"
	"                       users are not root can use their slices\n"
	"  --host SOCKET        carved's socket (also CARVE_HOST)\n"
	"  --replicas N         slices of one GPU, at most: 1 to 1000 (as the node's label\n"
	"                       nvidia.com/gpu.replicas says; without it: no such limit)\n"
	"  --reserve-namespace NAME   make a pod there that holds each GPU with slices, for schedulers\n"
	"                       and device plugins that do not know DRA\n"
	"  --reserve-image IMAGE      the image of these pods: one with carve\n"
	"  --reserve-resource NAME    the resource that they hold (nvidia.com/gpu)\n"
	"  --reserve-label KEY=VALUE  a label of theirs\n"
	"  --namespace NAME     where the controller's lease is, or run's pod (also POD_NAMESPACE;\n"
	"                       carve, for run: default)\n"
	"  --collect-every SECONDS  controller: how often templates without pods are deleted (3600)\n"
	"  --collect-pods-after SECONDS  controller: delete pods of jobs that nobody has followed for that\n"
	"                       time (86400; 0: never)\n"
	"  --follow-every SECONDS  run: how often it marks its pod as followed (300; 0: never)\n"
	"  --pod-template FILE  the pod, but for its command, YAML or JSON: a pod, a PodTemplate, or\n"
	"                       basePodTemplate and queues.NAME.templateOverrides\n"
	"  --image IMAGE        its image (the template's)\n"
	"  --fraction N         0.5: half a GPU; 2: two whole ones (the template's)\n"
	"  --gpu-memory MIB     4096: that many MiB of one GPU, in place of --fraction\n"
	"  --env NAME=VALUE     a variable of the pod's first container; once for each\n"
	"  --name NAME          the pod's (a random one)\n"
	"  --state-file FILE    how far the pod is: a run that was killed is taken up with it\n"
	"  --log-anew           empty the file that the log goes to first\n"
	"  --grace SECONDS      the pod's grace period when a signal ends it (the template's)\n"
	"  --driver-name NAME   the name of the DRA driver (gpu.carve.dev)\n"
	"  --api URL            the API server (in a pod: its cluster's)\n"
	"  --token-file FILE    a token for it (in a pod: its service account's)\n"
	"  --ca-file FILE       the authority of its certificate (in a pod: its cluster's)\n"
	"  --json               print JSON\n"
	"  --help, --version\n"
	"\n"
	"example: carve-kubernetes node --node-name worker-1 --api http://127.0.0.1:8001\n";
// clang-format on

enum {
	OPTION_NODE = 256,
	OPTION_KUBELET,
	OPTION_CDI,
	OPTION_FRONT,
	OPTION_HOOK,
	OPTION_HOST,
	OPTION_REPLICAS,
	OPTION_RESERVE,
	OPTION_RESERVE_IMAGE,
	OPTION_RESERVE_RESOURCE,
	OPTION_RESERVE_LABEL,
	OPTION_DRIVER,
	OPTION_NAMESPACE,
	OPTION_COLLECT,
	OPTION_COLLECT_PODS,
	OPTION_FOLLOW,
	OPTION_TEMPLATE,
	OPTION_IMAGE,
	OPTION_FRACTION,
	OPTION_MEMORY,
	OPTION_ENV,
	OPTION_NAME,
	OPTION_STATE,
	OPTION_GRACE,
	OPTION_LOG_ANEW,
	OPTION_API,
	OPTION_TOKEN,
	OPTION_CA,
	OPTION_JSON,
	OPTION_HELP,
	OPTION_VERSION,
};

_Static_assert(OPTION_VERSION - OPTION_NODE < 64, "a bit for each option");

static const struct option options[] = {
	{"node-name", required_argument, NULL, OPTION_NODE},
	{"kubelet-dir", required_argument, NULL, OPTION_KUBELET},
	{"cdi-dir", required_argument, NULL, OPTION_CDI},
	{"front-dir", required_argument, NULL, OPTION_FRONT},
	{"hook-dir", required_argument, NULL, OPTION_HOOK},
	{"host", required_argument, NULL, OPTION_HOST},
	{"replicas", required_argument, NULL, OPTION_REPLICAS},
	{"reserve-namespace", required_argument, NULL, OPTION_RESERVE},
	{"reserve-image", required_argument, NULL, OPTION_RESERVE_IMAGE},
	{"reserve-resource", required_argument, NULL, OPTION_RESERVE_RESOURCE},
	{"reserve-label", required_argument, NULL, OPTION_RESERVE_LABEL},
	{"namespace", required_argument, NULL, OPTION_NAMESPACE},
	{"collect-every", required_argument, NULL, OPTION_COLLECT},
	{"driver-name", required_argument, NULL, OPTION_DRIVER},
	{"collect-pods-after", required_argument, NULL, OPTION_COLLECT_PODS},
	{"follow-every", required_argument, NULL, OPTION_FOLLOW},
	{"pod-template", required_argument, NULL, OPTION_TEMPLATE},
	{"image", required_argument, NULL, OPTION_IMAGE},
	{"fraction", required_argument, NULL, OPTION_FRACTION},
	{"env", required_argument, NULL, OPTION_ENV},
	{"gpu-memory", required_argument, NULL, OPTION_MEMORY},
	{"name", required_argument, NULL, OPTION_NAME},
	{"state-file", required_argument, NULL, OPTION_STATE},
	{"log-anew", no_argument, NULL, OPTION_LOG_ANEW},
	{"grace", required_argument, NULL, OPTION_GRACE},
	{"api", required_argument, NULL, OPTION_API},
	{"token-file", required_argument, NULL, OPTION_TOKEN},
	{"ca-file", required_argument, NULL, OPTION_CA},
	{"json", no_argument, NULL, OPTION_JSON},
	{"help", no_argument, NULL, OPTION_HELP},
	{"version", no_argument, NULL, OPTION_VERSION},
	{0},
};

struct arguments {
	struct node_options node;
	struct run_options run;
	const char *grace, *replicas, *collect, *collect_pods, *follow;
	const char *namespace;
	uint64_t taken; /* a bit for each option that was given */
	bool json;
};

static int fail(const struct error *err)
{
	char message[TEXT_ESCAPE_SIZE * sizeof(err->message) + 1];
	char hint[TEXT_ESCAPE_SIZE * sizeof(err->hint) + 1];

	/* Words of others are among it, such as the API server's. */
	fprintf(stderr, "carve-kubernetes: %s%s%s\n", text_escape(err->message, true, message),
		*err->hint ? "; " : "", text_escape(err->hint, true, hint));
	return err->code ? err->code : EXIT_CODE_FAILED;
}

static bool env_take(struct arguments *to, const char *entry, int *ret_code)
{
	const char *value = strchr(entry, '=');
	const size_t most = sizeof(to->run.env) / sizeof(to->run.env[0]);

	*ret_code = EXIT_CODE_USAGE;
	if (value && value != entry && to->run.env_count < most) {
		to->run.env[to->run.env_count++] = entry;
		return true;
	}
	if (to->run.env_count == most)
		fprintf(stderr, "carve-kubernetes: --env: there are more than %zu\n", most);
	else
		fprintf(stderr, "carve-kubernetes: --env: '%.64s' is no NAME=VALUE\n", entry);
	return false;
}

/* The field for the text of an option; NULL: it is kept otherwise. */
static const char **text_place(int option, struct arguments *to)
{
	const struct {
		int option;
		const char **place;
	} places[] = {
		{OPTION_NODE, &to->node.node},
		{OPTION_KUBELET, &to->node.kubelet_dir},
		{OPTION_CDI, &to->node.cdi_dir},
		{OPTION_FRONT, &to->node.front_dir},
		{OPTION_HOOK, &to->node.hook_dir},
		{OPTION_HOST, &to->node.host},
		{OPTION_REPLICAS, &to->replicas},
		{OPTION_RESERVE, &to->node.reserve_namespace},
		{OPTION_RESERVE_IMAGE, &to->node.reserve_image},
		{OPTION_RESERVE_RESOURCE, &to->node.reserve_resource},
		{OPTION_RESERVE_LABEL, &to->node.reserve_label},
		{OPTION_NAMESPACE, &to->namespace},
		{OPTION_COLLECT, &to->collect},
		{OPTION_COLLECT_PODS, &to->collect_pods},
		{OPTION_FOLLOW, &to->follow},
		{OPTION_DRIVER, &to->node.driver},
		{OPTION_TEMPLATE, &to->run.pod_template},
		{OPTION_IMAGE, &to->run.image},
		{OPTION_FRACTION, &to->run.fraction},
		{OPTION_MEMORY, &to->run.gpu_memory},
		{OPTION_NAME, &to->run.name},
		{OPTION_STATE, &to->run.state_file},
		{OPTION_GRACE, &to->grace},
		{OPTION_API, &to->node.api_url},
		{OPTION_TOKEN, &to->node.token},
		{OPTION_CA, &to->node.ca},
	};

	for (size_t i = 0; i < ARRAY_SIZE(places); i++)
		if (places[i].option == option)
			return places[i].place;
	return NULL;
}

/* True: go on. False: *ret_code is the exit code. */
static bool option_take(int option, struct arguments *to, int *ret_code, struct error *err)
{
	const char **place = text_place(option, to);

	*ret_code = EXIT_CODE_OK;
	if (option >= OPTION_NODE)
		to->taken |= UINT64_C(1) << (option - OPTION_NODE);
	if (place) {
		*place = optarg;
		return true;
	}
	switch (option) {
	case OPTION_LOG_ANEW:
		to->run.log_anew = true;
		return true;
	case OPTION_ENV:
		return env_take(to, optarg, ret_code);
	case OPTION_JSON:
		to->json = true;
		return true;
	case OPTION_HELP:
		fputs(help, stdout);
		return false;
	case OPTION_VERSION:
		puts("carve-kubernetes " CARVE_VERSION);
		return false;
	default:
		error_hint(err, "see carve-kubernetes --help");
		*ret_code = fail(err);
		return false;
	}
}

/* Names that Kubernetes takes: they stand in paths, too. */
static int name_check(const char *option, const char *name, size_t max, struct error *err)
{
	static const char allowed[] = "abcdefghijklmnopqrstuvwxyz0123456789.-";
	size_t length = strlen(name);

	if (length && length <= max && strspn(name, allowed) == length && name[0] != '.' &&
	    name[0] != '-' && !strstr(name, ".."))
		return 0;
	error_set(err, EXIT_CODE_USAGE, "%s: '%.64s' is no name for it", option, name);
	error_hint(err, "small letters, digits, '-' and '.', for example gpu-node-1");
	return -EXIT_CODE_USAGE;
}

static int replicas_read(const char *text, unsigned *ret, struct error *err)
{
	uint64_t replicas = 0;
	int rc = text ? units_parse_count(text, "--replicas", 1, NODE_REPLICAS_MAX, &replicas, err)
		      : 0;

	*ret = (unsigned)replicas;
	return rc;
}

static int node_main(struct node_options *to, const char *replicas, struct error *err)
{
	static char host_name[254];

	if (!to->node)
		to->node = getenv("NODE_NAME");
	if (!to->node && gethostname(host_name, sizeof(host_name) - 1) == 0)
		to->node = host_name;
	int rc = name_check("--node-name", to->node ? to->node : "", 253, err);
	if (rc == 0)
		rc = replicas_read(replicas, &to->replicas, err);
	if (rc == 0)
		rc = name_check("--driver-name", to->driver, DRIVER_MAX, err);
	return rc < 0 ? rc : node_run(to, err);
}

static int controller_main(const struct arguments *to, struct error *err)
{
	const char *namespace = to->namespace ? to->namespace : getenv("POD_NAMESPACE");
	struct controller_options controller = {
		.namespace = namespace ? namespace : "carve",
		.driver = to->node.driver,
		.api_url = to->node.api_url,
		.token = to->node.token,
		.ca = to->node.ca,
	};
	uint64_t collect_s = COLLECT_SECONDS, gone_s = FOLLOW_GONE_SECONDS;
	int rc = name_check("--namespace", controller.namespace, 63, err);

	if (rc == 0 && to->collect)
		rc = units_parse_count(to->collect, "--collect-every", 1, COLLECT_SECONDS_MAX,
				       &collect_s, err);
	if (rc == 0 && to->collect_pods)
		rc = units_parse_count(to->collect_pods, "--collect-pods-after", 0,
				       COLLECT_SECONDS_MAX, &gone_s, err);
	controller.collect_s = (unsigned)collect_s;
	controller.gone_s = (unsigned)gone_s;
	if (rc == 0)
		rc = name_check("--driver-name", controller.driver, DRIVER_MAX, err);
	return rc < 0 ? rc : controller_run(&controller, err);
}

static int check_main(const struct arguments *to, struct error *err)
{
	struct check_options check = {
		.driver = to->node.driver,
		.api_url = to->node.api_url,
		.token = to->node.token,
		.ca = to->node.ca,
		.json = to->json,
	};
	int rc = name_check("--driver-name", check.driver, DRIVER_MAX, err);

	return rc < 0 ? rc : check_run(&check, err);
}

static int grace_read(const char *text, long *ret, struct error *err)
{
	char *end;

	*ret = text ? strtol(text, &end, 10) : -1;
	if (!text || (*text >= '0' && *text <= '9' && !*end && *ret <= 7 * 86400L))
		return 0;
	error_set(err, EXIT_CODE_USAGE, "--grace: '%.32s' is no time", text);
	error_hint(err, "a number of seconds, such as 30");
	return -EXIT_CODE_USAGE;
}

/* The exit code, or negative with *err. */
static int run_main(const struct arguments *to, bool only_template, char *const *command,
		    struct error *err)
{
	const char *namespace = to->namespace ? to->namespace : getenv("POD_NAMESPACE");
	struct run_options run = to->run;

	run.namespace = namespace ? namespace : "default";
	run.job = getenv("CARVE_JOB_ID");
	run.queue = getenv("CARVE_JOB_QUEUE");
	run.command = command;
	run.api_url = to->node.api_url;
	run.token = to->node.token;
	run.ca = to->node.ca;
	uint64_t follow_s = FOLLOW_SECONDS;
	int rc = name_check("--namespace", run.namespace, 63, err);
	if (rc == 0 && run.name)
		rc = name_check("--name", run.name, 63, err);
	if (rc == 0)
		rc = grace_read(to->grace, &run.grace_s, err);
	if (rc == 0 && to->follow)
		rc = units_parse_count(to->follow, "--follow-every", 0, FOLLOW_SECONDS_MAX,
				       &follow_s, err);
	run.follow_s = (unsigned)follow_s;
	if (rc == 0 && run.fraction && run.gpu_memory)
		rc = error_set(err, EXIT_CODE_USAGE,
			       "--fraction and --gpu-memory exclude each other");
	return rc < 0 ? rc : only_template ? run_template(&run, err) : run_pod(&run, err);
}

/* ---- parts -------------------------------------------------------------------------------- */

enum {
	PART_NODE = 1,
	PART_CONTROLLER = 2,
	PART_RUN = 4,
	PART_TEMPLATE = 8,
	PART_CHECK = 16,
	PART_HOLD = 32,
};

static const struct {
	const char *name;
	unsigned bit;
} parts[] = {
	{"node", PART_NODE},         {"controller", PART_CONTROLLER}, {"run", PART_RUN},
	{"template", PART_TEMPLATE}, {"check", PART_CHECK},           {"hold", PART_HOLD},
};

#define PARTS "node, controller, run, template or check"

/* 0: there is no such part. */
static unsigned part_bit(const char *name)
{
	for (size_t i = 0; i < ARRAY_SIZE(parts); i++)
		if (!strcmp(parts[i].name, name))
			return parts[i].bit;
	return 0;
}

/* The parts that an option is for. */
static unsigned option_parts(int option)
{
	switch (option) {
	case OPTION_NODE:
	case OPTION_KUBELET:
	case OPTION_CDI:
	case OPTION_FRONT:
	case OPTION_HOOK:
	case OPTION_HOST:
	case OPTION_REPLICAS:
	case OPTION_RESERVE:
	case OPTION_RESERVE_IMAGE:
	case OPTION_RESERVE_RESOURCE:
	case OPTION_RESERVE_LABEL:
		return PART_NODE;
	case OPTION_COLLECT:
	case OPTION_COLLECT_PODS:
		return PART_CONTROLLER;
	case OPTION_NAMESPACE:
		return PART_CONTROLLER | PART_RUN | PART_TEMPLATE;
	case OPTION_TEMPLATE:
	case OPTION_IMAGE:
	case OPTION_FRACTION:
	case OPTION_MEMORY:
	case OPTION_ENV:
	case OPTION_NAME:
		return PART_RUN | PART_TEMPLATE;
	case OPTION_FOLLOW:
	case OPTION_STATE:
	case OPTION_LOG_ANEW:
	case OPTION_GRACE:
		return PART_RUN;
	case OPTION_JSON:
		return PART_CHECK | PART_TEMPLATE;
	case OPTION_DRIVER:
		return PART_NODE | PART_CONTROLLER | PART_CHECK;
	default:
		return PART_NODE | PART_CONTROLLER | PART_RUN | PART_TEMPLATE | PART_CHECK;
	}
}

/* An option of another part would count for nothing. */
static int options_check(const char *part, uint64_t taken, struct error *err)
{
	for (const struct option *o = options; o->name; o++)
		if (taken >> (o->val - OPTION_NODE) & 1 && !(option_parts(o->val) & part_bit(part)))
			return error_set(err, EXIT_CODE_USAGE, "--%s does not go with %s", o->name,
					 part);
	return 0;
}

static int reserve_options_check(const struct node_options *node, uint64_t taken, struct error *err)
{
	for (const struct option *o = options; o->name && !node->reserve_namespace; o++)
		if (o->val >= OPTION_RESERVE_IMAGE && o->val <= OPTION_RESERVE_LABEL &&
		    taken >> (o->val - OPTION_NODE) & 1)
			return error_set(err, EXIT_CODE_USAGE,
					 "--%s only goes with --reserve-namespace", o->name);
	return 0;
}

static int file_check(const char *option, const char *path, struct error *err)
{
	return !path || access(path, R_OK) == 0 ? 0
						: error_set(err, EXIT_CODE_USAGE, "%s %.200s: %s",
							    option, path, strerrordesc_np(errno));
}

/* How far the pod is could not be noted: a run that was killed would make a second pod. */
static int state_file_check(const char *path, struct error *err)
{
	char dir[PATH_MAX];
	const char *slash = strrchr(path, '/');

	if (!*path || strlen(path) >= sizeof(dir) - 8)
		return error_set(err, EXIT_CODE_USAGE, "--state-file: the path is %s",
				 *path ? "too long" : "empty");
	snprintf(dir, sizeof(dir), "%.*s", slash ? (int)(slash - path) + 1 : 1, slash ? path : ".");
	return access(dir, W_OK | X_OK) == 0
		       ? 0
		       : error_set(err, EXIT_CODE_USAGE, "--state-file %.200s: %s", path,
				   strerrordesc_np(errno));
}

/* A pod that is taken up again outlives a token file that is away for a moment. */
static int files_check(const struct arguments *to, struct error *err)
{
	if (to->run.state_file)
		return state_file_check(to->run.state_file, err);
	int rc = file_check("--token-file", to->node.token, err);
	return rc < 0 ? rc : file_check("--ca-file", to->node.ca, err);
}

/* `words`: the part and what stands behind it. */
static int words_check(int count, char *const *words, const struct arguments *to, struct error *err)
{
	const char *part = count > 0 ? words[0] : "";
	int rc = 0;

	if (!*part)
		rc = error_set(err, EXIT_CODE_USAGE, "say which part to run: %s", PARTS);
	else if (!part_bit(part))
		rc = error_set(err, EXIT_CODE_USAGE, "'%.64s' is no part; say which to run: %s",
			       part, PARTS);
	else if (count > 1 && part_bit(part) != PART_RUN)
		rc = error_set(err, EXIT_CODE_USAGE, "%s: '%.64s' is one word too many", part,
			       words[1]);
	if (rc == 0)
		rc = options_check(part, to->taken, err);
	if (rc == 0)
		rc = reserve_options_check(&to->node, to->taken, err);
	if (rc < 0)
		error_hint(err, "carve-kubernetes --help");
	return rc < 0 ? rc : files_check(to, err);
}

static int part_main(const char *part, const struct arguments *to, char *const *command,
		     struct error *err)
{
	struct node_options node = to->node;

	return !strcmp(part, "node")         ? node_main(&node, to->replicas, err)
	       : !strcmp(part, "controller") ? controller_main(to, err)
	       : !strcmp(part, "run")        ? run_main(to, false, command, err)
	       : !strcmp(part, "template")   ? run_main(to, true, command, err)
					     : check_main(to, err);
}

int main(int argc, char **argv)
{
	struct arguments to = {.node = {.driver = DRIVER,
					.kubelet_dir = "/var/lib/kubelet",
					.cdi_dir = "/var/run/cdi",
					.reserve_resource = "nvidia.com/gpu"}};
	struct error err = {0};
	char workers[16];
	int option, code;

	setlocale(LC_CTYPE, "C.UTF-8");
	standard_descriptors_hold();
	signal(SIGCHLD, SIG_DFL);
	signal(SIGPIPE, SIG_IGN);
	signal(SIGXFSZ, SIG_IGN);
	(void)snprintf(workers, sizeof(workers), "%u", CALLS_THREADS);
	setenv("UV_THREADPOOL_SIZE", workers, 1);
	while ((option = options_next(argc, argv, options, &err)) != -1)
		if (!option_take(option, &to, &code, &err))
			return code;
	const char *part = optind < argc ? argv[optind] : "";
	if (words_check(argc - optind, argv + optind, &to, &err) < 0)
		return fail(&err);
	if (!strcmp(part, "hold"))
		return reserve_pod_run();
	if (curl_global_init(CURL_GLOBAL_DEFAULT) != 0)
		return EXIT_CODE_FAILED;
	int rc = part_main(part, &to, argv + optind + 1, &err);
	code = rc >= 0 ? rc : err.message[0] ? fail(&err) : EXIT_CODE_FAILED;
	curl_global_cleanup();
	return code;
}

// NOLINTEND(concurrency-mt-unsafe)
