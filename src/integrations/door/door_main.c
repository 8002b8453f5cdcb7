/* The program of a door: its options, and its end. */
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "daemon/host/log.h"
#include "integrations/door/door.h"

#define CONFIG_DEFAULT "/etc/carve/carved.json"
#define SOCKET_DEFAULT "/run/carve/carved.sock"

enum { OPTION_CONFIG = 256, OPTION_HOST, OPTION_CHECK };

static const struct option options[] = {
	{"config", required_argument, NULL, OPTION_CONFIG},
	{"host", required_argument, NULL, OPTION_HOST},
	{"check", no_argument, NULL, OPTION_CHECK},
	{"help", no_argument, NULL, 'h'},
	{"version", no_argument, NULL, 'v'},
	{0},
};

static int fail(const struct door *door, const struct error *err)
{
	fprintf(stderr, "carve-%s: %s\n", door->kind->key, err->message);
	return err->code;
}

static int usage(const struct door *door, const char *what, const char *word)
{
	const char *key = door->kind->key;

	fprintf(stderr, "carve-%s: %s '%s'; see carve-%s --help\n", key, what, word, key);
	return EXIT_CODE_USAGE;
}

/* Returns the exit code; -1: it is to begin anew, as the configuration names another address. */
static int run(struct door *door, bool checks)
{
	const struct door_kind *kind = door->kind;
	struct error err = {0};

	if (door_load(door, &err) < 0)
		return fail(door, &err);
	if (!door->config.listen[0]) {
		printf("carve-%s: %s.listen is not set: %s\n", kind->key, kind->key, kind->unset);
		return 0;
	}
	if (checks) {
		printf("carve-%s: the configuration is right\n", kind->key);
		return 0;
	}
	int rc = door_run(door, &err);
	if (rc < 0)
		return fail(door, &err);
	return rc > 0 ? -1 : 0;
}

// NOLINTBEGIN(concurrency-mt-unsafe): one thread
int door_main(struct door *door, int argc, char **argv)
{
	bool checks = false;

	door->config_path = CONFIG_DEFAULT;
	door->socket = SOCKET_DEFAULT;
	door->listen_fd = -1;
	opterr = 0;
	for (int option; (option = getopt_long(argc, argv, "hv", options, NULL)) != -1;) {
		switch (option) {
		case OPTION_CONFIG:
			door->config_path = optarg;
			break;
		case OPTION_HOST:
			door->socket = optarg;
			break;
		case OPTION_CHECK:
			checks = true;
			break;
		case 'h':
			fputs(door->kind->help, stdout);
			return 0;
		case 'v':
			printf("carve-%s %s\n", door->kind->key, CARVE_VERSION);
			return 0;
		default:
			return usage(door, "there is no option like", argv[optind - 1]);
		}
	}
	if (optind < argc)
		return usage(door, "it takes no argument like", argv[optind]);
	signal(SIGPIPE, SIG_IGN);
	int rc = run(door, checks);
	if (rc >= 0)
		return rc;
	execv("/proc/self/exe", argv);
	return EXIT_CODE_FAILED;
}
// NOLINTEND(concurrency-mt-unsafe)
