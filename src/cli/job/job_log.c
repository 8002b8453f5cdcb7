/* carve job logs, and the files that a job's output is in. */
#include "cli/job/job_log.h"
#include "cli/job/job_array_log.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/error.h"
#include "base/file.h"
#include "base/text_escape.h"
#include "base/units.h"
#include "cli/cli.h"
#include "cli/job/jobs.h"
#include "client/client.h"
#include "client/sessions.h"
#include "proto/shim.h"

/* While a log is followed, it is read this often. */
#define FOLLOW_PAUSE_NS 200000000L
#define FOLLOW_ASK_EVERY 5
/* The bytes of a log that are read at a time. */
#define READ_BYTES 65536
/* One more than --retries takes. */
#define ATTEMPTS_MAX 1001u

int job_log_write(int to, const char *part, size_t size, struct error *err)
{
	int rc = write_all(to, part, size);

	return rc == 0 ? 0
		       : error_set(err, EXIT_CODE_FAILED, "cannot write to standard %s: %s",
				   to == STDOUT_FILENO ? "output" : "error", strerrordesc_np(-rc));
}

/* A log that is printed. */
struct printing {
	int from;
	bool escaped;          /* another user's text on this one's terminal */
	char part[READ_BYTES]; /* `kept` bytes of it are the beginning of a character */
	size_t kept;
};

static int part_write(struct printing *p, bool last, struct error *err)
{
	char text[READ_BYTES * TEXT_ESCAPE_SIZE];
	size_t size;

	if (!p->escaped) {
		int rc = job_log_write(STDOUT_FILENO, p->part, p->kept, err);

		p->kept = 0;
		return rc;
	}
	size_t taken = text_escape_part(p->part, p->kept, last, text, &size);
	p->kept -= taken;
	memmove(p->part, p->part + taken, p->kept);
	return job_log_write(STDOUT_FILENO, text, size, err);
}

/* All that there is now; `last`: no more will come. */
static int log_copy(struct printing *p, bool last, struct error *err)
{
	ssize_t n;
	int rc = 0;

	while (rc == 0 && (n = read(p->from, p->part + p->kept, sizeof(p->part) - p->kept)) > 0) {
		p->kept += (size_t)n;
		rc = part_write(p, false, err);
	}
	return rc == 0 && last && p->kept ? part_write(p, true, err) : rc;
}

bool job_has_ended(const json_t *job)
{
	return *session_text(job, "ended") != '\0';
}

static int one_job(const struct client *client, const char *id, json_t **ret, struct error *err)
{
	cleanup_json json_t *jobs = NULL;
	int rc = jobs_meant(client, id, false, &jobs, err);

	if (rc == 0)
		*ret = json_incref(json_array_get(jobs, 0));
	return rc;
}

static void pause_a_moment(void)
{
	nanosleep(&(struct timespec){.tv_nsec = FOLLOW_PAUSE_NS}, NULL);
}

/* The directory of a log is made by root, and is the job's user's. False: it is not there. */
static bool user_of(const char *path, uid_t *ret)
{
	const char *slash = strrchr(path, '/');
	char dir[PATH_MAX];
	struct stat st;

	snprintf(dir, sizeof(dir), "%.*s", slash ? (int)(slash - path) + 1 : 1, slash ? path : ".");
	if (stat(dir, &st) < 0)
		return false;
	*ret = st.st_uid;
	return true;
}

/* The job's user can link any file there. */
static bool may_be_shown(const char *path, uid_t owner)
{
	uid_t user;

	return user_of(path, &user) && (user == geteuid() || user == owner);
}

bool job_log_is_escaped(const char *path)
{
	uid_t user;

	return isatty(STDOUT_FILENO) && !(user_of(path, &user) && user == geteuid());
}

