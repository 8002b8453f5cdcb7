#include "daemon/queue/launcher.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/file.h"
#include "daemon/host/log.h"
#include "daemon/host/owner.h"

/* Longer than its work takes on a machine that is very busy. A client is told after this time that
 * the warden does not answer, and so is the log. */
#define PATIENCE_NS 5000000000ull
/* A job that starts has its slice already, and gives it back after this time. */
#define START_PATIENCE_NS 30000000000ull

/* ---- its life ----------------------------------------------------------------------------- */

bool launcher_is_there(const struct launcher *l)
{
	return l->there;
}

bool launcher_is_away(const struct launcher *l)
{
	return !l->warden || !warden_link_there(l->warden);
}

unsigned launcher_slow_s(const struct launcher *l)
{
	uint64_t silent = l->warden ? warden_link_silent_ns(l->warden) : 0;

	return silent > PATIENCE_NS ? (unsigned)(silent / 1000000000) : 0;
}

static void slow_tell(struct launcher *l)
{
	bool slow = launcher_slow_s(l) > 0;

	if (slow == l->slow)
		return;
	l->slow = slow;
	if (slow)
		log_event(LOG_WARNING, "warden.slow silent_s=%u", launcher_slow_s(l));
	else
		log_event(LOG_INFO, "warden.answers");
}

static void on_greeted(void *context, int rc, const void *answer, int *fd)
{
	const struct warden_job_limits *limits = answer;
	struct launcher *l = context;

	l->asked = rc == 0;
	if (rc < 0)
		return;
	l->greeted = true;
	l->tasks_max = limits->tasks_max;
	l->tasks =
		limits->tasks == WARDEN_TASKS_OF_USER ? WARDEN_TASKS_OF_USER : WARDEN_TASKS_OF_JOB;
}

/* This makes nothing where nothing is missing. */
static void greet(struct launcher *l)
{
	if (l->there && !l->asked)
		l->asked = launcher_files(l, WARDEN_NOBODY, on_greeted, l, NULL) == 0;
}

void launcher_begin(struct launcher *l, struct warden_link *warden)
{
	l->warden = warden;
	greet(l);
}

void launcher_tick(struct launcher *l)
{
	warden_link_tick(l->warden);
	slow_tell(l);
	greet(l);
}

/* ---- asking ------------------------------------------------------------------------------- */

static void nobody_told(void *context, int rc, const void *answer, int *fd)
{
}

static void nothing_dropped(void *context)
{
}

static int ask(struct launcher *l, const struct warden_question *question, warden_cb cb, void *arg,
	       uint64_t *ret)
{
	if (!l->there || launcher_is_away(l))
		return -ENOTCONN;
	uint64_t number =
		warden_link_ask(l->warden, question, cb ? cb : nobody_told, nothing_dropped, arg);
	if (ret)
		*ret = number;
	return number ? 0 : -EAGAIN;
}

int launcher_vouch(struct launcher *l, uid_t owner, int socket_fd, const struct launcher_wish *wish,
		   warden_cb cb, void *arg, uint64_t *ret)
{
	struct warden_vouch request = {
		.kind = wish->kind, .count = wish->count, .attempts = wish->attempts};
	cleanup_close int text_fd = memfd_create("carve-text", MFD_CLOEXEC);
	const struct warden_question question = {.operation = WARDEN_JOB_VOUCH,
						 .owner = owner,
						 .request = &request,
						 .size = sizeof(request),
						 .answer_size = sizeof(struct warrant),
						 .fds = {socket_fd, text_fd},
						 .fd_count = 2,
						 .patience_ns = PATIENCE_NS};

	if (text_fd < 0)
		return -errno;
	int rc = write_all(text_fd, wish->text, strlen(wish->text));
	return rc < 0 ? rc : ask(l, &question, cb, arg, ret);
}

int launcher_start(struct launcher *l, uid_t owner, int64_t job, uint32_t attempt, int spec_fd,
		   warden_cb cb, void *arg, uint64_t *ret)
{
	struct warden_job request = {.job = (uint64_t)job, .attempt = attempt};
	const struct warden_question question = {.operation = WARDEN_JOB_START,
						 .owner = owner,
						 .request = &request,
						 .size = sizeof(request),
						 .answer_size = sizeof(struct warden_started),
						 .fds = {spec_fd},
						 .fd_count = 1,
						 .patience_ns = START_PATIENCE_NS};

	return ask(l, &question, cb, arg, ret);
}

int launcher_end(struct launcher *l, uid_t owner, int64_t job, uint32_t attempt, warden_cb cb,
		 void *arg, uint64_t *ret)
{
	struct warden_job request = {.job = (uint64_t)job, .attempt = attempt};
	const struct warden_question question = {.operation = WARDEN_JOB_END,
						 .owner = owner,
						 .request = &request,
						 .size = sizeof(request)};

	return ask(l, &question, cb, arg, ret);
}

int launcher_command_kill(struct launcher *l, uid_t owner, int64_t job, uint32_t attempt)
{
	struct warden_job request = {.job = (uint64_t)job, .attempt = attempt, .below = 1};
	const struct warden_question question = {.operation = WARDEN_JOB_END,
						 .owner = owner,
						 .request = &request,
						 .size = sizeof(request)};

	return ask(l, &question, NULL, NULL, NULL);
}

int launcher_files(struct launcher *l, uid_t uid, warden_cb cb, void *arg, uint64_t *ret)
{
	struct warden_job_files request = {.uid = uid};
	const struct warden_question question = {.operation = WARDEN_JOB_FILES,
						 .owner = uid,
						 .request = &request,
						 .size = sizeof(request),
						 .answer_size = sizeof(struct warden_job_limits)};

	return ask(l, &question, cb, arg, ret);
}

int launcher_remove(struct launcher *l, uid_t uid, int64_t job, uint32_t attempt, uint32_t files)
{
	struct warden_job_remove request = {
		.job = (uint64_t)job, .attempt = attempt, .uid = uid, .files = files};
	const struct warden_question question = {.operation = WARDEN_JOB_REMOVE,
						 .owner = owner_of(uid),
						 .request = &request,
						 .size = sizeof(request)};

	return ask(l, &question, NULL, NULL, NULL);
}

int launcher_over(struct launcher *l, uint64_t first, uint32_t count, warden_cb cb, void *arg,
		  uint64_t *ret)
{
	struct warden_job_over request = {.first = first, .count = count};
	const struct warden_question question = {
		.operation = WARDEN_JOB_OVER, .request = &request, .size = sizeof(request)};

	return ask(l, &question, cb, arg, ret);
}

void launcher_forget(struct launcher *l, uint64_t asked)
{
	if (l->warden)
		warden_link_forget(l->warden, asked);
}
