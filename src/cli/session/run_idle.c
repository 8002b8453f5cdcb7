/* The daemon is asked, and not listened to. A connection that is held open for days would be one of
 * the user's connections, and would have to be opened anew with each daemon. The session says when
 * the warning can come at the earliest, and the thread sleeps until then. So a command that works
 * costs one small request in almost an idle timeout, and none where the timeout is longer.
 *
 * The thread ends with the process. It may be in a call to a daemon that hangs, and nobody waits
 * for it. It starts no daemon. */
#include "cli/session/run_idle.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/macros.h"
#include "base/units.h"
#include "cli/columns.h"
#include "cli/moment.h"
#include "client/client.h"
#include "client/sessions.h"

#define SECOND_NS 1000000000ull
/* The daemon looks each second, and moments are told in seconds. */
#define SLACK_NS (2 * SECOND_NS)
/* While there is no policy: an administrator may make one. Also after a call that failed. */
#define UNLIMITED_NS (600 * SECOND_NS)
#define FAILED_NS (60 * SECOND_NS)
/* While the user is warned: whether the warning is withdrawn. */
#define WARNED_PART 4
#define WARNED_NS_MOST (30 * SECOND_NS)

static struct {
	struct client client;
	char id[64];
	uint64_t first_ns;
	bool warned;
	atomic_bool over;
} watch;

static uint64_t next_ask_ns(const json_t *session)
{
	uint64_t timeout = column_number(session, "idle_timeout_ns");
	uint64_t warning = column_number(session, "idle_warning_ns");
	int64_t release = moment_parse(session_text(session, "idle_release_at"));
	int64_t left = (release - now_realtime_ns() / (int64_t)SECOND_NS) * (int64_t)SECOND_NS;

	if (json_is_true(json_object_get(session, "idle_warned")))
		return MIN(MAX(warning / WARNED_PART, SECOND_NS), WARNED_NS_MOST);
	if (timeout == COLUMN_NONE || warning == COLUMN_NONE)
		return UNLIMITED_NS;
	left = (release ? left : (int64_t)timeout) - (int64_t)warning;
	return (uint64_t)MAX(left, 0) + SLACK_NS;
}

static void warning_tell(const json_t *session)
{
	int64_t now = now_realtime_ns() / (int64_t)SECOND_NS;
	int64_t since = moment_parse(session_text(session, "idle_since"));
	int64_t release = moment_parse(session_text(session, "idle_release_at"));
	char idle[UNITS_TEXT_SIZE], left[UNITS_TEXT_SIZE];

	if (!since || !release)
		return;
	fprintf(stderr,
		"carve: session %s has used no GPU time for %s: it is released in %s unless it "
		"uses some (idle_timeout)\n",
		watch.id,
		units_format_rough_duration((uint64_t)MAX(now - since, 0) * SECOND_NS, idle),
		units_format_rough_duration((uint64_t)MAX(release - now, 0) * SECOND_NS, left));
}

static void change_tell(const json_t *session)
{
	bool warned = json_is_true(json_object_get(session, "idle_warned"));

	if (warned == watch.warned || watch.over)
		return;
	watch.warned = warned;
	if (warned)
		warning_tell(session);
	else if (!strcmp(session_text(session, "state"), "active"))
		fprintf(stderr,
			"carve: session %s is not released for now: it uses GPU time, or its "
			"administrator gave it more time\n",
			watch.id);
}

static void pause_ns(uint64_t ns)
{
	struct timespec left = {.tv_sec = (time_t)(ns / SECOND_NS),
				.tv_nsec = (long)(ns % SECOND_NS)};

	while (nanosleep(&left, &left) < 0)
		;
}

static void *on_watch(void *unused)
{
	char path[SESSION_PATH_SIZE];
	struct error err = {0};

	if (session_path(watch.id, path, &err) < 0)
		return NULL;
	for (uint64_t ns = watch.first_ns; !watch.over;) {
		cleanup_json json_t *session = NULL;

		pause_ns(ns);
		ns = FAILED_NS;
		if (client_call(&watch.client, "GET", path, NULL, NULL, &session, &err) < 0)
			continue;
		change_tell(session);
		if (!strcmp(session_text(session, "state"), "ended"))
			break;
		ns = next_ask_ns(session);
	}
	return NULL;
}

void run_idle_begin(const struct client *client, const json_t *session)
{
	sigset_t all, before;
	pthread_t thread;

	watch.client = *client;
	watch.client.own = false;
	snprintf(watch.id, sizeof(watch.id), "%s", session_text(session, "id"));
	watch.first_ns = next_ask_ns(session);
	/* Signals are the relay's, in the first thread. */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	if (pthread_create(&thread, NULL, on_watch, NULL) == 0)
		pthread_detach(thread);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
}

void run_idle_end(void)
{
	watch.over = true;
}
