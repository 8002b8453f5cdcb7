#include "cli/top/top_feed.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "base/file.h"
#include "client/client.h"
#include "client/sessions.h"

/* The time for which the end waits for a call that is under way. */
#define STOP_PATIENCE_NS 300000000L
/* The first jobs that have not ended, as many as one answer has (256). */
#define JOBS_PATH "/v1/jobs?ended=0"

struct top_feed {
	const struct client *client;
	pthread_t thread;
	pthread_mutex_t mutex; /* guards what follows; never held over a call to the daemon */
	pthread_cond_t wake;
	int fd;
	bool stop;
	bool look;           /* asked for */
	bool release, force; /* asked for, of `id` */
	char id[64];
	struct top_news looked, released; /* news, not taken yet */
	bool has_looked, has_released;
};

/* ---- asking ------------------------------------------------------------------------------ */

/* A daemon that lacks this, or does not permit it, has the rest to tell. */
static int get_optional(const struct client *client, const char *path, json_t **ret,
			struct error *err)
{
	struct error why = {0};

	if (client_call(client, "GET", path, NULL, NULL, ret, &why) == 0 ||
	    why.code != EXIT_CODE_UNREACHABLE)
		return 0;
	*err = why;
	return -why.code;
}

int top_fetch(const struct client *client, struct top_answers *ret, struct error *err)
{
	struct top_answers answers = {0};
	int rc = client_call(client, "GET", "/v1/gpus", NULL, NULL, &answers.gpus, err);

	if (rc == 0)
		rc = sessions_get(client, &answers.sessions, err);
	if (rc == 0)
		rc = client_call(client, "GET", "/v1/version", NULL, NULL, &answers.version, err);
	if (rc == 0)
		rc = get_optional(client, "/v1/quotas", &answers.quotas, err);
	if (rc == 0)
		rc = get_optional(client, "/v1/timeslicing", &answers.timeslicing, err);
	if (rc == 0)
		rc = get_optional(client, "/v1/queues", &answers.queues, err);
	if (rc == 0)
		rc = get_optional(client, JOBS_PATH, &answers.jobs, err);
	if (rc < 0)
		top_answers_free(&answers);
	else
		*ret = answers;
	return rc;
}

static void process_name(json_t *process)
{
	int pid = (int)json_integer_value(json_object_get(process, "pid"));
	char path[64], command[64];

	snprintf(path, sizeof(path), "/proc/%d/comm", pid);
	if (pid <= 0 || file_read(path, command, sizeof(command)) < 0)
		return;
	command[strcspn(command, "\n")] = '\0';
	json_object_set_new(process, "command", json_string(command));
}

/* As this host's /proc has them. */
static void processes_name(const struct top_model *model)
{
	size_t i, p;
	json_t *row, *process;

	for (int list = TOP_GPUS; list <= TOP_SESSIONS; list++)
		json_array_foreach(model->list[list], i, row)
			json_array_foreach(top_processes(row), p, process) process_name(process);
}

static void look(const struct client *client, struct top_news *ret)
{
	struct top_answers answers;

	*ret = (struct top_news){.looked = true};
	if (top_fetch(client, &answers, &ret->error) < 0)
		return;
	ret->model = top_model_read(&answers, (int64_t)time(NULL));
	top_answers_free(&answers);
	if (ret->model)
		processes_name(ret->model);
	else
		error_set(&ret->error, EXIT_CODE_FAILED, "out of memory");
}

static void release(const struct client *client, const char *id, bool force, struct top_news *ret)
{
	char path[SESSION_PATH_SIZE], query[SESSION_PATH_SIZE + sizeof("?force=1")];

	*ret = (struct top_news){.released = true};
	snprintf(ret->id, sizeof(ret->id), "%s", id);
	if (session_path(id, path, &ret->error) < 0)
		return;
	snprintf(query, sizeof(query), "%s%s", path, force ? "?force=1" : "");
	client_call(client, "DELETE", query, NULL, NULL, NULL, &ret->error);
}

/* ---- the thread -------------------------------------------------------------------------- */

static void news_tell(struct top_feed *feed)
{
	uint64_t one = 1;

	(void)!write(feed->fd, &one, sizeof(one));
}

