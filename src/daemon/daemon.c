#include "daemon/daemon.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/cgroup.h"
#include "base/error.h"
#include "base/file.h"
#include "base/host_root.h"
#include "base/options.h"
#include "base/units.h"
#include "daemon/config_last.h"
#include "daemon/config_notes.h"
#include "daemon/gpu/probe.h"
#include "daemon/host/limited.h"
#include "daemon/host/log.h"
#include "daemon/host/pod.h"
#include "daemon/host/runtime.h"
#include "daemon/host/supervisor.h"
#include "daemon/node.h"
#include "daemon/prepare.h"
#include "daemon/purge.h"
#include "daemon/queue/job_store.h"
#include "daemon/separate.h"
#include "daemon/serve.h"
#include "daemon/supervisor/supervise.h"
#include "daemon/upgrade/upgrade.h"
#include "daemon/warden_make.h"
#include "proto/attach.h"

/* The supervisor has another name, so that `pkill carved` means the daemon. */
#define PROCESS_NAME "carved"

// NOLINTBEGIN(concurrency-mt-unsafe): all of this runs before there are threads.

static const char help[] =
	"carved - the node daemon of carve: it owns this host's GPUs and grants slices of them\n"
	"\n"
	"usage: carved [--system | --runtime-dir DIR] [--state-dir DIR] [--config FILE]\n"
	"              [--user NAME] [--pod] [--idle-exit SECONDS] [--foreground] [--ready-fd N]\n"
	"       carved [--system | --runtime-dir DIR] --takeover\n"
	"       carved --system --warden [--state-dir DIR] [--user NAME]\n"
	"       carved [--system | --runtime-dir DIR] --purge | --clear\n"
	"       carved --config FILE --check-config\n"
	"       carved --kubernetes [OPTION]...\n"
	"\n"
	"  --system             serve all users, in /run/carve (what root gets without "
	"--runtime-dir)\n"
	"  --runtime-dir DIR    sockets and log go here (default: $CARVE_RUNTIME_DIR, else as "
	"root\n"
	"                       /run/carve, else $XDG_RUNTIME_DIR/carve or /tmp/carve-UID)\n"
	"  --state-dir DIR      sessions, quotas, settings and history are kept here (default:\n"
	"                       /var/lib/carve for /run/carve, $XDG_STATE_HOME/carve/HOST for a\n"
	"                       user's daemon where that is set, else the runtime directory)\n"
	"  --user NAME          the user, without rights, as which root's system daemon serves\n"
	"                       (default: carve, else a free ID from 60706 on; root: it stays "
	"root)\n"
	"  --pod                serve in a pod of Kubernetes: root of the pod's other containers "
	"may\n"
	"                       make and release sessions and set the MIG role, as the kubelet's\n"
	"                       plugin does\n"
	"  --idle-exit SECONDS  end after that long without sessions and connections\n"
	"  --foreground         stay in the foreground, log to stderr (else: DIR/carved.log)\n"
	"  --config FILE        read the configuration (again on SIGHUP); see carved(8)\n"
	"  --check-config       only say whether that file is right, and warn of names that this\n"
	"                       machine does not know, and of files that cannot be read\n"
	"  --takeover           have the daemon that serves DIR become this program: sessions, "
	"sockets\n"
	"                       and calls under way go on\n"
	"  --warden             be the process with root's rights of a system daemon that has "
	"none\n"
	"  --purge              remove what a daemon that has ended left: its runtime directory, "
	"sessions,\n"
	"                       quotas, history and logs; refused where these are another user's\n"
	"  --clear              remove its runtime directory, and a system daemon's claims, alone\n"
	"  --kubernetes         be carve-kubernetes node, the kubelet's plugin beside a carved\n"
	"  --ready-fd N         write one byte to descriptor N when the sockets listen; stays in "
	"the\n"
	"                       foreground too\n"
	"  --help, --version\n"
	"\n"
	"example: carved --runtime-dir /tmp/c --foreground &\n"
	"         curl --unix-socket /tmp/c/carved.sock http://localhost/v1/gpus\n";

