/* A daemon's client: which daemon to talk to, starting one where none is, and calls to it. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/un.h>

struct error;

#define CLIENT_PATH_MAX sizeof(((struct sockaddr_un *)0)->sun_path)

struct client {
	char socket[CLIENT_PATH_MAX]; /* HTTP */
	char attach[CLIENT_PATH_MAX]; /* the attach socket, beside it */
	bool own;                     /* the user's own daemon, which may be started here */
};

/* The needs of a call beyond its body. A zeroed one is the default. */
struct client_patience {
	uint64_t wait_ns; /* the daemon may take so long on purpose */
	void (*slow)(void *context);
	void *slow_context;
};

/* Chooses the daemon: `host` (or NULL: $CARVE_HOST), which must run already. Else it is the
 * system's, or the user's own, which is started where it does not run and no system daemon is
 * installed. Daemons of other users are refused (runtime_connect()). 0, or negative with *err set
 * (EXIT_CODE_UNREACHABLE, EXIT_CODE_NOT_PERMITTED). */
int client_open(struct client *ret, const char *host, struct error *err);

/* Likewise, but starts none: negative where none runs. */
int client_open_running(struct client *ret, const char *host, struct error *err);

/* One call. If the daemon died meanwhile, it is sent again to the next one, if that can do no harm.
 * Returns 0 with *ret (owned by the caller, NULL for none), or negative with the daemon's error in
 * *err. `body` is not taken over. */
int client_call(const struct client *client, const char *method, const char *path,
		const json_t *body, const struct client_patience *patience, json_t **ret,
		struct error *err);

/* POST /v1/sessions with `request` and an ID chosen here, so that it may be repeated. As
 * client_call(). */
int client_session_request(const struct client *client, const json_t *request,
			   const struct client_patience *patience, json_t **ret, struct error *err);

static inline void json_free(json_t **value)
{
	json_decref(*value);
}
#define cleanup_json __attribute__((cleanup(json_free)))
