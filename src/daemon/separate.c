#include "daemon/separate.h"

#include <errno.h>
#include <linux/capability.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/error.h"
#include "base/file.h"
#include "base/host_root.h"
#include "base/socket.h"
#include "daemon/config_last.h"
#include "daemon/host/filter.h"
#include "daemon/host/log.h"
#include "daemon/host/supervisor.h"
#include "daemon/node.h"
#include "daemon/supervisor/worker.h"
#include "daemon/warden_make.h"

/* The warden may wait for the disk, and for the driver. */
#define WORD_PATIENCE_MS 60000

/* ---- the word ---------------------------------------------------------------------------- */

static int word_error(struct error *err, const char *what)
{
	error_set(err, EXIT_CODE_FAILED, "the warden did not say what this worker has: %s", what);
	if (!supervisor_is_own())
		error_hint(err, "after an upgrade: systemctl daemon-reload, and systemctl restart "
				"carve-warden.service carved.service");
	return -1;
}

static int word_receive(int link_fd, struct separation_word *ret, int fds[static SEPARATION_FDS],
			struct error *err)
{
	struct pollfd readable = {.fd = link_fd, .events = POLLIN};

	if (poll(&readable, 1, WORD_PATIENCE_MS) <= 0)
		return word_error(err, "it does not answer");
	ssize_t n = descriptors_receive(link_fd, ret, sizeof(*ret), fds, SEPARATION_FDS);
	if (n != sizeof(*ret) || ret->magic != SEPARATION_MAGIC || ret->size != sizeof(*ret))
		return word_error(err, n == 0 ? "it hung up" : "it is of another version");
	if (ret->refused[0])
		return error_set(err, EXIT_CODE_FAILED, "%s", ret->refused);
	return 0;
}

/* Its descriptor of each kind; -1: it was given none. */
static void fds_sort(const struct separation_word *word, const int *fds,
		     int ret[static SEPARATION_FDS])
{
	for (unsigned kind = 0; kind < SEPARATION_FDS; kind++)
		ret[kind] = word->fds >> kind & 1 ? *fds++ : -1;
}

static void launcher_note(struct launcher *l, int jobs_error)
{
	l->service = !supervisor_is_own();
	l->there = jobs_error == 0;
	if (l->there)
		return;
	snprintf(l->why_not, sizeof(l->why_not), "%s",
		 jobs_error == -EACCES
			 ? "its warden was started without the rights to become other users"
			 : strerrordesc_np(-jobs_error));
	log_event(LOG_WARNING, "launcher.none reason=\"%s\"", l->why_not);
}

/* A reload may have changed the settings since the warden read the file. The copy is newer. */
static void settings_last(struct node *node)
{
	(void)config_last_find(node->state.wanted, node->runtime.dir, &node->config);
	log_event(LOG_ERROR, "config.refused error=\"%s\" settings=last", node->config_wrong);
}

static int word_take(struct node *node, const struct separation_word *word, const int *given,
		     struct error *err)
{
	static char config_path[PATH_MAX];
	int fds[SEPARATION_FDS];

	fds_sort(word, given, fds);
	host_root_adopt(word->host_capabilities);
	snprintf(node->state.wanted, sizeof(node->state.wanted), "%s", word->state_dir);
	snprintf(node->state.stays, sizeof(node->state.stays), "%s", word->state_stays);
	node->separation = word->separation;
	node->config = word->config;
	snprintf(node->config_wrong, sizeof(node->config_wrong), "%s", word->config_wrong);
	if (word->config_wrong[0])
		settings_last(node);
	snprintf(config_path, sizeof(config_path), "%s", word->config_path);
	node->options.config_path = config_path[0] ? config_path : NULL;
	launcher_note(&node->launcher, word->jobs_error);
	if (fds[SEPARATION_CLAIMS] >= 0)
		node->pool.claims = (struct claims){.system = true,
						    .dir_fd = fds[SEPARATION_CLAIMS],
						    .lock_fd = fds[SEPARATION_CLAIMS_LOCK]};
	return runtime_follow(&node->runtime,
			      &(struct runtime_given){.attach_fd = fds[SEPARATION_ATTACH],
						      .http_fd = fds[SEPARATION_HTTP],
						      .made_anew = word->made_anew},
			      err);
}

/* ---- rights ------------------------------------------------------------------------------ */

/* Nothing is left that could be had back. */
static int rights_drop(void)
{
	struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct none[2] = {0};
	int rc = 0;

	(void)prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
	if (syscall(SYS_capset, &header, none) < 0 || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ||
	    prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0)
		return -errno;
	rc = filter_apply();
	/* A kernel that would give it back is not to be served under. */
	return rc == 0 && setresuid(0, 0, 0) == 0 ? -EPERM : rc;
}

void separate_settle(void)
{
	if (getpriority(PRIO_PROCESS, 0) == WORKER_NICE)
		(void)setpriority(PRIO_PROCESS, 0, 0);
}

/* ---- the whole --------------------------------------------------------------------------- */

/* A worker of carve's own supervisor has its link from that. Else systemd started it, and the
 * warden. -1: a daemon that is no system's has none. */
static int link_find(const struct node *node, int *ret, struct error *err)
{
	*ret = supervisor_socket(SUPERVISOR_WARDEN);
	if (*ret >= 0 || supervisor_is_own() || !node->options.system)
		return 0;
	*ret = warden_connect(&node->runtime);
	if (*ret >= 0)
		return 0;
	return error_set(err, EXIT_CODE_FAILED,
			 "carve-warden.service, which does what takes root's rights, does not "
			 "answer: %s",
			 strerrordesc_np(-*ret));
}

static int unwarded_begin(struct node *node, const struct runtime_start *start, struct error *err)
{
	struct runtime *runtime = &node->runtime;

	if (!supervisor_is_own()) {
		runtime_continue(runtime);
		if (runtime_hold(runtime, start, err) < 0)
			return -1;
	}
	return runtime_follow(runtime,
			      &(struct runtime_given){.attach_fd = runtime->attach_fd,
						      .http_fd = runtime->http_fd,
						      .made_anew = runtime->made_anew},
			      err);
}

int separate(struct node *node, const struct runtime_start *start, struct error *err)
{
	static struct separation_word word;
	int fds[SEPARATION_FDS], link_fd;

	if (link_find(node, &link_fd, err) < 0)
		return -1;
	privileges_init(&node->privileges, link_fd);
	node->launcher = (struct launcher){0};
	if (link_fd < 0)
		return unwarded_begin(node, start, err);
	if (word_receive(link_fd, &word, fds, err) < 0 || word_take(node, &word, fds, err) < 0)
		return -1;
	node->separation.separated = geteuid() != 0;
	if (node->separation.why_not[0])
		log_event(LOG_WARNING, "carved.%s reason=\"%s\"",
			  node->separation.separated ? "bounded" : "not_separated",
			  node->separation.why_not);
	int rc = node->separation.separated ? rights_drop() : 0;
	if (rc < 0)
		return error_set(err, EXIT_CODE_FAILED, "user %u keeps rights: %s", geteuid(),
				 strerrordesc_np(-rc));
	log_event(LOG_INFO, "carved.user uid=%u separated=%d", geteuid(),
		  node->separation.separated);
	return 0;
}