struct arguments {
	const char *runtime_dir, *state_dir, *user, *probe_uuid, *config, *takeover_check;
	bool system, pod, foreground, check_config, takeover, warden, purge, clear;
	bool warded; /* this is the worker of a system daemon, whose warden tells it its settings */
	uint64_t idle_exit_ns;
	int ready_fd;
};

enum {
	OPTION_SYSTEM = 256,
	OPTION_DIR,
	OPTION_STATE_DIR,
	OPTION_USER,
	OPTION_POD,
	OPTION_IDLE,
	OPTION_FOREGROUND,
	OPTION_READY,
	OPTION_CONFIG,
	OPTION_CHECK_CONFIG,
	OPTION_WARDEN,
	OPTION_PURGE,
	OPTION_CLEAR,
	OPTION_PROBE,
	OPTION_TAKEOVER,
	OPTION_TAKEOVER_CHECK,
	OPTION_HELP,
	OPTION_VERSION
};

static const struct option options[] = {
	{"system", no_argument, NULL, OPTION_SYSTEM},
	{"runtime-dir", required_argument, NULL, OPTION_DIR},
	{"state-dir", required_argument, NULL, OPTION_STATE_DIR},
	{"user", required_argument, NULL, OPTION_USER},
	{"pod", no_argument, NULL, OPTION_POD},
	{"idle-exit", required_argument, NULL, OPTION_IDLE},
	{"foreground", no_argument, NULL, OPTION_FOREGROUND},
	{"config", required_argument, NULL, OPTION_CONFIG},
	{"check-config", no_argument, NULL, OPTION_CHECK_CONFIG},
	{"ready-fd", required_argument, NULL, OPTION_READY},
	{"takeover", no_argument, NULL, OPTION_TAKEOVER},
	{"takeover-check", required_argument, NULL, OPTION_TAKEOVER_CHECK},
	{"warden", no_argument, NULL, OPTION_WARDEN},
	{"purge", no_argument, NULL, OPTION_PURGE},
	{"clear", no_argument, NULL, OPTION_CLEAR},
	{"probe-context", required_argument, NULL, OPTION_PROBE},
	{"help", no_argument, NULL, OPTION_HELP},
	{"version", no_argument, NULL, OPTION_VERSION},
	{0},
};

static int fail(const struct error *err)
{
	fprintf(stderr, "carved: %s%s%s\n", err->message, err->hint[0] ? "; " : "", err->hint);
	return err->code ? err->code : EXIT_CODE_FAILED;
}

/* True: goes on. False: *ret_code is the exit code. */
static bool option_take(int option, struct arguments *args, int *ret_code, struct error *err)
{
	uint64_t number;

	switch (option) {
	case OPTION_SYSTEM:
		args->system = true;
		return true;
	case OPTION_DIR:
		args->runtime_dir = optarg;
		return true;
	case OPTION_STATE_DIR:
		args->state_dir = optarg;
		return true;
	case OPTION_USER:
		args->user = optarg;
		return true;
	case OPTION_POD:
		args->pod = true;
		return true;
	case OPTION_FOREGROUND:
		args->foreground = true;
		return true;
	case OPTION_CONFIG:
		args->config = optarg;
		return true;
	case OPTION_CHECK_CONFIG:
		args->check_config = true;
		return true;
	case OPTION_PURGE:
		args->purge = true;
		return true;
	case OPTION_CLEAR:
		args->clear = true;
		return true;
	case OPTION_WARDEN:
		args->warden = true;
		return true;
	case OPTION_PROBE:
		args->probe_uuid = optarg;
		return true;
	case OPTION_TAKEOVER:
		args->takeover = true;
		return true;
	case OPTION_TAKEOVER_CHECK:
		args->takeover_check = optarg;
		return true;
	case OPTION_IDLE:
		if (units_parse_seconds(optarg, "--idle-exit", &args->idle_exit_ns, err) == 0)
			return true;
		break;
	case OPTION_READY:
		if (units_parse_count(optarg, "--ready-fd", 3, 1 << 20, &number, err) == 0) {
			args->ready_fd = (int)number;
			args->foreground = true;
			return true;
		}
		break;
	case OPTION_HELP:
		fputs(help, stdout);
		*ret_code = EXIT_CODE_OK;
		return false;
	case OPTION_VERSION:
		puts("carved " CARVE_VERSION);
		*ret_code = EXIT_CODE_OK;
		return false;
	default:
		break;
	}
	if (!err->hint[0])
		error_hint(err, "see carved --help");
	*ret_code = fail(err);
	return false;
}

