/* A hook's calls to carved: HTTP over its Unix socket, with no library but what is linked in
 * statically, as a hook starts for every container. */
#pragma once

#include <jansson.h>
#include <stdbool.h>

struct error;

struct oci_daemon {
	char socket[108];
	char attach[108];    /* beside it */
	unsigned patience_s; /* how long it may be silent in a call; 0: as long as the hook lives */
	bool vouched;        /* the socket is an argument of the hook's (SERVER_VOUCHED) */
	unsigned away_s;     /* how long it may be away, as it may be starting again */
};

/* Finds out where the daemon is, without a call to it. `host`: its socket, or NULL. 0, or negative
 * with *err set. */
int oci_daemon_find(const char *host, struct oci_daemon *ret, struct error *err);
/* As client_call() of the command. Starts the user's own daemon where none answers. */
int oci_daemon_call(const struct oci_daemon *daemon, const char *method, const char *path,
		    const json_t *body, json_t **ret, struct error *err);
