/* The supervisor's loop. It waits in poll() for a signal, a notice of the worker, and a second
 * daemon that asks for the files (host/sole.h). It also waits for the time of the next start, and
 * for the warden's events.
 *
 *   state      event                          becomes
 *   PREPARING  the driver is known to start   RUNNING
 *              for the worker, or not
 *              SIGTERM, SIGINT                ENDED
 *   RUNNING    the worker ended, status 0     ENDED
 *              the worker ended otherwise     PAUSED, until the time that pace.h says
 *              it never served: first start   ENDED, with its status
 *              SIGTERM, SIGINT                STOPPING: the worker is told to end
 *   PAUSED     it is time                     PREPARING
 *              SIGTERM, SIGINT                ENDED
 *   STOPPING   the worker ended               ENDED
 *
 * Notices of a worker are read before its end is: what it had stored when it was killed is kept.
 * A notice counts only where the kernel says that the worker sent it. The worker's socket for
 * notices is a file that only the worker's user can open.
 *
 * Nothing here waits for the worker, and nothing that the worker says names a file.
 *
 * The supervisor of a daemon that root started hosts the daemon's warden (warden/warden.h), and
 * keeps root's rights for it. The warden's work in a pass is bounded to some milliseconds, and
 * notices are read first. Children of the warden and shims of jobs are children of this process. It
 * waits for all of its children, and so the PID that it holds for the worker is the worker's. Shims
 * outlive this process and its next program. */
#include "daemon/supervisor/supervise.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/file.h"
#include "base/macros.h"
#include "daemon/host/log.h"
#include "daemon/host/sole.h"
#include "daemon/host/supervisor.h"
#include "daemon/supervisor/hoard.h"
#include "daemon/supervisor/notice.h"
#include "daemon/supervisor/pace.h"
#include "daemon/supervisor/worker.h"
#include "warden/warden.h"

#define PROCESS_NAME "carve-supervise"
#define NOTIFY_FILE "notify.sock"
/* As the unit has it (FileDescriptorStoreMax=). */
#define STORED_MOST 65536u
/* A quarter of the descriptors that may be open is for the store: they are moved to a worker. */
#define STORED_PART 4
/* Notices that are read in a pass. */
#define NOTICES_MOST 1024u
#define OWN_POLLS 4u

enum state { STATE_PREPARING, STATE_RUNNING, STATE_PAUSED, STATE_STOPPING, STATE_ENDED };

struct supervisor {
	struct supervise *given;
	struct runtime *runtime;
	struct hoard hoard;
	enum state state;
	int signal_fd, notify_fd;
	int control_fd; /* to the worker */
	pid_t worker;   /* 0: none */
	struct worker_preparation preparation;
	struct pace pace;
	uint64_t started_ns, next_ns;
	bool serves;       /* this worker has said so */
	bool continues;    /* some worker has: the daemon is not given up any more */
	int code;          /* once it has ended */
	struct error *err; /* the caller's */
	char status[NOTICE_STATUS_SIZE];
	char program[PATH_MAX]; /* the path of this program when it started; "": not known */
};

static void notify_path(const struct supervisor *s, struct sockaddr_un *ret)
{
	*ret = (struct sockaddr_un){.sun_family = AF_UNIX};
	runtime_path(s->runtime, NOTIFY_FILE, ret->sun_path, sizeof(ret->sun_path));
}

/* A new one for each worker: what an earlier one said counts no more. 0 or -errno. */
static int notify_listen(struct supervisor *s, uid_t worker_uid)
{
	struct sockaddr_un address;
	int on = 1;
	cleanup_close int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	notify_path(s, &address);
	(void)unlink(address.sun_path);
	if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_PASSCRED, &on, sizeof(on)) < 0 ||
	    bind(fd, (const struct sockaddr *)&address, sizeof(address)) < 0 ||
	    chmod(address.sun_path, 0600) < 0 ||
	    (worker_uid && chown(address.sun_path, worker_uid, (gid_t)-1) < 0))
		return -errno;
	close_fd(&s->notify_fd);
	s->notify_fd = steal_fd(&fd);
	return 0;
}

/* ---- notices ------------------------------------------------------------------------------ */

static void served(struct supervisor *s)
{
	s->serves = s->continues = true;
	if (s->given->ready_fd >= 0)
		(void)write_all(s->given->ready_fd, "R", 1);
	close_fd(&s->given->ready_fd);
	close_fd(&s->given->words_fd);
}