/* systemd starts the worker of a system daemon as the user that it is to be. */
static bool is_warded(const struct arguments *args)
{
	return supervisor_is_own() ? supervisor_socket(SUPERVISOR_WARDEN) >= 0
				   : supervisor_keeps() && args->system && geteuid() != 0;
}

static bool arguments_parse(int argc, char **argv, struct arguments *args, int *ret_code)
{
	struct error err = {0};
	int option;

	while ((option = options_next(argc, argv, options, &err)) != -1)
		if (!option_take(option, args, ret_code, &err))
			return false;
	if (optind < argc) {
		fprintf(stderr, "carved: unexpected argument '%s'; see carved --help\n",
			argv[optind]);
		*ret_code = EXIT_CODE_USAGE;
		return false;
	}
	return true;
}

/* Started from inside a slice, the daemon would see that slice as its GPU: start again without the
 * front. */
static void leave_slice(char **argv)
{
	const char *preload = getenv("LD_PRELOAD");
	bool fronted = preload &&
		       (strstr(preload, "libcuda.so.1") || strstr(preload, "libnvidia-ml.so.1"));

	if (!fronted && !getenv(ATTACH_ENV_SESSION))
		return;
	unsetenv("LD_PRELOAD");
	unsetenv(ATTACH_ENV_SESSION);
	unsetenv(ATTACH_ENV_STAMP);
	unsetenv(ATTACH_ENV_SOCKET);
	execv("/proc/self/exe", argv);
}

/* ---- the background ---------------------------------------------------------------------- */

/* Waits for the daemon that was forked: 'R' when it listens, else its last words. */
static int background_wait(int fd)
{
	char text[1024];
	size_t length = 0;
	ssize_t n;

	while (length < sizeof(text) - 1 && !(length && text[0] == 'R') &&
	       ((n = read(fd, text + length, sizeof(text) - 1 - length)) > 0 ||
		(n < 0 && errno == EINTR)))
		length += n > 0 ? (size_t)n : 0;
	if (length && text[0] == 'R')
		return EXIT_CODE_OK;
	(void)!write(STDERR_FILENO, text, length);
	return EXIT_CODE_FAILED;
}

/* Leaves the terminal. Its standard error stays the pipe until the log is open. */
static int background_enter(const struct runtime *runtime)
{
	static char path[128];

	runtime_path(runtime, "carved.log", path, sizeof(path));
	cleanup_close int null = open("/dev/null", O_RDWR | O_CLOEXEC);
	if (null < 0 || chdir("/") < 0)
		return -errno;
	dup2(null, STDIN_FILENO);
	dup2(null, STDOUT_FILENO);
	return log_to_file(path);
}

/* A command that starts a daemon opens the log for it. From then on the daemon looks after the
 * file: turns a full one, and makes a removed one anew. */
static void log_take_up(const struct runtime *runtime)
{
	static char path[128];

	runtime_path(runtime, "carved.log", path, sizeof(path));
	if (!log_path() && file_is_at(STDERR_FILENO, path))
		(void)log_to_file(path);
}

/* ---- the whole --------------------------------------------------------------------------- */

static struct runtime_start start_of(const struct node *node)
{
	return (struct runtime_start){.system = node->options.system,
				      .config = node->options.config_path,
				      .state_dir = node->options.state_dir,
				      .user = node->options.user,
				      .idle_exit_ns = node->options.idle_exit_ns};
}

