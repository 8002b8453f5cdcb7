#include "client/daemon_watch.h"

#include <fcntl.h>
#include <stdbool.h>
#include <sys/pidfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "client/client.h"
#include "slice/runtime_dir.h"

/* DAEMON_WATCH_STARTS within this time are enough: a daemon that ends so often has a reason. */
#define STARTS_PERIOD_MS 10000

static bool start_is_due(struct daemon_watch *watch)
{
	long long *oldest = &watch->starts_ms[watch->count % DAEMON_WATCH_STARTS];
	long long now = now_monotonic_ms();

	if (watch->count >= DAEMON_WATCH_STARTS && now - *oldest < STARTS_PERIOD_MS)
		return false;
	*oldest = now;
	watch->count++;
	return true;
}

/* Holds nothing open that somebody may wait for the end of: it may outlive the command. */
_Noreturn static void starter_run(const struct client *client)
{
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);

	for (int fd = 0; fd < 3; fd++)
		dup2(null, fd);
	close_range(3, ~0u, 0);
	client_revive(client);
	_exit(0);
}

void daemon_watch_ended(struct daemon_watch *watch)
{
	close_fd(&watch->fd);
	if (!watch->client || watch->starter || !start_is_due(watch))
		return;
	pid_t pid = fork();
	if (pid == 0)
		starter_run(watch->client);
	if (pid > 0)
		watch->starter = pid;
}

static void watch_open(struct daemon_watch *watch)
{
	pid_t daemon = runtime_socket_pid(watch->client->socket);

	watch->fd = daemon > 0 ? pidfd_open(daemon, 0) : -1;
	if (watch->fd < 0)
		daemon_watch_ended(watch);
}

void daemon_watch_begin(struct daemon_watch *ret, const struct client *client)
{
	*ret = (struct daemon_watch){.fd = -1, .client = client && client->own ? client : NULL};
	if (ret->client)
		watch_open(ret);
}

int daemon_watch_fd(const struct daemon_watch *watch)
{
	return watch->fd;
}

void daemon_watch_reap(struct daemon_watch *watch)
{
	if (!watch->starter || waitpid(watch->starter, NULL, WNOHANG) != watch->starter)
		return;
	watch->starter = 0;
	watch_open(watch);
}

void daemon_watch_end(struct daemon_watch *watch)
{
	close_fd(&watch->fd);
}

static void launch_revive(void *context)
{
	struct daemon_watch *watch = context;

	client_revive(watch->client);
}

static void launch_begin(void *context)
{
	struct daemon_watch *watch = context;

	daemon_watch_begin(watch, watch->client);
}

static void launch_end(void *context)
{
	daemon_watch_end(context);
}

static int launch_fd(void *context)
{
	return daemon_watch_fd(context);
}

static void launch_ended(void *context)
{
	daemon_watch_ended(context);
}

static void launch_reap(void *context)
{
	daemon_watch_reap(context);
}

struct launch_daemon daemon_watch_for_launch(struct daemon_watch *watch,
					     const struct client *client)
{
	*watch = (struct daemon_watch){.fd = -1, .client = client};
	return (struct launch_daemon){
		.context = watch,
		.revive = launch_revive,
		.begin = launch_begin,
		.end = launch_end,
		.fd = launch_fd,
		.ended = launch_ended,
		.reap = launch_reap,
	};
}
