#include "integrations/kubernetes/node/reservations.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/error.h"
#include "daemon/host/log.h"
#include "integrations/kubernetes/api/informer.h"
#include "integrations/kubernetes/api/retry.h"
#include "integrations/kubernetes/claim/reserve.h"
#include "integrations/kubernetes/node/watcher.h"

#define PATH_SIZE 512

/* One thread follows the pods, and says that one is lost. The other one makes pods, which takes up
 * to half a minute. */
struct reservations {
	struct reserve *reserve;
	struct watcher *watcher;
	pthread_t follower, keeper;
	pthread_mutex_t lock; /* guards the fields below; a leaf */
	pthread_cond_t changed;
	bool lost, stop;
};

static bool goes_on(void *arg)
{
	struct reservations *reservations = arg;

	pthread_mutex_lock(&reservations->lock);
	bool stop = reservations->stop;
	pthread_mutex_unlock(&reservations->lock);
	return !stop && api_goes_on(reservations->reserve->api);
}

static void on_pod(void *arg, enum informer_event event, const json_t *pod)
{
	struct reservations *reservations = arg;

	/* A pod may have gone before a list begins. */
	if (event == INFORMER_LIST_BEGINS || (event == INFORMER_PRESENT && reserve_pod_holds(pod)))
		return;
	pthread_mutex_lock(&reservations->lock);
	reservations->lost = true;
	pthread_cond_signal(&reservations->changed);
	pthread_mutex_unlock(&reservations->lock);
}

static void *follower_main(void *arg)
{
	struct reservations *reservations = arg;
	const struct reserve *reserve = reservations->reserve;
	char path[PATH_SIZE], selector[PATH_SIZE];

	snprintf(path, sizeof(path), "/api/v1/namespaces/%.63s/pods", reserve->namespace);
	snprintf(selector, sizeof(selector), RESERVE_SELECTOR, reserve->node);
	informer_run(&(struct informer){.api = reserve->api,
					.path = path,
					.selector = selector,
					.each = on_pod,
					.goes_on = goes_on,
					.arg = reservations});
	return NULL;
}

/* Returns after a pod was lost, or after `wait_ms` where that is not 0. */
static void await(struct reservations *reservations, unsigned wait_ms)
{
	struct timespec until;
	int rc = 0;

	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += wait_ms / 1000 + 1;
	pthread_mutex_lock(&reservations->lock);
	while (!reservations->stop && !reservations->lost && rc == 0)
		rc = wait_ms ? pthread_cond_timedwait(&reservations->changed, &reservations->lock,
						      &until)
			     : pthread_cond_wait(&reservations->changed, &reservations->lock);
	reservations->lost = false;
	pthread_mutex_unlock(&reservations->lock);
}

static void *keeper_main(void *arg)
{
	struct reservations *reservations = arg;
	unsigned failures = 0, wait_ms = 0;

	for (await(reservations, wait_ms); goes_on(reservations); await(reservations, wait_ms)) {
		struct watcher_view view;
		struct error err = {0};

		watcher_view(reservations->watcher, &view);
		if (reserve_keep(reservations->reserve, view.gpu, view.count, &err)) {
			failures = wait_ms = 0;
			continue;
		}
		wait_ms = retry_wait_ms(failures++, (unsigned)random());
		log_event(LOG_WARNING, "reservation.lost retry_ms=%u error=\"%s\"", wait_ms,
			  err.message);
	}
	return NULL;
}

int reservations_start(struct reserve *reserve, struct watcher *watcher, struct reservations **ret)
{
	struct reservations *reservations;

	*ret = NULL;
	if (!reserve->namespace)
		return 0;
	if (!(reservations = calloc(1, sizeof(*reservations))))
		return -ENOMEM;
	reservations->reserve = reserve;
	reservations->watcher = watcher;
	pthread_mutex_init(&reservations->lock, NULL);
	pthread_cond_init(&reservations->changed, NULL);
	int rc = pthread_create(&reservations->keeper, NULL, keeper_main, reservations);
	if (rc) {
		free(reservations);
		return -rc;
	}
	rc = pthread_create(&reservations->follower, NULL, follower_main, reservations);
	if (rc) {
		reservations->follower = reservations->keeper;
		reservations_stop(reservations);
		return -rc;
	}
	*ret = reservations;
	return 0;
}

void reservations_stop(struct reservations *reservations)
{
	if (!reservations)
		return;
	pthread_mutex_lock(&reservations->lock);
	reservations->stop = true;
	pthread_cond_signal(&reservations->changed);
	pthread_mutex_unlock(&reservations->lock);
	pthread_join(reservations->keeper, NULL);
	if (!pthread_equal(reservations->follower, reservations->keeper))
		pthread_join(reservations->follower, NULL);
	free(reservations);
}
