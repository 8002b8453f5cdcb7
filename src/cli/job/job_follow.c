#include "cli/job/job_follow.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/file.h"
#include "base/macros.h"
#include "cli/job/job_input.h"
#include "cli/job/job_log.h"
#include "cli/job/jobs.h"
#include "client/client.h"
#include "client/sessions.h"
#include "proto/shim.h"

/* While a job runs, its output is read this often. */
#define READ_EVERY_MS 100

/* ---- the thread that asks the daemon ------------------------------------------------------ */

/* Written to the pipe whole: its jobs are the receiver's then. */
struct news {
	json_t *jobs; /* NULL: `err` */
	struct error err;
	bool last;
};
static_assert(sizeof(struct news) <= PIPE_BUF, "written in one piece");

struct watch {
	struct client client;
	char id[32];
	bool one;
	int to;
};

/* The job's next attempt, or its end. */
static int attempt_await(const struct watch *watch, uint64_t attempt, json_t **ret,
			 struct error *err)
{
	struct client_patience patience = {.wait_ns = UINT64_MAX / 2};
	char suffix[64], path[JOB_PATH_SIZE];

	snprintf(suffix, sizeof(suffix), "?wait=1&attempt=%llu", (unsigned long long)attempt);
	int rc = job_path(watch->id, suffix, path, err);
	return rc < 0 ? rc : client_call(&watch->client, "GET", path, NULL, &patience, ret, err);
}

/* Frees its argument. */
static void *watch_run(void *arg)
{
	struct watch *watch = arg;
	uint64_t attempt = 0;
	bool last;

	do {
		struct news news = {0};
		int rc = watch->one ? attempt_await(watch, attempt, &news.jobs, &news.err)
				    : job_await(&watch->client, watch->id, &news.jobs, &news.err);
		const json_t *job = json_array_get(news.jobs, 0);

		last = news.last = rc < 0 || !watch->one || job_has_ended(job);
		attempt = session_number(job, "attempt");
		(void)!write(watch->to, &news, sizeof(news));
	} while (!last);
	close(watch->to);
	free(watch);
	return NULL;
}

/* ---- the followed jobs -------------------------------------------------------------------- */

/* A file that the job's output is in. Attempts have files of their own, but for -o and -e: there
 * the next attempt goes on where the last one ended. */
struct stream {
	const char *suffix;
	int to, fd; /* -1: the file is not there yet */
	bool unreadable;
	struct stat last;
	off_t at;
};

struct follow {
	const struct client *client;
	const char *id;
	bool one, prints;
	int signals;
	enum { STOP_NONE, STOP_TOLD, STOP_CANCELLED } stop;
	json_t *job;
	uint64_t attempt; /* the attempt whose output is read; 0: none yet */
	struct stream stream[2];
	struct job_input *input;
};

/* ---- signals ------------------------------------------------------------------------------ */

/* Those that the caller does not ignore. */
static int signals_take(void)
{
	static const int taken[] = {SIGINT, SIGTERM, SIGQUIT};
	struct sigaction now;
	sigset_t set;

	sigemptyset(&set);
	for (size_t i = 0; i < ARRAY_SIZE(taken); i++)
		if (sigaction(taken[i], NULL, &now) == 0 && now.sa_handler != SIG_IGN)
			sigaddset(&set, taken[i]);
	if (pthread_sigmask(SIG_BLOCK, &set, NULL) != 0)
		return -1;
	return signalfd(-1, &set, SFD_CLOEXEC);
}

static const char *noun(const struct follow *f)
{
	return f->one ? "job" : "array";
}

static int cancel(struct follow *f, struct error *err)
{
	char path[JOB_PATH_SIZE];
	struct error late = {0};

	if (f->stop == STOP_CANCELLED)
		return 0;
	f->stop = STOP_CANCELLED;
	fprintf(stderr, "carve: %s %s is cancelled\n", noun(f), f->id);
	int rc = job_path(f->id, "", path, err);
	if (rc == 0)
		rc = client_call(f->client, "DELETE", path, NULL, NULL, NULL, &late);
	/* It may have ended by itself: then the news are on their way. */
	if (rc == -EXIT_CODE_FAILED)
		return 0;
	if (rc < 0)
		*err = late;
	return rc;
}

static int left(const struct follow *f, int number)
{
	fprintf(stderr, "carve: %s %s goes on\n", noun(f), f->id);
	return 128 + number;
}

/* 0: the waiting goes on; else it ends, with that exit code or a negative one and *err. */
static int signal_obey(struct follow *f, struct error *err)
{
	struct signalfd_siginfo info;

	if (read(f->signals, &info, sizeof(info)) != sizeof(info))
		return 0;
	if (info.ssi_signo == SIGQUIT || (info.ssi_signo == SIGINT && f->stop == STOP_CANCELLED))
		return left(f, (int)info.ssi_signo);
	if (info.ssi_signo == SIGTERM || f->stop == STOP_TOLD)
		return cancel(f, err);
	f->stop = STOP_TOLD;
	fprintf(stderr,
		"carve: %s %s goes on; Ctrl-C again cancels it, Ctrl-\\ ends the waiting alone\n",
		noun(f), f->id);
	return 0;
}

/* ---- output ------------------------------------------------------------------------------- */

static void stream_open(const struct follow *f, struct stream *s)
{
	struct stat now;
	struct error ignored;
	char path[PATH_MAX];

	if (s->unreadable || job_log_path(f->job, f->attempt, s->suffix, path, &ignored) < 0)
		return;
	s->fd = job_log_open(path);
	s->unreadable = s->fd == -EMEDIUMTYPE;
	if (s->fd < 0 || fstat(s->fd, &now) < 0)
		return;
	if (now.st_ino == s->last.st_ino && now.st_dev == s->last.st_dev)
		(void)lseek(s->fd, s->at, SEEK_SET);
	s->last = now;
}

