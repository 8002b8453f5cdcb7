#include "integrations/kubernetes/claim/carved.h"

#include "client/sessions.h"

int carved_open(struct carved *ret, const char *host, struct error *err)
{
	*ret = (struct carved){.lock = PTHREAD_MUTEX_INITIALIZER};
	return client_open(&ret->client, host, err);
}

int carved_call(struct carved *carved, const char *method, const char *path, const json_t *body,
		json_t **ret, struct error *err)
{
	pthread_mutex_lock(&carved->lock);
	int rc = client_call(&carved->client, method, path, body, NULL, ret, err);
	pthread_mutex_unlock(&carved->lock);
	return rc;
}

int carved_sessions(struct carved *carved, json_t **ret, struct error *err)
{
	pthread_mutex_lock(&carved->lock);
	int rc = sessions_get(&carved->client, ret, err);
	pthread_mutex_unlock(&carved->lock);
	return rc;
}
