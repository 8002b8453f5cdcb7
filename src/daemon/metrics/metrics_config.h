/* The key `metrics` of carved.json: where carve-metrics listens, and who may see all sessions. The
 * daemon and carve-metrics read it by these functions. Pure. With examples:
 *
 * - "listen": "127.0.0.1:9400", "[::1]:9400", or with "tls" "0.0.0.0:9400"
 * - "tls": {"cert": FILE, "key": FILE, "client_ca": FILE}
 * - "token_file": FILE, whose first line a reader has to send ("Authorization: Bearer TOKEN")
 * - "readers": the group whose members see all sessions on the Unix socket (carve-metrics)
 * - "job_mapping_dir": DIRECTORY for dcgm-exporter (job_mapping.h)
 */
#pragma once

#include <jansson.h>
#include <stdbool.h>

#include "daemon/doors/door_config.h"

struct error;

#define METRICS_READERS_DEFAULT "carve-metrics"

struct metrics_config {
	struct door_config door;
	char readers[64];
	char job_mapping_dir[DOOR_PATH_SIZE];
};

extern const struct metrics_config metrics_config_default;

/* Reads the key's value. 0 with *ret; negative with *err, which names the key and a right value. */
int metrics_config_read(const json_t *value, struct metrics_config *ret, struct error *err);
/* Whether a reader at the TCP socket proves who it is. A reader that does not sees no session. */
static inline bool metrics_config_proves(const struct metrics_config *config)
{
	return config->door.client_ca[0] || config->door.token_file[0];
}