static void stream_close(struct stream *s)
{
	if (s->fd >= 0) {
		s->at = lseek(s->fd, 0, SEEK_CUR);
		close(s->fd);
	}
	s->fd = -1;
	s->unreadable = false;
}

/* Until a pipe takes a part without waiting. The reader of the output may be slow, or not read at
 * all: signals are obeyed meanwhile. As signal_obey(). */
static int room_await(struct follow *f, int to, struct error *err)
{
	struct pollfd fds[] = {{.fd = f->signals, .events = POLLIN}, {.fd = to, .events = POLLOUT}};
	int rc = 0;

	do {
		fds[0].revents = fds[1].revents = 0;
		if (poll(fds, ARRAY_SIZE(fds), -1) > 0 && fds[0].revents)
			rc = signal_obey(f, err);
	} while (rc == 0 && (fds[0].revents || !fds[1].revents));
	return rc;
}

static int stream_copy(struct follow *f, const struct stream *s, struct error *err)
{
	char part[PIPE_BUF];
	ssize_t n;
	int rc = 0;

	while (rc == 0 && (n = read(s->fd, part, sizeof(part))) > 0) {
		rc = room_await(f, s->to, err);
		if (rc == 0)
			rc = job_log_write(s->to, part, (size_t)n, err);
	}
	return rc;
}

static int output_copy(struct follow *f, struct error *err)
{
	int rc = 0;

	for (size_t i = 0; rc == 0 && f->attempt && i < ARRAY_SIZE(f->stream); i++) {
		struct stream *s = &f->stream[i];

		if (s->fd < 0)
			stream_open(f, s);
		if (s->fd >= 0)
			rc = stream_copy(f, s, err);
	}
	return rc;
}

/* All of the attempts before the job's last one, and what there is of that. */
static int output_advance(struct follow *f, struct error *err)
{
	uint64_t last = session_number(f->job, "attempt");
	int rc = output_copy(f, err);

	while (rc == 0 && f->attempt < last) {
		for (size_t i = 0; i < ARRAY_SIZE(f->stream); i++)
			stream_close(&f->stream[i]);
		f->attempt++;
		rc = output_copy(f, err);
	}
	return rc;
}

/* ---- the whole ---------------------------------------------------------------------------- */

static int news_take(struct follow *f, int from, bool *ret_last, struct error *err)
{
	struct news news;

	if (read(from, &news, sizeof(news)) != sizeof(news))
		return error_set(err, EXIT_CODE_FAILED, "cannot wait for the job any longer");
	*ret_last = news.last;
	if (!news.jobs) {
		*err = news.err;
		return -err->code;
	}
	json_decref(f->job);
	f->job = f->one ? json_incref(json_array_get(news.jobs, 0)) : json_incref(news.jobs);
	json_decref(news.jobs);
	return f->one && f->prints ? output_advance(f, err) : 0;
}

static int follow_run(struct follow *f, int news, struct error *err)
{
	struct pollfd fds[] = {
		{.fd = f->signals, .events = POLLIN}, {.fd = news, .events = POLLIN}, {.fd = -1}};
	bool last = false;
	int rc = 0;

	while (rc == 0 && !last) {
		fds[2] = job_input_wanted(f->input);
		if (poll(fds, ARRAY_SIZE(fds), f->attempt ? READ_EVERY_MS : -1) < 0)
			continue;
		if (fds[0].revents)
			rc = signal_obey(f, err);
		if (fds[2].revents)
			job_input_pass(f->input);
		if (rc == 0 && fds[1].revents)
			rc = news_take(f, news, &last, err);
		else if (rc == 0)
			rc = output_copy(f, err);
	}
	return rc;
}

static int watch_start(const struct client *client, const char *id, bool one, int *ret)
{
	struct watch *watch = calloc(1, sizeof(*watch));
	pthread_t thread;
	int ends[2];

	if (!watch || pipe2(ends, O_CLOEXEC) < 0) {
		free(watch);
		return -1;
	}
	watch->client = *client;
	snprintf(watch->id, sizeof(watch->id), "%s", id);
	watch->one = one;
	watch->to = ends[1];
	errno = pthread_create(&thread, NULL, watch_run, watch);
	if (errno) {
		close(ends[0]);
		close(ends[1]);
		free(watch);
		return -1;
	}
	/* It waits for the daemon perhaps, and ends with this process. */
	pthread_detach(thread);
	*ret = ends[0];
	return 0;
}

int job_follow(const struct client *client, const char *id, bool one, bool prints,
	       struct job_input *input, json_t **ret, struct error *err)
{
	struct follow f = {
		.client = client,
		.id = id,
		.one = one,
		.prints = prints,
		.input = input,
		.stream = {{.suffix = SHIM_LOG, .to = STDOUT_FILENO, .fd = -1},
			   {.suffix = SHIM_ERR, .to = STDERR_FILENO, .fd = -1}},
	};
	cleanup_close int signals = signals_take();
	int news; /* not closed: the thread may still write, and SIGPIPE would end the process */

	if (signals < 0 || watch_start(client, id, one, &news) < 0)
		return error_set(err, EXIT_CODE_FAILED, "cannot wait for job %s: %s", id,
				 strerrordesc_np(errno));
	/* Not before a signal would cancel it. */
	if (prints)
		fprintf(stderr, "carve: job %s\n", id);
	f.signals = signals;
	int rc = follow_run(&f, news, err);
	for (size_t i = 0; i < ARRAY_SIZE(f.stream); i++)
		stream_close(&f.stream[i]);
	if (rc == 0)
		*ret = f.one ? json_pack("[O]", f.job) : json_incref(f.job);
	json_decref(f.job);
	return rc;
}