int job_log_open(const char *path)
{
	char again[64];
	struct stat st;
	cleanup_close int found = open(path, O_PATH | O_CLOEXEC);

	if (found < 0 || fstat(found, &st) < 0)
		return -errno;
	if (!S_ISREG(st.st_mode))
		return -EMEDIUMTYPE;
	if (!may_be_shown(path, st.st_uid))
		return -EPERM;
	snprintf(again, sizeof(again), "/proc/self/fd/%d", found);
	/* Its user may have a lease on it (fcntl(2)), which an open would wait for. */
	int fd = open(again, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

/* Attempts have files of their own, ID.ATTEMPT and the suffix. */
int job_log_path(const json_t *job, uint64_t attempt, const char *suffix, char buf[static PATH_MAX],
		 struct error *err)
{
	const char *last = session_text(job, "log"), *slash = strrchr(last, '/');
	const char *number = slash ? strchr(slash, '.') : NULL;
	uint64_t attempts = session_number(job, "attempt");

	if (attempt > attempts) {
		error_set(err, EXIT_CODE_FAILED, "job %s has had %llu attempt%s",
			  session_text(job, "id"), (unsigned long long)attempts,
			  attempts == 1 ? "" : "s");
		return -EXIT_CODE_FAILED;
	}
	snprintf(buf, PATH_MAX, "%s", last);
	if (number)
		snprintf(buf, PATH_MAX, "%.*s.%llu%s", (int)(number - last), last,
			 (unsigned long long)(attempt ? attempt : attempts), suffix);
	return 0;
}

/* Where the output is a file of the user's (--output), a link to it stands beside the log. */
static bool is_link(const char *path)
{
	struct stat st;

	return lstat(path, &st) == 0 && S_ISLNK(st.st_mode);
}

/* Waits until there is a log: the job has started. */
static int log_open(const struct client *client, const char *id, bool follow, uint64_t attempt,
		    json_t **job, bool *ret_escaped, struct error *err)
{
	char path[PATH_MAX];

	for (;;) {
		int rc = *job ? 0 : one_job(client, id, job, err);

		if (rc < 0 || (rc = job_log_path(*job, attempt, SHIM_LOG, path, err)) < 0)
			return rc;
		int fd = job_log_open(path);
		if (fd >= 0) {
			*ret_escaped = job_log_is_escaped(path);
			return fd;
		}
		if (fd == -EMEDIUMTYPE)
			return error_set(err, EXIT_CODE_FAILED, "job %s prints to no plain file",
					 id);
		if (fd == -EAGAIN)
			return error_set(err, EXIT_CODE_FAILED,
					 "a program has a lease on the output of job %s: %s", id,
					 path);
		if (fd == -EPERM)
			return error_set(err, EXIT_CODE_FAILED,
					 "the output of job %s is in another user's file: %s", id,
					 path);
		if (fd == -ENOENT && job_has_ended(*job) && is_link(path))
			return error_set(err, EXIT_CODE_FAILED,
					 "the file that job %s printed to was removed", id);
		if (!follow || job_has_ended(*job))
			return error_set(err, EXIT_CODE_FAILED,
					 "job %s has printed nothing: it is %s", id,
					 session_text(*job, "state"));
		json_decref(*job);
		*job = NULL;
		pause_a_moment();
	}
}

/* `first`: the job as it was when the ID was looked up. */
static int log_print(const struct client *client, const char *id, json_t *first, bool follow,
		     uint64_t attempt, struct error *err)
{
	cleanup_json json_t *job = json_incref(first);
	struct printing printing = {0};
	cleanup_close int fd = log_open(client, id, follow, attempt, &job, &printing.escaped, err);
	int rc;

	if (fd < 0)
		return fd;
	printing.from = fd;
	for (unsigned round = 0;; round++) {
		/* Looked at first: what it printed before its end is there then. */
		bool ended = !follow || job_has_ended(job);

		if ((rc = log_copy(&printing, ended, err)) < 0 || ended)
			return rc;
		pause_a_moment();
		if (round % FOLLOW_ASK_EVERY)
			continue;
		json_decref(job);
		job = NULL;
		if ((rc = one_job(client, id, &job, err)) < 0)
			return rc;
	}
}

int cli_job_logs(struct cli *cli, struct error *err)
{
	cleanup_json json_t *jobs = NULL;
	const char *which = cli->value[OPT_JOB_ATTEMPT];
	bool follow = cli->value[OPT_JOB_FOLLOW] != NULL;
	char id[JOB_ID_SIZE];
	uint64_t attempt = 0;
	struct client client;
	int rc = which ? units_parse_count(which, "--attempt", 1, ATTEMPTS_MAX, &attempt, err) : 0;

	if (rc < 0 || (rc = client_open(&client, cli->value[OPT_HOST], err)) < 0 ||
	    (rc = job_id_find(&client, cli->arguments[0], false, id, err)) < 0 ||
	    (rc = jobs_meant(&client, id, false, &jobs, err)) < 0)
		return rc;
	json_t *first = json_array_get(jobs, 0);
	bool array = !strchr(id, '_') && json_is_integer(json_object_get(first, "array"));
	return array ? job_array_log(&client, id, jobs, follow, attempt, err)
		     : log_print(&client, id, first, follow, attempt, err);
}
