/* carve-metrics: hands carved's metrics to Prometheus by TCP. carved itself listens at Unix sockets
 * alone, and has neither a network nor TLS. */
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "daemon/host/log.h"
#include "integrations/metrics/exporter.h"

#define CONFIG_DEFAULT "/etc/carve/carved.json"
#define SOCKET_DEFAULT "/run/carve/carved.sock"

// clang-format off
static const char help[] =
	"carve-metrics - carved's metrics for Prometheus, by TCP\n"
	"\n"
	"usage: carve-metrics [--config FILE] [--host SOCKET]\n"
	"\n"
	"The key metrics of the configuration says where it listens. Without metrics.listen it\n"
	"ends at once. SIGHUP has it read the file, the certificates and the token again.\n"
	"\n"
	"  --config FILE   the configuration of carved (" CONFIG_DEFAULT ")\n"
	"  --host SOCKET   carved's socket (" SOCKET_DEFAULT ")\n"
	"  --check         only say whether the configuration and its files are right\n"
	"  --help, --version\n"
	"\n"
	"A reader sees sessions and users only if it proves who it is: by a certificate\n"
	"(metrics.tls.client_ca) or a token (metrics.token_file). Others see sums of GPUs.\n"
	"\n"
	"example: carve-metrics --config /etc/carve/carved.json --check\n";
// clang-format on

enum { OPTION_CONFIG = 256, OPTION_HOST, OPTION_CHECK };

static const struct option options[] = {
	{"config", required_argument, NULL, OPTION_CONFIG},
	{"host", required_argument, NULL, OPTION_HOST},
	{"check", no_argument, NULL, OPTION_CHECK},
	{"help", no_argument, NULL, 'h'},
	{"version", no_argument, NULL, 'v'},
	{0},
};

static int fail(const struct error *err)
{
	fprintf(stderr, "carve-metrics: %s\n", err->message);
	return err->code;
}

static int usage(const char *what, const char *word)
{
	fprintf(stderr, "carve-metrics: %s '%s'; see carve-metrics --help\n", what, word);
	return EXIT_CODE_USAGE;
}

/* Returns the exit code; -1: it is to begin anew, as the configuration names another address. */
static int run(struct exporter *e, bool checks)
{
	struct error err = {0};

	if (exporter_load(e, &err) < 0)
		return fail(&err);
	if (checks || !e->config.listen[0]) {
		printf("carve-metrics: %s\n",
		       !e->config.listen[0]
			       ? "metrics.listen is not set: readers have the Unix socket alone"
			       : "the configuration is right");
		return 0;
	}
	int rc = exporter_run(e, &err);
	if (rc < 0)
		return fail(&err);
	return rc > 0 ? -1 : 0;
}

// NOLINTBEGIN(concurrency-mt-unsafe): one thread
int main(int argc, char **argv)
{
	static struct exporter exporter = {
		.config_path = CONFIG_DEFAULT, .socket = SOCKET_DEFAULT, .listen_fd = -1};
	struct exporter *e = &exporter;
	bool checks = false;

	opterr = 0;
	for (int option; (option = getopt_long(argc, argv, "hv", options, NULL)) != -1;) {
		switch (option) {
		case OPTION_CONFIG:
			e->config_path = optarg;
			break;
		case OPTION_HOST:
			e->socket = optarg;
			break;
		case OPTION_CHECK:
			checks = true;
			break;
		case 'h':
			fputs(help, stdout);
			return 0;
		case 'v':
			puts("carve-metrics " CARVE_VERSION);
			return 0;
		default:
			return usage("there is no option like", argv[optind - 1]);
		}
	}
	if (optind < argc)
		return usage("it takes no argument like", argv[optind]);
	signal(SIGPIPE, SIG_IGN);
	int rc = run(e, checks);
	if (rc >= 0)
		return rc;
	execv("/proc/self/exe", argv);
	return EXIT_CODE_FAILED;
}
// NOLINTEND(concurrency-mt-unsafe)
