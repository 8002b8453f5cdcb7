/* carve-metrics: hands carved's metrics to Prometheus by TCP. carved itself listens at Unix sockets
 * alone, and has neither a network nor TLS. integrations/door has the parts that are carve-web's,
 * too.
 */
#include "integrations/metrics/exporter.h"

#include <errno.h>

#include "base/error.h"
#include "integrations/metrics/reader.h"
#include "integrations/metrics/upstream.h"

/* Connections at a time. */
#define READERS_MAX 64u

// clang-format off
static const char help[] =
	"carve-metrics - carved's metrics for Prometheus, by TCP\n"
	"\n"
	"usage: carve-metrics [--config FILE] [--host SOCKET]\n"
	"\n"
	"The key metrics of the configuration says where it listens. Without metrics.listen it\n"
	"ends at once. SIGHUP has it read the file, the certificates and the token again.\n"
	"\n"
	"  --config FILE   the configuration of carved (/etc/carve/carved.json)\n"
	"  --host SOCKET   carved's socket (/run/carve/carved.sock)\n"
	"  --check         only say whether the configuration and its files are right\n"
	"  --help, --version\n"
	"\n"
	"A reader sees sessions and users only if it proves who it is: by a certificate\n"
	"(metrics.tls.client_ca) or a token (metrics.token_file). Others see sums of GPUs.\n"
	"\n"
	"example: carve-metrics --config /etc/carve/carved.json --check\n";
// clang-format on

static int config_read(const json_t *value, struct door_config *ret, struct error *err)
{
	struct metrics_config config;
	int rc = metrics_config_read(value, &config, err);

	if (rc == 0)
		*ret = config.door;
	return rc;
}

static int start(struct door *door)
{
	struct exporter *e = exporter_of(door);

	e->upstream = upstream_new(e);
	return e->upstream ? 0 : -ENOMEM;
}

static void stop(struct door *door)
{
	upstream_stop(exporter_of(door)->upstream);
}

static void end(struct door *door)
{
	upstream_free(exporter_of(door)->upstream);
}

static void tick(struct door *door)
{
	upstream_tick(exporter_of(door)->upstream);
}

static const struct door_kind kind = {
	.key = "metrics",
	.help = help,
	.unset = "readers have the Unix socket alone",
	.config_read = config_read,
	.visitor_size = READER_SIZE,
	.visitors_max = READERS_MAX,
	.proof_ns = READER_PROOF_NS,
	.start = start,
	.stop = stop,
	.free = end,
	.tick = tick,
	.visitor_go_on = reader_go_on,
	.visitor_gone = reader_gone,
	.visitor_is_over = reader_is_over,
};

struct exporter exporter_program = {.door = {.kind = &kind}};
