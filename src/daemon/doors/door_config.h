/* Where a door listens. Doors are the programs that hand carved's answers on by TCP: carve-metrics
 * and carve-web. The keys `metrics` and `web` of carved.json have this in common:
 *
 * - "listen": "127.0.0.1:9400", "[::1]:9400", or with "tls" "0.0.0.0:9400"
 * - "tls": {"cert": FILE, "key": FILE}
 *
 * The daemon and the doors read it by these functions. Pure. */
#pragma once

#include <netinet/in.h>
#include <stdbool.h>

#include "base/record.h"

struct error;

#define DOOR_PATH_SIZE 256

#define DOOR_LISTEN_TAKES "an address and a port such as \"127.0.0.1:9400\" or \"[::1]:9400\""

struct door_config {
	char listen[64]; /* "": nowhere */
	char cert[DOOR_PATH_SIZE], key[DOOR_PATH_SIZE];
	/* Visitors prove by these who they are; "": they need not. */
	char client_ca[DOOR_PATH_SIZE];  /* signs their certificates */
	char token_file[DOOR_PATH_SIZE]; /* its first line is a token that they send */
};

/* The address of `listen`: "127.0.0.1:9400" or "[::1]:9400". 0 or -EINVAL. */
int door_address(const char *listen, struct sockaddr_storage *ret, socklen_t *ret_size);
/* Whether programs of this machine alone reach the address. */
bool door_address_is_loopback(const struct sockaddr_storage *address);
/* Whether other machines reach the door. */
bool door_config_is_outside(const struct door_config *config);
/* For record_field.valid. */
bool door_listen_valid(const char *text);
bool door_path_valid(const char *text);
/* Whether what was read belongs together: other machines are heard over TLS alone. `key` is the
 * configuration's, `tls` what its key "tls" takes. 0, or negative with *err. */
int door_config_agrees(const struct door_config *config, const char *key, const char *tls,
		       struct error *err);