static void notice_obey(struct supervisor *s, const struct notice *notice, int *fd)
{
	if (notice->removes)
		hoard_drop(&s->hoard, notice->name);
	if (notice->stores && *fd >= 0) {
		int rc = hoard_put(&s->hoard, notice->name, *fd);

		if (rc == 0)
			*fd = -1;
		else
			log_event(LOG_WARNING, "supervisor.not_kept name=%s error=\"%s\"",
				  notice->name, strerrordesc_np(-rc));
	}
	if (*notice->status)
		memcpy(s->status, notice->status, sizeof(s->status));
	if (notice->ready && !s->serves)
		served(s);
	/* A supervisor above this one hears of the daemon as of a service of its own. */
	if (notice->ready)
		supervisor_tell("READY=1");
	if (notice->watchdog)
		supervisor_tell("WATCHDOG=1");
	if (notice->stopping)
		supervisor_tell("STOPPING=1");
}

/* The control data of a notice: who sent it, and one descriptor at most. */
struct sender {
	pid_t pid;
	int fd;
};

static void sender_read(struct msghdr *message, struct sender *ret)
{
	struct ucred peer;

	*ret = (struct sender){.fd = -1};
	for (struct cmsghdr *c = CMSG_FIRSTHDR(message); c; c = CMSG_NXTHDR(message, c)) {
		if (c->cmsg_level != SOL_SOCKET)
			continue;
		if (c->cmsg_type == SCM_CREDENTIALS && c->cmsg_len == CMSG_LEN(sizeof(peer))) {
			memcpy(&peer, CMSG_DATA(c), sizeof(peer));
			ret->pid = peer.pid;
		}
		if (c->cmsg_type != SCM_RIGHTS)
			continue;
		for (size_t i = 0; CMSG_LEN((i + 1) * sizeof(int)) <= c->cmsg_len; i++) {
			close_fd(&ret->fd);
			memcpy(&ret->fd, CMSG_DATA(c) + i * sizeof(int), sizeof(int));
		}
	}
}

/* False: there is none. */
static bool notice_take(struct supervisor *s)
{
	union {
		struct cmsghdr header;
		char bytes[CMSG_SPACE(sizeof(struct ucred)) + CMSG_SPACE(sizeof(int))];
	} control;
	char text[NOTICE_SIZE];
	struct iovec part = {.iov_base = text, .iov_len = sizeof(text)};
	struct msghdr message = {.msg_iov = &part,
				 .msg_iovlen = 1,
				 .msg_control = &control,
				 .msg_controllen = sizeof(control)};
	struct notice notice;
	struct sender sender;

	ssize_t n = recvmsg(s->notify_fd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	if (n < 0)
		return false;
	sender_read(&message, &sender);
	if (sender.pid == s->worker && s->worker && !(message.msg_flags & MSG_TRUNC) &&
	    notice_read(text, (size_t)n, &notice))
		notice_obey(s, &notice, &sender.fd);
	close_fd(&sender.fd);
	return true;
}

/* More than the kernel keeps for a socket: of a worker that has ended, all are read at once. */
static void notices_take(struct supervisor *s)
{
	for (unsigned i = 0; i < NOTICES_MOST && notice_take(s); i++)
		;
}

/* ---- the worker --------------------------------------------------------------------------- */

/* Orders the worker has by a pipe: the supervisor may have no right to signal it. */
static void order(struct supervisor *s, char letter)
{
	(void)!write(s->control_fd, &letter, 1);
}

static void pause_for(struct supervisor *s, uint64_t wait_ns)
{
	s->state = STATE_PAUSED;
	s->next_ns = now_monotonic_ns() + wait_ns;
}

static void ended_for_good(struct supervisor *s, int code)
{
	s->state = STATE_ENDED;
	s->code = code;
}

/* Makes what was removed of the directory; another daemon may have taken its place. */
static int files_hold(struct supervisor *s, struct error *err)
{
	(void)log_look();
	return runtime_hold(s->runtime, &s->given->start, err);
}

/* The worker sees which file it is, and has no hold of the lock. */
static int lock_show(const struct runtime *runtime)
{
	char path[PATH_MAX];

	runtime_path(runtime, "lock", path, sizeof(path));
	int fd = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

static int control_make(struct supervisor *s, int *ret_end)
{
	int ends[2];

	if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) < 0)
		return -errno;
	close_fd(&s->control_fd);
	s->control_fd = ends[1];
	*ret_end = ends[0];
	return 0;
}