static void serve_release(struct top_feed *feed)
{
	struct top_news news;
	char id[sizeof(feed->id)];
	bool force = feed->force;

	memcpy(id, feed->id, sizeof(id));
	pthread_mutex_unlock(&feed->mutex);
	release(feed->client, id, force, &news);
	pthread_mutex_lock(&feed->mutex);
	feed->released = news;
	feed->has_released = true;
	feed->release = false;
	feed->look = true; /* its result is wanted soon */
}

static void serve_look(struct top_feed *feed)
{
	struct top_news news;

	feed->look = false;
	pthread_mutex_unlock(&feed->mutex);
	look(feed->client, &news);
	pthread_mutex_lock(&feed->mutex);
	if (feed->has_looked)
		top_model_free(feed->looked.model);
	feed->looked = news;
	feed->has_looked = true;
}

static void *feed_run(void *arg)
{
	struct top_feed *feed = arg;

	pthread_mutex_lock(&feed->mutex);
	while (!feed->stop) {
		if (!feed->look && !feed->release) {
			pthread_cond_wait(&feed->wake, &feed->mutex);
			continue;
		}
		if (feed->release)
			serve_release(feed);
		else
			serve_look(feed);
		news_tell(feed);
	}
	pthread_mutex_unlock(&feed->mutex);
	return NULL;
}

static void feed_free(struct top_feed *feed)
{
	if (feed->has_looked)
		top_model_free(feed->looked.model);
	pthread_cond_destroy(&feed->wake);
	pthread_mutex_destroy(&feed->mutex);
	close_fd(&feed->fd);
	free(feed);
}

/* The thread takes no signal: they are the main thread's to handle. */
static int thread_start(struct top_feed *feed)
{
	sigset_t all, before;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	int rc = pthread_create(&feed->thread, NULL, feed_run, feed);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return -rc;
}

int top_feed_start(struct top_feed **ret, const struct client *client)
{
	struct top_feed *feed = calloc(1, sizeof(*feed));

	if (!feed)
		return -ENOMEM;
	feed->client = client;
	pthread_mutex_init(&feed->mutex, NULL);
	pthread_cond_init(&feed->wake, NULL);
	feed->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	int rc = feed->fd < 0 ? -errno : thread_start(feed);
	if (rc < 0) {
		feed_free(feed);
		return rc;
	}
	*ret = feed;
	return 0;
}

int top_feed_fd(const struct top_feed *feed)
{
	return feed->fd;
}

void top_feed_look(struct top_feed *feed)
{
	pthread_mutex_lock(&feed->mutex);
	feed->look = true;
	pthread_cond_signal(&feed->wake);
	pthread_mutex_unlock(&feed->mutex);
}

bool top_feed_release(struct top_feed *feed, const char *id, bool force)
{
	pthread_mutex_lock(&feed->mutex);
	bool free_now = !feed->release && !feed->has_released;
	if (free_now) {
		snprintf(feed->id, sizeof(feed->id), "%s", id);
		feed->release = true;
		feed->force = force;
		pthread_cond_signal(&feed->wake);
	}
	pthread_mutex_unlock(&feed->mutex);
	return free_now;
}

bool top_feed_take(struct top_feed *feed, struct top_news *ret)
{
	uint64_t count;
	bool any = true;

	pthread_mutex_lock(&feed->mutex);
	if (feed->has_released) {
		*ret = feed->released;
		feed->has_released = false;
	} else if (feed->has_looked) {
		*ret = feed->looked;
		feed->has_looked = false;
	} else {
		(void)!read(feed->fd, &count, sizeof(count));
		any = false;
	}
	pthread_mutex_unlock(&feed->mutex);
	return any;
}

void top_feed_stop(struct top_feed *feed)
{
	struct timespec until;

	if (!feed)
		return;
	pthread_mutex_lock(&feed->mutex);
	feed->stop = true;
	pthread_cond_signal(&feed->wake);
	pthread_mutex_unlock(&feed->mutex);
	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_nsec += STOP_PATIENCE_NS;
	until.tv_sec += until.tv_nsec / 1000000000;
	until.tv_nsec %= 1000000000;
	if (pthread_timedjoin_np(feed->thread, NULL, &until) == 0)
		feed_free(feed);
}
