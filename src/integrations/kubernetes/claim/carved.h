/* Calls to carved from several threads: client.h is for one. */
#pragma once

#include <jansson.h>
#include <pthread.h>
#include <stdatomic.h>

#include "base/error.h"
#include "client/client.h"

/* Calls go one after the other. If one finds that carved does not answer, those that wait meanwhile
 * fail in the same way. So a carved that hangs costs each of them the time of two calls at most,
 * however many they are. */
struct carved {
	struct client client;
	pthread_mutex_t lock; /* held for one call */
	atomic_uint silences; /* calls that got no answer (EXIT_CODE_UNREACHABLE) */
	struct error silence; /* the last failure's; under the lock */
};

/* As client_open(). */
int carved_open(struct carved *ret, const char *host, struct error *err);
/* As client_call(). Calls that wait on purpose would hold up others. */
int carved_call(struct carved *carved, const char *method, const char *path, const json_t *body,
		json_t **ret, struct error *err);
/* As sessions_get(). */
int carved_sessions(struct carved *carved, json_t **ret, struct error *err);