static int link_prepare(struct supervisor *s, int *ret_link, struct error *err)
{
	int ends[2];

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) < 0)
		return error_set(err, EXIT_CODE_FAILED, "cannot make a link to the worker: %s",
				 strerrordesc_np(errno));
	*ret_link = ends[1];
	int rc = s->given->prepare(s->given, ends[0], &s->preparation, err);
	if (rc < 0)
		close(ends[0]);
	return rc;
}

/* There is no worker now, and none at all if no worker has served yet. */
static void prepare_failed(struct supervisor *s, const struct error *err)
{
	log_event(LOG_ERROR, "supervisor.no_worker error=\"%s\"", err->message);
	close_fd(&s->preparation.answer_fd);
	if (s->continues) {
		pause_for(s, pace_ended(&s->pace, 0, false));
		return;
	}
	snprintf(s->status, sizeof(s->status), "%.300s%s%.200s", err->message,
		 err->hint[0] ? "; " : "", err->hint);
	if (s->given->words_fd < 0)
		*s->err = *err;
	ended_for_good(s, err->code);
}

/* `warden`: the worker's end of its link to that; -1: it has none. */
static void worker_start(struct supervisor *s, int warden)
{
	cleanup_close int lock = lock_show(s->runtime), control = -1;
	int rc = lock < 0 ? lock : notify_listen(s, s->preparation.user.uid);
	struct sockaddr_un notify;

	if (rc == 0)
		rc = control_make(s, &control);
	notify_path(s, &notify);
	if (rc == 0)
		rc = worker_fork(&(struct worker_start){
			.argv = s->given->argv,
			.notify = notify.sun_path,
			.runtime = s->runtime,
			.lock_fd = lock,
			.control_fd = control,
			.warden_fd = warden,
			.user = s->preparation.user,
			.hoard = &s->hoard,
			.supervisor = getpid(),
		});
	s->started_ns = now_monotonic_ns();
	s->serves = false;
	s->status[0] = '\0';
	if (rc < 0) {
		log_event(LOG_ERROR, "supervisor.no_worker error=\"%s\"", strerrordesc_np(-rc));
		pause_for(s, pace_ended(&s->pace, 0, false));
		return;
	}
	s->worker = rc;
	s->state = STATE_RUNNING;
}

static void worker_prepare(struct supervisor *s)
{
	struct error err = {0};

	s->preparation = (struct worker_preparation){.answer_fd = -1};
	if (files_hold(s, &err) < 0) {
		log_event(LOG_ERROR, "supervisor.gives_up error=\"%s\"", err.message);
		snprintf(s->status, sizeof(s->status), "%.500s", err.message);
		ended_for_good(s, EXIT_CODE_FAILED);
	} else if (!s->given->ask) {
		worker_start(s, -1);
	} else if (s->given->ask(s->given, &s->preparation, &err) == 0) {
		s->state = STATE_PREPARING;
	} else {
		prepare_failed(s, &err);
	}
}

static void answer_take(struct supervisor *s)
{
	cleanup_close int warden = -1;
	struct error err = {0};

	if (link_prepare(s, &warden, &err) < 0) {
		prepare_failed(s, &err);
		return;
	}
	close_fd(&s->preparation.answer_fd);
	worker_start(s, warden);
}

/* Becomes the program that has the path of this one now. Returns where it cannot. */
static void renew(struct supervisor *s)
{
	const struct worker_descriptor first[] = {
		{RUNTIME_LOCK_HELD, s->runtime->lock_fd},
		{SUPERVISOR_ATTACH, s->runtime->attach_fd},
		{SUPERVISOR_HTTP, s->runtime->http_fd},
		{RUNTIME_SOLE, s->runtime->sole_fd}, /* last: there may be none */
	};
	size_t count = ARRAY_SIZE(first) - (s->runtime->sole_fd < 0);
	const char *address = supervisor_address();
	sigset_t none;

	if (!*s->program || access(s->program, X_OK) < 0)
		return;
	log_event(LOG_INFO, "supervisor.renewed program=%s", s->program);
	if (address)
		setenv("NOTIFY_SOCKET", address, 1); // NOLINT(concurrency-mt-unsafe)
	/* From here on the descriptors have other numbers. */
	if (worker_descriptors_pass(first, count, &s->hoard) < 0)
		_exit(EXIT_CODE_FAILED);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL); // NOLINT(concurrency-mt-unsafe): there is one thread
	execv(s->program, s->given->argv);
	execv("/proc/self/exe", s->given->argv);
	_exit(EXIT_CODE_FAILED);
}

