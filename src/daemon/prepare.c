#include "daemon/prepare.h"

#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <grp.h>
#include <poll.h>
#include <pwd.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "backend/gpus.h"
#include "base/device_files.h"
#include "base/error.h"
#include "base/file.h"
#include "base/host_root.h"
#include "base/socket.h"
#include "daemon/gpu/claims.h"
#include "daemon/host/log.h"
#include "daemon/node.h"
#include "daemon/separate.h"
#include "daemon/supervisor/worker.h"
#include "daemon/warden_make.h"
#include "warden/warden.h"

enum obstacle {
	OBSTACLE_NONE,
	OBSTACLE_USER,
	OBSTACLE_PROC,
	OBSTACLE_DRIVER,
};

// NOLINTBEGIN(concurrency-mt-unsafe): these processes have one thread.

/* ---- the worker's user ------------------------------------------------------------------- */

static bool free_id(uid_t *ret)
{
	for (uid_t id = WARDEN_ID_FIRST; id <= WARDEN_ID_LAST; id++)
		if (!getpwuid(id) && !getgrgid(id)) {
			*ret = id;
			return true;
		}
	return false;
}

/* Device nodes are everybody's by default; an administrator may have made them a group's. */
static void groups_find(struct worker_user *w)
{
	char pattern[DEVICE_FILE_PATH_SIZE];
	glob_t nodes = {0};
	struct stat st;

	if (glob(device_files_pattern(pattern), 0, NULL, &nodes) != 0)
		return;
	for (size_t i = 0; i < nodes.gl_pathc && w->group_count < WORKER_GROUPS_MAX; i++) {
		bool known = false;

		if (stat(nodes.gl_pathv[i], &st) < 0 || !device_file_is(&st) || st.st_gid == 0 ||
		    (st.st_mode & 0066) != 0060)
			continue;
		for (size_t k = 0; k < w->group_count; k++)
			known |= w->groups[k] == st.st_gid;
		if (!known)
			w->groups[w->group_count++] = st.st_gid;
	}
	globfree(&nodes);
}

int prepare_user(const struct node *node, struct worker_user *ret, struct error *err)
{
	const char *user = node->options.user;
	const struct passwd *entry = getpwnam(user ? user : PREPARE_USER);

	*ret = (struct worker_user){0};
	if (entry) {
		ret->uid = entry->pw_uid;
		ret->gid = entry->pw_gid;
	} else if (user) {
		return error_set(err, EXIT_CODE_FAILED, "--user: there is no user %.64s", user);
	} else if (free_id(&ret->uid)) {
		ret->gid = ret->uid;
	} else {
		return error_set(err, EXIT_CODE_FAILED,
				 "there is no user " PREPARE_USER
				 ", and all IDs from %u to %u are taken",
				 WARDEN_ID_FIRST, WARDEN_ID_LAST);
	}
	return 0;
}

/* ---- whether it can ---------------------------------------------------------------------- */

/* Opening the driver of eight GPUs that no process holds open may take this long. The worker waits
 * longer for its word (separate.c). */
#define DRIVER_PATIENCE_MS 20000

static bool driver_starts(void)
{
	struct error err = {0};
	struct gpus *gpus;

	return gpus_open(&gpus, &err) == 0;
}

/* In a child, as the worker. */
static enum obstacle obstacle_find(const struct worker_user *w)
{
	if (worker_user_become(w) < 0)
		return OBSTACLE_USER;
	if (access("/proc/1/stat", R_OK) < 0)
		return OBSTACLE_PROC;
	return driver_starts() ? OBSTACLE_NONE : OBSTACLE_DRIVER;
}

/* In a child, as root: a driver that starts for nobody is no obstacle. */
static enum obstacle obstacle_driver(const struct worker_user *w)
{
	(void)w;
	return driver_starts() ? OBSTACLE_DRIVER : OBSTACLE_NONE;
}

static const char *const obstacle_text[] = {
	[OBSTACLE_NONE] = "",
	[OBSTACLE_USER] = "it may not change its user: this user namespace does not map the one "
			  "that it would become",
	[OBSTACLE_PROC] = "/proc hides others' processes (hidepid), and it has to see who lives",
	[OBSTACLE_DRIVER] = "the driver does not start for the user that it would become: its "
			    "files, or the simulated host's, are root's alone",
};

/* Forks a process that has no descriptor of this process but the standard ones and *ret_out. The
 * other end of that pipe is *ret_in here. Returns as fork() does; -1: there is no child. */
