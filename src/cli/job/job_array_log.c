/* carve job logs of an array. Each log is opened anew for each look, as an array may have more jobs
 * than a process may have files open. A line is printed once its end is there, so that lines of
 * different jobs do not mix; what has no end is printed when the job has ended. A line longer than
 * LINE_BYTES is printed in pieces, each as a line. */
#include "cli/job/job_array_log.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/file.h"
#include "base/text_escape.h"
#include "cli/job/job_log.h"
#include "cli/job/jobs.h"
#include "client/client.h"
#include "client/sessions.h"
#include "proto/shim.h"

/* While logs are followed, they are looked at this often. */
#define LOOK_EVERY_NS 200000000ull
/* The daemon is asked for the jobs at most for this part of the time, and once a second. */
#define ASK_PART 10
#define ASK_EVERY_NS 1000000000ull
#define LINE_BYTES 65536

struct log {
	uint64_t attempt; /* the attempt that is read; 0: none yet */
	off_t at;         /* all before is printed */
	bool complete;    /* no more comes */
	bool unreadable;  /* it was said why */
};

struct logs {
	const char *id;
	struct log *log; /* one for each job, in the order of indexes */
	uint64_t attempt;
	bool printed;
	char part[LINE_BYTES];
	char escaped[LINE_BYTES * TEXT_ESCAPE_SIZE];
};

static int line_print(struct logs *l, const json_t *job, bool escaped, const char *line,
		      size_t size, struct error *err)
{
	const char *text = line;

	l->printed = true;
	if (escaped) {
		(void)text_escape_part(line, size, true, l->escaped, &size);
		text = l->escaped;
	}
	if (printf("%d: ", (int)session_number(job, "index")) < 0 ||
	    fwrite(text, 1, size, stdout) != size ||
	    (size && text[size - 1] != '\n' && putchar('\n') < 0))
		return error_set(err, EXIT_CODE_FAILED, "cannot write to standard output: %s",
				 strerrordesc_np(errno));
	return 0;
}

/* Prints the lines of a part, whose last one may lack its end. Returns how many bytes were printed,
 * or negative with *err. */
static ssize_t lines_print(struct logs *l, const json_t *job, bool escaped, size_t size, bool last,
			   struct error *err)
{
	size_t done = 0;

	while (done < size) {
		const char *line = l->part + done, *end = memchr(line, '\n', size - done);
		size_t length = end ? (size_t)(end - line) + 1 : size - done;

		if (!end && !last && length < LINE_BYTES)
			break;
		int rc = line_print(l, job, escaped, line, length, err);
		if (rc < 0)
			return rc;
		done += length;
	}
	return (ssize_t)done;
}

/* Prints what the log has more than before. `last`: no more comes. */
static int log_print(struct logs *l, struct log *log, const json_t *job, int fd, bool escaped,
		     bool last, struct error *err)
{
	ssize_t n;

	while ((n = pread(fd, l->part, sizeof(l->part), log->at)) > 0) {
		/* The end of the file may be the end of a line's beginning. */
		bool whole = last && n < (ssize_t)sizeof(l->part);
		ssize_t done = lines_print(l, job, escaped, (size_t)n, whole, err);

		if (done < 0)
			return (int)done;
		if (!done)
			break;
		log->at += done;
	}
	return 0;
}

static void unreadable_tell(struct log *log, const json_t *job, int rc)
{
	const char *why = rc == -EMEDIUMTYPE ? "it prints to no plain file"
			  : rc == -EPERM     ? "its output is in another user's file"
			  : rc == -EAGAIN    ? "a program has a lease on its output"
					     : strerrordesc_np(-rc);

	if (!log->unreadable)
		fprintf(stderr, "carve: job %s: %s\n", session_text(job, "id"), why);
	log->unreadable = true;
}

/* Prints what an attempt printed since the last look. */
static int attempt_print(struct logs *l, struct log *log, const json_t *job, bool last,
			 struct error *err)
{
	char path[PATH_MAX];
	struct error ignored;

	if (!log->attempt || job_log_path(job, log->attempt, SHIM_LOG, path, &ignored) < 0)
		return 0;
	cleanup_close int fd = job_log_open(path);
	if (fd >= 0)
		return log_print(l, log, job, fd, job_log_is_escaped(path), last, err);
	if (fd != -ENOENT)
		unreadable_tell(log, job, fd);
	return 0;
}

