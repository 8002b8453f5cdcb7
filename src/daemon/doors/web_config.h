/* The key `web` of carved.json: where carve-web serves the page. The daemon and carve-web read it
 * by this function. Pure. With examples:
 *
 * - "listen": "127.0.0.1:9480", "[::1]:9480", or with "tls" "0.0.0.0:9480"
 * - "tls": {"cert": FILE, "key": FILE}
 * - "name": "gpu1.example.org": the name in links, which browsers have to ask for. By default
 *   localhost where the address is a loopback address, else the host's name
 * - "user": "carve-web": the user as whom carve-web runs, a name or a number
 */
#pragma once

#include <jansson.h>

#include "daemon/doors/door_config.h"

#define WEB_USER_DEFAULT "carve-web"
#define WEB_NAME_SIZE 256

struct web_config {
	struct door_config door;
	char name[WEB_NAME_SIZE]; /* "": none is named */
	char user[64];
};

extern const struct web_config web_config_default;

/* Reads the key's value. 0 with *ret; negative with *err, which names the key and a right value. */
int web_config_read(const json_t *value, struct web_config *ret, struct error *err);
