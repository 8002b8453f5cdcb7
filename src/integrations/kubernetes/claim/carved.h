/* Calls to carved from several threads: client.h is for one. */
#pragma once

#include <jansson.h>
#include <pthread.h>

#include "client/client.h"

struct error;

struct carved {
	struct client client;
	pthread_mutex_t lock; /* held for one call */
};

/* As client_open(). */
int carved_open(struct carved *ret, const char *host, struct error *err);
/* As client_call(). Calls that wait on purpose would hold up others. */
int carved_call(struct carved *carved, const char *method, const char *path, const json_t *body,
		json_t **ret, struct error *err);
/* As sessions_get(). */
int carved_sessions(struct carved *carved, json_t **ret, struct error *err);