/* The daemon proper, under a supervisor. */
static int serve(struct node *node, struct error *err)
{
	prctl(PR_SET_NAME, PROCESS_NAME, 0, 0, 0);
	supervisor_follow();
	log_take_up(&node->runtime);
	limited_log();
	const struct runtime_start start = start_of(node);
	if (separate(node, &start, err) < 0)
		return EXIT_CODE_FAILED;
	/* A system daemon files claims on GPUs; others take names. */
	node->pool.claims.stays = !strcmp(node->runtime.dir, RUNTIME_DIR_SYSTEM);
	int code = serve_run(node, err);
	privileges_leave(&node->privileges);
	if (node->runtime.sole_fd >= 0)
		runtime_end(&node->runtime);
	return code;
}

static int serve_supervised(struct node *node)
{
	char text[sizeof(((struct error *)NULL)->message) * 2];
	struct error err = {0};
	int code = serve(node, &err);

	if (!err.message[0])
		return code;
	/* The caller who started the supervisor may read it there. */
	snprintf(text, sizeof(text), "STATUS=%s%s%s", err.message, err.hint[0] ? "; " : "",
		 err.hint);
	supervisor_tell(text);
	return fail(&err);
}

/* ---- the supervisor ---------------------------------------------------------------------- */

static int worker_ask(struct supervise *supervise, struct worker_preparation *ret,
		      struct error *err)
{
	return prepare_ask(supervise->arg, ret, err);
}

static int worker_prepare(struct supervise *supervise, int link_fd,
			  struct worker_preparation *preparation, struct error *err)
{
	return prepare(supervise->arg, &supervise->warden, link_fd, preparation, err);
}

static struct supervise supervise_of(struct node *node, char **argv)
{
	return (struct supervise){
		.runtime = &node->runtime,
		.start = start_of(node),
		.argv = argv,
		.ready_fd = -1,
		.words_fd = -1,
		.ask = prepare_wanted(node) ? worker_ask : NULL,
		.prepare = worker_prepare,
		.arg = node,
	};
}

static int supervise_in_foreground(struct node *node, char **argv)
{
	struct supervise supervise = supervise_of(node, argv);
	struct error err = {0};

	log_take_up(&node->runtime);
	/* After it became another program, the number is another descriptor's. */
	if (node->runtime.lock_fd < 0)
		supervise.ready_fd = node->options.ready_fd;
	int code = supervise_run(&supervise, &err);
	return err.message[0] ? fail(&err) : code;
}

/* Its words until the first worker serves go to the pipe. */
static int supervise_as_child(struct node *node, char **argv, int fd)
{
	struct supervise supervise = supervise_of(node, argv);
	struct error err = {0};

	setsid();
	supervise.ready_fd = fd;
	supervise.words_fd = fcntl(fd, F_DUPFD_CLOEXEC, 3);
	supervise.begin = background_enter;
	int code = supervise_run(&supervise, &err);
	if (err.message[0])
		dprintf(supervise.words_fd, "carved: %s%s%s\n", err.message,
			err.hint[0] ? "; " : "", err.hint);
	return code;
}

static int supervise_in_background(struct node *node, char **argv)
{
	int ends[2];

	if (pipe2(ends, O_CLOEXEC) < 0)
		return EXIT_CODE_FAILED;
	pid_t pid = fork();
	if (pid < 0)
		return EXIT_CODE_FAILED;
	if (pid > 0) {
		close(ends[1]);
		return background_wait(ends[0]);
	}
	close(ends[0]);
	return supervise_as_child(node, argv, ends[1]);
}

/* 0 or -1 with errno. */
static int path_absolute(const char *path, char ret[static PATH_MAX])
{
	char cwd[PATH_MAX] = "";
	bool relative = path[0] != '/';

	if (relative && !getcwd(cwd, sizeof(cwd)))
		return -1;
	if (snprintf(ret, PATH_MAX, "%s%s%s", cwd, relative ? "/" : "", path) < PATH_MAX)
		return 0;
	errno = ENAMETOOLONG;
	return -1;
}