static void worker_ended(struct supervisor *s, int status)
{
	uint64_t lived_ns = now_monotonic_ns() - s->started_ns;
	int code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
	bool stopping = s->state == STATE_STOPPING;

	s->worker = 0;
	/* A process that still has the worker's end of the link speaks for nobody. */
	if (s->given->warden)
		warden_link(s->given->warden, -1);
	if (code == 0 || stopping) {
		ended_for_good(s, MAX(code, 0));
		return;
	}
	/* The caller who started the daemon reads why it does not start. */
	if (code > 0 && !s->continues) {
		ended_for_good(s, code);
		return;
	}
	if (code >= 0)
		log_event(LOG_WARNING, "worker.ended status=%d", code);
	else
		log_event(LOG_WARNING, "worker.ended signal=%d", WTERMSIG(status));
	if (code == SUPERVISOR_RENEW)
		renew(s);
	pause_for(s, code == SUPERVISOR_RENEW ? 0 : pace_ended(&s->pace, lived_ns, s->serves));
}

/* Also children that are not the worker: the warden's, shims, and all where this is the first
 * process of a container. */
static void children_reap(struct supervisor *s)
{
	siginfo_t ended = {0};
	int status;

	while (waitid(P_ALL, 0, &ended, WEXITED | WNOHANG | WNOWAIT) == 0 && ended.si_pid) {
		pid_t pid = ended.si_pid;

		/* Before its number may be another's. */
		if (pid == s->worker)
			notices_take(s);
		if (waitpid(pid, &status, 0) == pid && pid == s->worker)
			worker_ended(s, status);
		ended.si_pid = 0;
	}
}

/* ---- events ------------------------------------------------------------------------------- */

static void stop(struct supervisor *s)
{
	if (s->state == STATE_RUNNING) {
		s->state = STATE_STOPPING;
		order(s, SUPERVISOR_ORDER_STOP);
	} else if (s->state == STATE_PAUSED || s->state == STATE_PREPARING) {
		ended_for_good(s, EXIT_CODE_OK);
	}
}

static void signals_take(struct supervisor *s)
{
	struct signalfd_siginfo info;

	while (read(s->signal_fd, &info, sizeof(info)) == sizeof(info)) {
		if (info.ssi_signo == SIGCHLD)
			children_reap(s);
		else if (info.ssi_signo == SIGHUP)
			order(s, SUPERVISOR_ORDER_RELOAD);
		else if (info.ssi_signo == SIGTERM || info.ssi_signo == SIGINT)
			stop(s);
	}
}

/* A second daemon was started, and finds this one: a command may have found no socket. */
static void second_take(struct supervisor *s)
{
	struct error err = {0};
	cleanup_close int fd = sole_accept(s->runtime->sole_fd);

	if (fd < 0 || files_hold(s, &err) <= 0)
		return;
	/* The worker is to have the new sockets. */
	order(s, SUPERVISOR_ORDER_RESTART);
}

static int time_left_ms(const struct supervisor *s)
{
	uint64_t now = now_monotonic_ns();

	if (s->state != STATE_PAUSED)
		return -1;
	return s->next_ns > now ? (int)((s->next_ns - now) / 1000000) + 1 : 0;
}

static void turn(struct supervisor *s)
{
	struct warden *warden = s->given->warden;
	struct pollfd fds[OWN_POLLS + WARDEN_POLLS_MAX] = {
		{.fd = s->signal_fd, .events = POLLIN},
		{.fd = s->notify_fd, .events = POLLIN},
		{.fd = s->runtime->sole_fd, .events = POLLIN},
		{.fd = s->preparation.answer_fd, .events = POLLIN},
	};
	int timeout_ms = time_left_ms(s);
	unsigned count = warden ? warden_poll_fill(warden, fds + OWN_POLLS, &timeout_ms) : 0;

	if (poll(fds, OWN_POLLS + count, timeout_ms) < 0)
		return;
	if (fds[1].revents)
		notices_take(s);
	/* Before a worker's start, which may close it. */
	if (warden)
		warden_poll_run(warden, fds + OWN_POLLS, count);
	if (fds[0].revents)
		signals_take(s);
	if (fds[2].revents)
		second_take(s);
	if (s->state == STATE_PREPARING && fds[3].revents)
		answer_take(s);
	if (s->state == STATE_PAUSED && now_monotonic_ns() >= s->next_ns)
		worker_prepare(s);
}