/* A job that was tried again goes on in another file. */
static int job_print(struct logs *l, struct log *log, const json_t *job, struct error *err)
{
	uint64_t newest = session_number(job, "attempt");
	uint64_t wanted = l->attempt ? l->attempt : newest;
	bool ended = job_has_ended(job);
	int rc = 0;

	if (log->attempt && log->attempt < wanted) {
		rc = attempt_print(l, log, job, true, err);
		log->at = 0;
	}
	log->attempt = wanted <= newest ? wanted : 0;
	if (rc == 0)
		rc = attempt_print(l, log, job, ended || wanted < newest, err);
	log->complete = ended;
	return rc;
}

/* Looks at all logs once. */
static int logs_print(struct logs *l, const json_t *jobs, bool *ret_complete, struct error *err)
{
	size_t i;
	json_t *job;
	int rc;

	*ret_complete = true;
	json_array_foreach(jobs, i, job)
	{
		if (!l->log[i].complete && (rc = job_print(l, &l->log[i], job, err)) < 0)
			return rc;
		*ret_complete &= l->log[i].complete;
	}
	if (fflush(stdout) == EOF)
		return error_set(err, EXIT_CODE_FAILED, "cannot write to standard output: %s",
				 strerrordesc_np(errno));
	return 0;
}

static int logs_follow(struct logs *l, const struct client *client, const json_t *first,
		       struct error *err)
{
	cleanup_json json_t *jobs = json_incref((json_t *)first);
	uint64_t again_ns = now_monotonic_ns() + ASK_EVERY_NS;
	bool complete;
	int rc = logs_print(l, jobs, &complete, err);

	while (rc == 0 && !complete) {
		nanosleep(&(struct timespec){.tv_nsec = LOOK_EVERY_NS}, NULL);
		uint64_t now = now_monotonic_ns();

		if (now >= again_ns) {
			json_t *newer = NULL;

			rc = jobs_meant(client, l->id, false, &newer, err);
			if (rc < 0)
				break;
			/* Jobs of an array that ended long ago may be forgotten meanwhile. */
			if (json_array_size(newer) != json_array_size(jobs)) {
				json_decref(newer);
				break;
			}
			json_decref(jobs);
			jobs = newer;
			uint64_t took = now_monotonic_ns() - now;
			again_ns = now + ASK_EVERY_NS + ASK_PART * took;
		}
		rc = logs_print(l, jobs, &complete, err);
	}
	return rc;
}

/* Says that no job of the array has printed anything, and how often the jobs have been tried. */
static int nothing_tell(const char *id, const json_t *jobs, uint64_t attempt, struct error *err)
{
	uint64_t all = 0, most = 0;
	size_t i;
	json_t *job;

	json_array_foreach(jobs, i, job)
	{
		uint64_t attempts = session_number(job, "attempt");

		all += attempts;
		most = attempts > most ? attempts : most;
	}
	if (attempt > most)
		return error_set(err, EXIT_CODE_FAILED,
				 "no job of array %s has had %llu attempts: the most is %llu", id,
				 (unsigned long long)attempt, (unsigned long long)most);
	return error_set(err, EXIT_CODE_FAILED,
			 "no job of array %s has printed anything: its %zu jobs have had %llu "
			 "attempt%s",
			 id, json_array_size(jobs), (unsigned long long)all, all == 1 ? "" : "s");
}

int job_array_log(const struct client *client, const char *id, const json_t *jobs, bool follow,
		  uint64_t attempt, struct error *err)
{
	struct logs *l = calloc(1, sizeof(*l));
	bool complete;
	int rc;

	if (l)
		l->log = calloc(json_array_size(jobs), sizeof(*l->log));
	if (!l || !l->log) {
		free(l);
		return error_set(err, EXIT_CODE_FAILED, "out of memory");
	}
	l->id = id;
	l->attempt = attempt;
	rc = follow ? logs_follow(l, client, jobs, err) : logs_print(l, jobs, &complete, err);
	if (rc == 0 && !l->printed && !follow)
		rc = nothing_tell(id, jobs, attempt, err);
	free(l->log);
	free(l);
	return rc;
}
