/* Lists objects of the API server, then watches them: bookmarks move the place from which a watch
 * goes on, and only where that is too old everything is listed again. Objects are handed on one by
 * one, so no more than a page of them is held. Blocks; for one thread each. */
#pragma once

#include <jansson.h>
#include <stdbool.h>

#include "integrations/kubernetes/api/api.h"

enum informer_event {
	INFORMER_LIST_BEGINS, /* object is NULL, as in the next but one */
	INFORMER_PRESENT,     /* listed, added or changed */
	INFORMER_LIST_ENDS,
	INFORMER_DELETED,
};

struct error;

struct informer {
	struct api *api;
	const char *path;     /* "/api/v1/pods" */
	const char *selector; /* "labelSelector=..." or "", encoded for a URL */
	void (*each)(void *arg, enum informer_event event, const json_t *object);
	bool (*goes_on)(void *arg); /* asked about once a second */
	void *arg;
};

/* Lists once, and watches nothing. 0, or negative with *err; without INFORMER_LIST_ENDS where
 * goes_on() said no. */
int informer_list(const struct informer *informer, struct error *err);
/* Until goes_on() says no. */
void informer_run(const struct informer *informer);