/* ---- the whole ---------------------------------------------------------------------------- */

static void continued_take(void *arg, const char *name, int fd)
{
	if (!strchr(name, '.'))
		return;
	if (hoard_put(arg, name, fd) < 0)
		close(fd);
}

static void hoard_begin(struct supervisor *s)
{
	struct rlimit limit = {.rlim_cur = 1024};

	(void)getrlimit(RLIMIT_NOFILE, &limit);
	s->hoard.most = MIN((size_t)limit.rlim_cur / STORED_PART, STORED_MOST);
	supervisor_descriptors(continued_take, &s->hoard);
	if (!s->continues) {
		size_t count = hoard_take(&s->hoard, s->runtime->dir);

		s->continues = count > 0;
		if (count)
			log_event(LOG_INFO, "supervisor.taken_back descriptors=%zu", count);
	}
}

static int signals_begin(struct supervisor *s)
{
	sigset_t mask;

	sigemptyset(&mask);
	sigaddset(&mask, SIGCHLD);
	sigaddset(&mask, SIGTERM);
	sigaddset(&mask, SIGINT);
	sigaddset(&mask, SIGHUP);
	sigprocmask(SIG_BLOCK, &mask, NULL); // NOLINT(concurrency-mt-unsafe): there is one thread
	s->signal_fd = signalfd(-1, &mask, SFD_CLOEXEC | SFD_NONBLOCK);
	return s->signal_fd < 0 ? -errno : 0;
}

/* Lets go of all that is not for the next supervisor. */
static void end(struct supervisor *s)
{
	struct sockaddr_un notify;

	if (s->code && s->given->words_fd >= 0)
		dprintf(s->given->words_fd, "carved: %s\n",
			*s->status ? s->status : "it ended while it started");
	notify_path(s, &notify);
	(void)unlink(notify.sun_path);
	close_fd(&s->preparation.answer_fd);
	close_fd(&s->runtime->attach_fd);
	close_fd(&s->runtime->http_fd);
	hoard_drop_of(&s->hoard, SUPERVISOR_CLAIM);
	/* Before the lock is free: the next supervisor looks for it at once. */
	int rc = hoard_leave(&s->hoard, s->runtime->dir);
	if (rc < 0)
		log_event(LOG_WARNING, "supervisor.not_left error=\"%s\"", strerrordesc_np(-rc));
	hoard_free(&s->hoard);
	warden_close(s->given->warden);
	s->given->warden = NULL;
	runtime_end(s->runtime);
}

int supervise_run(struct supervise *given, struct error *err)
{
	struct supervisor s = {
		.given = given,
		.runtime = given->runtime,
		.notify_fd = -1,
		.control_fd = -1,
		.preparation.answer_fd = -1,
		.err = err,
		.continues = given->runtime->lock_fd >= 0,
	};
	int rc = files_hold(&s, err);

	if (rc < 0)
		return EXIT_CODE_FAILED;
	rc = given->begin ? given->begin(s.runtime) : 0;
	if (rc == 0)
		rc = signals_begin(&s);
	if (rc < 0) {
		error_set(err, EXIT_CODE_FAILED, "cannot serve %s: %s", s.runtime->dir,
			  strerrordesc_np(-rc));
		runtime_end(s.runtime);
		return EXIT_CODE_FAILED;
	}
	ssize_t n = readlink("/proc/self/exe", s.program, sizeof(s.program) - 1);
	s.program[MAX(n, 0)] = '\0';
	prctl(PR_SET_NAME, PROCESS_NAME, 0, 0, 0);
	/* Its descriptors are the daemon's: processes of the same user do not get at them by
	 * ptrace. */
	prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
	hoard_begin(&s);
	worker_prepare(&s);
	while (s.state != STATE_ENDED)
		turn(&s);
	end(&s);
	return s.code;
}