static int config_take(const struct arguments *args, struct node *node, struct error *err)
{
	static char path[PATH_MAX]; /* absolute: the daemon leaves this directory */

	node->config = config_default;
	if (!args->config || args->warded)
		return EXIT_CODE_OK;
	/* A file that is gone may come back. */
	if (!realpath(args->config, path) &&
	    (errno != ENOENT || path_absolute(args->config, path) < 0))
		return -error_set(err, EXIT_CODE_FAILED, "%.300s: %s", args->config,
				  strerrordesc_np(errno));
	node->options.config_path = path;
	return config_read(args->config, &node->config, err) < 0 ? err->code : EXIT_CODE_OK;
}

/* A start with a file that is wrong: the settings hold that were right last, if there are some.
 * Returns the status to end with, or 0. */
static int config_take_last(const struct arguments *args, struct node *node, int config_code,
			    struct error *err)
{
	if (!config_code || !node->options.config_path ||
	    config_last_find(node->state.wanted, node->runtime.dir, &node->config) < 0)
		return config_code;
	snprintf(node->config_wrong, sizeof(node->config_wrong), "%s%s%s", err->message,
		 err->hint[0] ? "; " : "", err->hint);
	*err = (struct error){0};
	/* Its place may be another than the usual. */
	if (state_choose(&node->state, &node->runtime, args->state_dir, node->config.state_dir,
			 err) < 0)
		return err->code;
	log_event(LOG_ERROR, "config.refused error=\"%s\" settings=last", node->config_wrong);
	return EXIT_CODE_OK;
}

static void note_print(void *arg, const char *text)
{
	(void)arg;
	fprintf(stderr, "carved: warning: %s\n", text);
}

static int config_tell(const struct arguments *args, const struct config *config)
{
	const char *user = args->user ? args->user : PREPARE_USER;

	if (args->config)
		config_notes(config, user, note_print, NULL);
	if (args->config)
		printf("carved: %s is right\n", args->config);
	else
		puts("carved: nothing to check: without --config FILE no file is read, and the "
		     "built-in values hold");
	return EXIT_CODE_OK;
}

/* A caller that asks reads its answer from here, whichever it is. */
static int takeover_check(const struct arguments *args, const struct node *node, int config_code,
			  struct error *err)
{
	char dir[PATH_MAX / 2];
	int code = config_code;

	if (!code && (state_check(&node->runtime, dir, err) < 0 || job_store_check(dir, err) < 0))
		code = EXIT_CODE_FAILED;
	if (!code)
		code = upgrade_check(args->takeover_check, err);
	if (code)
		printf("%s%s%s\n", err->message, err->hint[0] ? "; " : "", err->hint);
	return code;
}

/* The user who starts the daemon may have set wishes for other programs. These are: which GPUs they
 * see, a share of MPS, how much a context has ready, a tool to be loaded with them. They are
 * nothing to the daemon, nor to what it learns of a context's cost. */
static void leave_cuda_settings(void)
{
	static const char prefix[] = "CUDA_";
	char name[64];

	for (char **entry = environ; *entry;) {
		size_t length = strcspn(*entry, "=");

		if (strncmp(*entry, prefix, sizeof(prefix) - 1) != 0 || length >= sizeof(name)) {
			entry++;
			continue;
		}
		memcpy(name, *entry, length);
		name[length] = '\0';
		unsetenv(name); /* the entries after it move up */
	}
}

/* Becomes the plugin of a cluster's node, which is a program beside this one. Returns where it
 * cannot. */
static int kubernetes_exec(char **argv)
{
	char path[PATH_MAX];
	struct error err = {0};
	int rc = executable_beside("carve-kubernetes", path, sizeof(path));

	if (rc == 0) {
		argv[0] = path;
		argv[1] = (char *)"node";
		execv(path, argv);
		rc = -errno;
	}
	error_set(&err, EXIT_CODE_FAILED, "cannot execute %.300s: %s", path, strerrordesc_np(-rc));
	return fail(&err);
}