static pid_t asker_fork(int *ret_in, int *ret_out)
{
	int ends[2];

	if (pipe2(ends, O_CLOEXEC) < 0)
		return -1;
	pid_t pid = fork();
	if (pid == 0) {
		*ret_out = dup2(ends[1], STDERR_FILENO + 1);
		(void)close_range((unsigned)*ret_out + 1, ~0u, 0);
		return 0;
	}
	close(ends[1]);
	if (pid > 0)
		*ret_in = ends[0];
	else
		close(ends[0]);
	return pid;
}

/* In a child of its own: what the question changes and opens ends with that child. A driver that
 * kills the child has not started, which is `crashed`. A driver that hangs says nothing of rights:
 * the worker begins without any, and tells users that it waits for the driver. */
static enum obstacle obstacle_ask(const struct worker_user *w,
				  enum obstacle (*find)(const struct worker_user *w),
				  enum obstacle crashed)
{
	unsigned char word = OBSTACLE_NONE;
	struct pollfd answer = {.events = POLLIN};
	int out;
	pid_t pid = asker_fork(&answer.fd, &out);

	if (pid == 0) {
		word = (unsigned char)find(w);
		(void)!write(out, &word, 1);
		_exit(0);
	}
	if (pid < 0)
		_exit(EXIT_FAILURE);
	if (poll(&answer, 1, DRIVER_PATIENCE_MS) == 1 && read(answer.fd, &word, 1) != 1)
		word = (unsigned char)crashed;
	close(answer.fd);
	(void)kill(pid, SIGKILL);
	return word;
}

/* In a child of the process that prepares, which polls for the answer meanwhile. */
static _Noreturn void obstacle_tell(const struct worker_user *w, int out)
{
	enum obstacle obstacle =
		w->uid ? obstacle_ask(w, obstacle_find, OBSTACLE_DRIVER) : OBSTACLE_NONE;

	if (obstacle == OBSTACLE_DRIVER)
		obstacle = obstacle_ask(w, obstacle_driver, OBSTACLE_NONE);
	(void)!write(out, &(unsigned char){obstacle}, 1);
	_exit(EXIT_SUCCESS);
}

int prepare_ask(const struct node *node, struct worker_preparation *ret, struct error *err)
{
	int out;

	*ret = (struct worker_preparation){.answer_fd = -1};
	if (prepare_user(node, &ret->user, err) < 0)
		return -1;
	groups_find(&ret->user);
	pid_t pid = asker_fork(&ret->answer_fd, &out);
	if (pid == 0)
		obstacle_tell(&ret->user, out);
	if (pid < 0)
		return error_set(err, EXIT_CODE_FAILED, "cannot ask whether the driver starts: %s",
				 strerrordesc_np(errno));
	return 0;
}

void prepare_forget(struct worker_preparation *preparation)
{
	close_fd(&preparation->answer_fd);
}

/* systemd has started a worker as its user: that worker cannot stay root. */
static int user_decide(const struct node *node, struct worker_preparation *preparation,
		       char *why_not, size_t size, struct error *err)
{
	bool service = node->options.warden;
	unsigned char obstacle;

	if (read_all(preparation->answer_fd, &obstacle, 1) != 1 || obstacle > OBSTACLE_DRIVER)
		return error_set(err, EXIT_CODE_FAILED,
				 "the process that asks whether the driver starts has ended");
	snprintf(why_not, size, "%s", obstacle_text[obstacle]);
	if (obstacle == OBSTACLE_NONE || (service && obstacle == OBSTACLE_DRIVER))
		return 0;
	if (service)
		return error_set(err, EXIT_CODE_FAILED, "it does not serve as user %u: %s",
				 preparation->user.uid, obstacle_text[obstacle]);
	preparation->user = (struct worker_user){0};
	return 0;
}

/* ---- files ------------------------------------------------------------------------------- */

/* The log is the worker's to write and to turn; what was in it before is in a second file. */
static int log_settle(const struct worker_user *w, struct error *err)
{
	char old[PATH_MAX];
	int length = log_path() ? snprintf(old, sizeof(old), "%s.old", log_path()) : 0;

	if (length <= 0 || (size_t)length >= sizeof(old))
		return 0;
	cleanup_close int fd = open(old, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0 || fchown(fd, w->uid, w->gid) < 0 || fchown(STDERR_FILENO, w->uid, w->gid) < 0)
		return error_set(err, EXIT_CODE_FAILED, "cannot give %s to user %u: %s", log_path(),
				 w->uid, strerrordesc_np(errno));
	return 0;
}

