/* Jobs that wait need a daemon. A user's own daemon that is killed is started again by the shims of
 * jobs that run. If none runs, a process of its own does that, as long as an agent is there. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/macros.h"
#include "daemon/host/log.h"
#include "daemon/host/peer.h"
#include "daemon/queue/launcher.h"
#include "daemon/queue/queue_private.h"
#include "proto/shim.h"

/* One that ends again and again is started this often at most. */
#define START_PAUSE_NS 1000000000ull
#define FDS_FROM 10

static void on_starter_ended(void *arg)
{
	struct queues *q = arg;

	(void)waitpid(q->reviver.starter_pid, NULL, WNOHANG);
	process_watch_stop(steal_ptr(&q->reviver.starter));
}

static int start(struct queues *q)
{
	char *argv[] = {q->shim, SHIM_REVIVE, q->attach, NULL};
	struct process_id id = {0};
	int ends[2];

	if (pipe2(ends, O_CLOEXEC) < 0)
		return -errno;
	cleanup_close int in = ends[0], out = ends[1];
	cleanup_close int go = fcntl(in, F_DUPFD_CLOEXEC, FDS_FROM);
	int rc = go < 0 ? -errno : shim_spawn_with(q, argv, -1, go, -1, &q->reviver.starter_pid);
	if (rc < 0)
		return rc;
	/* If it is not watched, it is a zombie until this process ends. */
	if (process_identify(q->reviver.starter_pid, &id) == 0)
		(void)process_watch_start(q->host.sessions->loop, id, on_starter_ended, q,
					  &q->reviver.starter);
	q->reviver.pipe = steal_fd(&out);
	return 0;
}

/* Nobody reads from its pipe any more. */
static bool has_ended(const struct queues *q)
{
	struct pollfd pipe = {.fd = q->reviver.pipe};

	return poll(&pipe, 1, 0) > 0 && pipe.revents & POLLERR;
}

/* A system daemon is root's to start. */
static bool is_wanted(const struct queues *q)
{
	return q->agents && *q->shim && !launcher_is_there(q->host.launcher);
}

void queue_reviver_look(struct queues *q)
{
	uint64_t now = now_monotonic_ns();

	if (q->reviver.pipe >= 0 && (!is_wanted(q) || has_ended(q)))
		close_fd(&q->reviver.pipe);
	if (!is_wanted(q) || q->reviver.pipe >= 0 || q->reviver.starter ||
	    (q->reviver.at_ns && now - q->reviver.at_ns < START_PAUSE_NS))
		return;
	q->reviver.at_ns = now;
	int rc = start(q);
	if (rc < 0)
		log_event(LOG_WARNING, "queue.no_reviver error=\"%s\"", strerrordesc_np(-rc));
}

void queue_reviver_end(struct queues *q)
{
	close_fd(&q->reviver.pipe);
	process_watch_stop(steal_ptr(&q->reviver.starter));
}
