#include "integrations/kubernetes/claim/carved.h"

#include "base/error.h"
#include "client/sessions.h"

int carved_open(struct carved *ret, const char *host, struct error *err)
{
	*ret = (struct carved){.lock = PTHREAD_MUTEX_INITIALIZER};
	return client_open(&ret->client, host, err);
}

/* 0: it is the caller's turn. Negative with *err: a call before it got no answer. */
static int turn_take(struct carved *carved, struct error *err)
{
	unsigned before = carved->silences;

	pthread_mutex_lock(&carved->lock);
	if (carved->silences == before)
		return 0;
	*err = carved->silence;
	pthread_mutex_unlock(&carved->lock);
	return -err->code;
}

static void turn_give(struct carved *carved, int rc, const struct error *err)
{
	if (rc < 0 && err->code == EXIT_CODE_UNREACHABLE) {
		carved->silence = *err;
		carved->silences++;
	}
	pthread_mutex_unlock(&carved->lock);
}

int carved_call(struct carved *carved, const char *method, const char *path, const json_t *body,
		json_t **ret, struct error *err)
{
	int rc = turn_take(carved, err);

	if (rc < 0)
		return rc;
	rc = client_call(&carved->client, method, path, body, NULL, ret, err);
	turn_give(carved, rc, err);
	return rc;
}

int carved_sessions(struct carved *carved, json_t **ret, struct error *err)
{
	int rc = turn_take(carved, err);

	if (rc < 0)
		return rc;
	rc = sessions_get(&carved->client, ret, err);
	turn_give(carved, rc, err);
	return rc;
}
