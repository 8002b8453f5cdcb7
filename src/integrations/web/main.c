/* carve-web: serves carved's page to browsers by TCP. It carries bytes, and carved decides who asks
 * and what is answered (docs/dev/adr/0030-web-door.md). */
#include "base/error.h"
#include "daemon/doors/web_config.h"
#include "integrations/door/door.h"
#include "integrations/web/relay.h"

/* Connections at a time, of some 40 browsers, and from one host elsewhere, of a few browsers. */
#define RELAYS_MAX 256u
#define RELAYS_OF_ORIGIN 32u

// clang-format off
static const char help[] =
	"carve-web - carved's page for browsers, by TCP\n"
	"\n"
	"usage: carve-web [--config FILE] [--host SOCKET]\n"
	"\n"
	"The key web of the configuration says where it listens. Without web.listen it ends\n"
	"at once. SIGHUP has it read the file and the certificates again.\n"
	"\n"
	"  --config FILE   the configuration of carved (/etc/carve/carved.json)\n"
	"  --host SOCKET   carved's socket (/run/carve/carved.sock)\n"
	"  --check         only say whether the configuration and its files are right\n"
	"  --help, --version\n"
	"\n"
	"It runs as the user web.user (carve-web). A browser sees nothing until it has opened\n"
	"a link that `carve web` printed. It sees what that user sees then, and changes nothing.\n"
	"\n"
	"example: carve-web --config /etc/carve/carved.json --check\n";
// clang-format on

static int config_read(const json_t *value, struct door_config *ret, struct error *err)
{
	struct web_config config;
	int rc = web_config_read(value, &config, err);

	if (rc == 0)
		*ret = config.door;
	return rc;
}

static int start(struct door *door)
{
	return 0;
}

static void nothing(struct door *door)
{
}

int main(int argc, char **argv)
{
	const struct door_kind kind = {
		.key = "web",
		.help = help,
		.unset = "the page is at the Unix socket alone",
		.config_read = config_read,
		.visitor_size = relay_size,
		.signs_in = true,
		.visitors_max = RELAYS_MAX,
		.origin_max = RELAYS_OF_ORIGIN,
		.proof_ns = RELAY_PROOF_NS,
		.start = start,
		.stop = nothing,
		.free = nothing,
		.tick = nothing,
		.visitor_go_on = relay_go_on,
		.visitor_gone = relay_gone,
		.visitor_is_over = relay_is_over,
	};
	static struct door door;

	door.kind = &kind;
	return door_main(&door, argc, argv);
}
