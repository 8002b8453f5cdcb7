#include <getopt.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "host/run.h"
#include "host/spec.h"
#include "host/verbs.h"

#define ENV_MAX 64

static const char help[] = "usage: {} run [--gpus SPEC] [--driver VERSION] [--shared] [--env "
			   "NAME=VALUE]... [--] CMD...\n\n"
			   "Runs CMD (default: $SHELL) on a simulated host with these GPUs. SPEC "
			   "is MODEL[:COUNT][+mig],...\n"
			   "(default: " SPEC_DEFAULT
			   "). Inside a simulated host, without --gpus and --driver, CMD runs on\n"
			   "that same host. With --shared programs of other users may join it. "
			   "In VALUE, {host} stands for the host's directory.\n\n"
			   "Example:\n  {} run --gpus h100-80gb:2,a100-40gb+mig -- nvidia-smi -L\n";

struct arguments {
	const char *gpus, *driver;
	char *env[ENV_MAX];
	size_t env_count;
	bool shared, help;
};

static int env_add(struct arguments *a, char *assignment, struct error *err)
{
	const char *equals = strchr(assignment, '=');

	if (!equals || equals == assignment) {
		error_set(err, EXIT_CODE_USAGE, "--env '%s': not NAME=VALUE", assignment);
		error_hint(err, "e.g. --env MODE=test");
		return -EXIT_CODE_USAGE;
	}
	if (a->env_count == ENV_MAX)
		return error_set(err, EXIT_CODE_USAGE, "more than %d --env", ENV_MAX);
	a->env[a->env_count++] = assignment;
	return 0;
}

static int arguments_parse(int argc, char **argv, struct arguments *a, struct error *err)
{
	static const struct option options[] = {
		{"gpus", required_argument, NULL, 'g'}, {"driver", required_argument, NULL, 'd'},
		{"env", required_argument, NULL, 'e'},  {"shared", no_argument, NULL, 's'},
		{"help", no_argument, NULL, 'h'},       {0},
	};
	int option;

	opterr = 0;
	while ((option = getopt_long(argc, argv, "+h", options, NULL)) != -1) {
		switch (option) {
		case 'g':
			a->gpus = optarg;
			break;
		case 'd':
			a->driver = optarg;
			break;
		case 'e':
			if (env_add(a, optarg, err) < 0)
				return -EXIT_CODE_USAGE;
			break;
		case 's':
			a->shared = true;
			break;
		case 'h':
			a->help = true;
			break;
		default:
			return verb_bad_option(argv, err);
		}
	}
	return 0;
}

/* The directory of the host that this process is inside of and that still answers, else NULL. */
static const char *host_around(void)
{
	char path[PATH_MAX];
	const char *host = getenv(WIRE_ENV_HOST);

	if (!host || !host[0])
		return NULL;
	snprintf(path, sizeof(path), "%s/%s", host, WIRE_SOCKET_NAME);
	return access(path, F_OK) == 0 ? host : NULL;
}

int verb_run(int argc, char **argv)
{
	static struct spec spec;
	struct arguments a = {0};
	struct error err = {0};
	char *shell[] = {getenv("SHELL"), NULL};

	if (arguments_parse(argc, argv, &a, &err) < 0)
		return verb_fail(&err, false);
	if (a.help)
		return verb_help(help);
	if (!shell[0])
		shell[0] = "/bin/sh";
	struct run_options o = {
		.program = verb_program(),
		.shared = a.shared,
		.join = a.gpus || a.driver || a.shared ? NULL : host_around(),
		.spec = &spec,
		.driver = spec_driver_find(a.driver ? a.driver : SPEC_DRIVER_DEFAULT, &err),
		.env = a.env,
		.env_count = a.env_count,
		.command = optind < argc ? argv + optind : shell,
	};
	if (!o.driver || spec_parse(a.gpus ? a.gpus : SPEC_DEFAULT, &spec, &err) < 0)
		return verb_fail(&err, false);
	return run(&o);
}