/* Where the daemon's directories are. 0, or an exit code with *err. */
static int places_choose(struct arguments *args, struct node *node, struct error *err)
{
	if (!args->runtime_dir && !args->system)
		args->runtime_dir = getenv("CARVE_RUNTIME_DIR");
	if (args->system && !args->runtime_dir)
		args->runtime_dir = RUNTIME_DIR_SYSTEM;
	node->options.state_dir = args->state_dir;
	if (runtime_choose(&node->runtime, args->runtime_dir, err) < 0 ||
	    state_choose(&node->state, &node->runtime, args->state_dir, node->config.state_dir,
			 err) < 0)
		return err->code;
	return 0;
}

/* Asks the daemon that runs to become this program. An exit code. */
static int takeover(const struct arguments *args, const struct node *node)
{
	struct error err = {0};

	if (args->state_dir || args->config || args->idle_exit_ns || args->user || args->pod) {
		error_set(&err, EXIT_CODE_USAGE,
			  "--takeover: the daemon that runs keeps its options; none but --system "
			  "or --runtime-dir goes with it");
		error_hint(&err, "its --config file is read anew; other options change by a "
				 "restart");
		return fail(&err);
	}
	int code = upgrade_ask(node->runtime.dir, &err);

	return code ? fail(&err) : code;
}

static void options_take(const struct arguments *args, struct node *node)
{
	host_root_remember();
	node->options.system = args->system || (!args->runtime_dir && geteuid() == 0);
	node->options.user = args->user;
	node->options.pod = args->pod;
	node->options.warden = args->warden;
	node->options.idle_exit_ns = args->idle_exit_ns;
	node->options.ready_fd = args->ready_fd;
}

/* Serves, or prepares for a daemon that will. An exit code. */
static int node_begin(struct arguments *args, struct node *node, char **argv)
{
	struct error err = {0};
	int code;

	options_take(args, node);
	const struct runtime_start start = start_of(node);
	umask(077);
	if (node->options.pod && pod_enter(&err) < 0)
		return fail(&err);
	if (args->purge || args->clear)
		return (code = purge(node, args->user, args->purge, &err)) ? fail(&err) : code;
	if (args->warden)
		return (code = warden_main(node, &start, &err)) ? fail(&err) : code;
	cgroup_leave_job();
	signal(SIGPIPE, SIG_IGN);
	if (limited_descriptors_raise(&err) < 0)
		return fail(&err);
	/* Root's system daemon has a supervisor of carve's own, also below systemd: that hosts its
	 * warden. */
	if (supervisor_is_own() || (supervisor_keeps() && !prepare_wanted(node)))
		return serve_supervised(node);
	runtime_continue(&node->runtime);
	if (args->foreground || node->runtime.lock_fd >= 0)
		return supervise_in_foreground(node, argv);
	return supervise_in_background(node, argv);
}

int daemon_main(int argc, char **argv)
{
	/* Large: on the heap's side of things, not the stack's. */
	static struct node node;
	struct arguments args = {.ready_fd = -1};
	struct error err = {0}, place = {0};
	int code;

	/* A file that may not grow is a full disk. Each part of the daemon and each child begins
	 * here, with the handling of signals as libuv resets it. */
	signal(SIGXFSZ, SIG_IGN);
	signal(SIGCHLD, SIG_DFL); /* ignored, children would have no status */
	standard_descriptors_hold();
	if (argc > 1 && !strcmp(argv[1], "--kubernetes"))
		return kubernetes_exec(argv);
	leave_slice(argv);
	supervisor_begin();
	leave_cuda_settings();
	if (!arguments_parse(argc, argv, &args, &code))
		return code;
	if (args.probe_uuid)
		return probe_main(args.probe_uuid);
	args.warded = is_warded(&args);
	/* The worker is not root any more. */
	args.system |= args.warded;
	code = config_take(&args, &node, &err);
	if (args.check_config)
		return code ? fail(&err) : config_tell(&args, &node.config);
	if (places_choose(&args, &node, &place))
		return fail(&place);
	if (args.takeover_check)
		return takeover_check(&args, &node, code, &err);
	if ((code = config_take_last(&args, &node, code, &err)))
		return fail(&err);
	if (args.takeover)
		return takeover(&args, &node);
	return node_begin(&args, &node, argv);
}

// NOLINTEND(concurrency-mt-unsafe)