/* The directory of jobs is beside that of the state. */
static int warden_settle(const struct node *node, const char *state_dir, struct warden **warden,
			 const struct worker_user *w, int *ret_jobs_error, struct error *err)
{
	const struct warden_making making = {.runtime = &node->runtime,
					     .state_dir = state_dir,
					     .job_tasks = node->config.job_tasks,
					     .uid = w->uid,
					     .gid = w->gid};
	int rc = warden_host(&making, warden, ret_jobs_error);

	return rc < 0 ? error_set(err, EXIT_CODE_FAILED, "cannot make the warden: %s",
				  strerrordesc_np(-rc))
		      : 0;
}

/* ---- the word ---------------------------------------------------------------------------- */

static int word_send(int link_fd, struct separation_word *word,
		     const int fds[static SEPARATION_FDS])
{
	int given[SEPARATION_FDS];
	unsigned count = 0;

	word->magic = SEPARATION_MAGIC;
	word->size = sizeof(*word);
	word->fds = 0;
	for (unsigned kind = 0; kind < SEPARATION_FDS; kind++)
		if (fds[kind] >= 0) {
			word->fds |= 1u << kind;
			given[count++] = fds[kind];
		}
	return descriptors_send(link_fd, word, sizeof(*word), given, count);
}

void prepare_refuse(int link_fd, const struct error *err)
{
	static struct separation_word word;

	word = (struct separation_word){0};
	snprintf(word.refused, sizeof(word.refused), "%.300s%s%.200s", err->message,
		 err->hint[0] ? "; " : "", err->hint);
	(void)word_send(link_fd, &word, (const int[SEPARATION_FDS]){-1, -1, -1, -1});
}

/* ---- the whole --------------------------------------------------------------------------- */

/* If the file is wrong, this process goes on with the settings that it has. The worker prefers its
 * copy of the last good settings, and reads that copy itself: the copy is a text of the worker's.
 */
static void config_settle(struct node *node, struct separation_word *word)
{
	const char *path = node->options.config_path;
	struct config config;
	struct error why = {0};
	int rc = path ? config_read(path, &config, &why) : 0;

	if (path && rc == 0)
		node->config = config;
	snprintf(node->config_wrong, sizeof(node->config_wrong), "%s%s%s", why.message,
		 why.hint[0] ? "; " : "", why.hint);
	word->config = node->config;
	memcpy(word->config_wrong, node->config_wrong, sizeof(word->config_wrong));
	snprintf(word->config_path, sizeof(word->config_path), "%s", path ? path : "");
}

bool prepare_wanted(const struct node *node)
{
	return node->options.system && geteuid() == 0;
}

int prepare(struct node *node, struct warden **warden, int link_fd,
	    struct worker_preparation *preparation, struct error *err)
{
	static struct separation_word word;
	const struct runtime *runtime = &node->runtime;
	const struct worker_user *user = &preparation->user;
	/* Its place may change in this: the next worker's is looked for anew. */
	struct state state = node->state;
	struct claims claims = {0};
	int jobs_error = 0;

	word = (struct separation_word){.made_anew = runtime->made_anew,
					.host_capabilities = host_root_needed()};
	config_settle(node, &word);
	if (user_decide(node, preparation, word.separation.why_not, sizeof(word.separation.why_not),
			err) < 0 ||
	    state_prepare(&state, runtime, user->uid, user->gid, err) < 0 ||
	    log_settle(user, err) < 0 ||
	    warden_settle(node, state.wanted, warden, user, &jobs_error, err) < 0)
		return -1;
	int rc = claims_open(&claims, user->uid);
	if (rc < 0)
		log_event(LOG_WARNING, "claims.failed dir=" CLAIMS_DIR " error=\"%s\"",
			  strerrordesc_np(-rc));
	word.jobs_error = jobs_error;
	snprintf(word.state_dir, sizeof(word.state_dir), "%s", state.wanted);
	snprintf(word.state_stays, sizeof(word.state_stays), "%s", state.stays);
	bool gives = node->options.warden;
	rc = word_send(link_fd, &word,
		       (const int[SEPARATION_FDS]){claims.system ? claims.dir_fd : -1,
						   claims.system ? claims.lock_fd : -1,
						   gives ? runtime->attach_fd : -1,
						   gives ? runtime->http_fd : -1});
	claims_close(&claims);
	if (rc < 0)
		return error_set(err, EXIT_CODE_FAILED, "cannot tell the worker what it has: %s",
				 strerrordesc_np(-rc));
	warden_link(*warden, link_fd);
	return 0;
}

// NOLINTEND(concurrency-mt-unsafe)
