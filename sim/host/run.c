/* There are three processes. The runner (this one) waits for the command and passes signals on. The
 * server is in a session of its own, so that the terminal's signals miss it. The third is the
 * command. The server ends when the runner's end of a socket pair closes, however the runner ends,
 * and takes the directory with it. */
#include "host/run.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/error.h"
#include "base/file.h"
#include "base/macros.h"
#include "base/program.h"
#include "host/client.h"
#include "host/directory.h"
#include "host/host.h"
#include "host/server.h"
#include "host/spec.h"

#define HOST_MARK "{host}"
/* Beside this program: a directory for each release of the driver that is not the default. */
#define DRIVER_RELEASES "driver"

static void complain(const char *what, int error)
{
	fprintf(stderr, "%s: %s: %s\n", program_invocation_short_name, what,
		strerrordesc_np(error < 0 ? -error : error));
}

/* ---- the server ---- */

static void server_detach(void)
{
	static const int ignored[] = {SIGINT,  SIGQUIT, SIGTERM, SIGHUP,
				      SIGPIPE, SIGUSR1, SIGUSR2, SIGXFSZ};
	static const __rlimit_resource_t raised[] = {RLIMIT_NOFILE, RLIMIT_FSIZE, RLIMIT_CPU};
	struct rlimit limit;
	sigset_t none;
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);

	for (size_t i = 0; i < ARRAY_SIZE(ignored); i++)
		signal(ignored[i], SIG_IGN);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	setsid();
	if (chdir("/") < 0 || null < 0 || dup2(null, STDIN_FILENO) < 0 ||
	    dup2(null, STDOUT_FILENO) < 0)
		_exit(EXIT_CODE_RUN_FAILED);
	close(null);
	/* Two descriptors a process, two more for what each exports; the host is no program of the
	 * shell whose ulimit -f and -t these are. */
	for (size_t i = 0; i < ARRAY_SIZE(raised); i++) {
		if (getrlimit(raised[i], &limit) < 0)
			continue;
		limit.rlim_cur = limit.rlim_max;
		setrlimit(raised[i], &limit);
	}
}

static uint64_t clock_now(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* The seed for boards that nobody has built; 0: the real ones. */
static uint32_t seed_wanted(void)
{
	const char *text = getenv("SIMGPU_MIG_SEED");

	return text ? (uint32_t)strtoul(text, NULL, 10) : 0;
}

static int serve(const struct run_options *o, const struct directory *directory, int control)
{
	static struct host host;
	struct server *server = NULL;
	char ready = 'r';
	int status = host_init(&host, o->spec, o->driver, clock_now(CLOCK_MONOTONIC));

	if (status == 0) {
		host.page->mig_seed = seed_wanted();
		mig_shuffle(host.page->mig_seed);
		host.page->realtime_offset = clock_now(CLOCK_REALTIME) - clock_now(CLOCK_MONOTONIC);
		status = server_new(&host, directory->path, &server);
	}
	if (status < 0)
		complain(directory->path, status);
	if (status == 0)
		status = write_all(control, &ready, 1);
	if (status == 0)
		status = server_run(server, control);
	server_free(server);
	host_finish(&host);
	directory_remove(directory->path);
	return status < 0 ? EXIT_CODE_RUN_FAILED : 0;
}

/* Forks the server and waits until it listens. Returns its PID, or -1 (said why). */
static pid_t server_start(const struct run_options *o, const struct directory *directory,
			  int *ret_control)
{
	int ends[2];
	char ready;

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) < 0) {
		complain("socketpair", errno);
		return -1;
	}
	pid_t pid = fork();
	if (pid == 0) {
		close(ends[0]);
		server_detach();
		_exit(serve(o, directory, ends[1]));
	}
	close(ends[1]);
	if (pid < 0)
		complain("fork", errno);
	if (pid < 0 || read(ends[0], &ready, 1) != 1) {
		close(ends[0]);
		return -1;
	}
	*ret_control = ends[0];
	return pid;
}

/* ---- the command ---- */

/* The text with every "{host}" in it replaced. NULL: out of memory; the caller frees it. */
static char *host_mark_replace(const char *text, const char *host)
{
	size_t host_length = strlen(host), mark_length = strlen(HOST_MARK), marks = 0;

	for (const char *at = text; (at = strstr(at, HOST_MARK)); at += mark_length)
		marks++;
	char *result = malloc(strlen(text) + marks * host_length + 1), *to = result;
	if (!result)
		return NULL;
	for (const char *mark; (mark = strstr(text, HOST_MARK)); text = mark + mark_length) {
		to = mempcpy(to, text, (size_t)(mark - text));
		to = mempcpy(to, host, host_length);
	}
	memcpy(to, text, strlen(text) + 1);
	return result;
}

static int env_put(const char *assignment, const char *host)
{
	const char *equals = strchr(assignment, '=');
	char *name = strndup(assignment, (size_t)(equals - assignment));
	char *value = host_mark_replace(equals + 1, host);
	int status = name && value ? setenv(name, value, 1) : -1;

	free(name);
	free(value);
	return status < 0 ? -ENOMEM : 0;
}

/* A list of directories without those at its beginning that are `directory` or in it. */
static const char *list_after(const char *list, const char *directory)
{
	size_t length = strlen(directory);

	while (!strncmp(list, directory, length) && strchr("/:", list[length])) {
		list += strcspn(list, ":");
		list += *list == ':';
	}
	return list;
}

/* Puts the directories of the simulated libraries first in a list of directories: that of the
 * played release, where it is not the default, and this program's. */
static int library_path_put(const char *variable, const char *directory, uint32_t branch)
{
	char release[PATH_MAX];
	const char *old = getenv(variable);
	cleanup_free char *path = NULL;

	old = old ? list_after(old, directory) : "";
	snprintf(release, sizeof(release), "%s/" DRIVER_RELEASES "/%" PRIu32, directory, branch);
	bool other = access(release, F_OK) == 0;
	if (asprintf(&path, "%s%s%s%s%s", other ? release : "", other ? ":" : "", directory,
		     *old ? ":" : "", old) < 0) {
		path = NULL;
		return -ENOMEM;
	}
	return setenv(variable, path, 1) < 0 ? -errno : 0;
}

/* For the dynamic linker, and for compilers. */
static int library_paths_put(uint32_t branch)
{
	char directory[PATH_MAX];
	int status = executable_dir(directory, sizeof(directory));

	if (status == 0)
		status = library_path_put("LD_LIBRARY_PATH", directory, branch);
	return status < 0 ? status : library_path_put("LIBRARY_PATH", directory, branch);
}

/* The release that a host which is there plays; 0: it does not answer. */
static uint32_t branch_of_host(void)
{
	struct client *client;

	if (client_connect(WIRE_ROLE_TOOL, &client) < 0)
		return 0;
	uint32_t branch = client_host(client)->driver_branch;
	client_disconnect(client);
	return branch;
}

/* Becomes the command; returns the exit code where that failed. */
static int command_exec(const struct run_options *o, const char *host)
{
	char why[PROGRAM_WHY_SIZE];
	int status = setenv(WIRE_ENV_HOST, host, 1) < 0 ? -errno : 0;

	if (status == 0)
		status = library_paths_put(o->join ? branch_of_host() : o->driver->branch);
	for (size_t i = 0; i < o->env_count && status == 0; i++)
		status = env_put(o->env[i], host);
	if (status < 0) {
		complain("environment", status);
		return EXIT_CODE_RUN_FAILED;
	}
	execvp(o->command[0], o->command);
	status = program_why(o->command[0], errno, why);
	fprintf(stderr, "%s: %s: %s\n", o->program, *o->command[0] ? o->command[0] : "''", why);
	return status;
}

static const int passed_on[] = {SIGINT,  SIGQUIT,  SIGTERM, SIGHUP, SIGUSR1,
				SIGUSR2, SIGWINCH, SIGTSTP, SIGCONT};

static void signals_block(sigset_t *ret_old)
{
	sigset_t set;

	sigemptyset(&set);
	for (size_t i = 0; i < ARRAY_SIZE(passed_on); i++)
		sigaddset(&set, passed_on[i]);
	sigaddset(&set, SIGCHLD);
	sigprocmask(SIG_BLOCK, &set, ret_old);
}

/* True once the command has ended, with *ret_status its wait status. */
static bool command_ended(pid_t pid, int *ret_status)
{
	int status;

	while (waitpid(pid, &status, WNOHANG | WUNTRACED) == pid) {
		if (!WIFSTOPPED(status)) {
			*ret_status = status;
			return true;
		}
		/* Stop too, so that the shell that waits for us sees its job stopped. */
		raise(SIGSTOP);
		kill(pid, SIGCONT);
	}
	return false;
}

static int command_wait(pid_t pid)
{
	sigset_t set;
	siginfo_t info;
	int status;

	sigemptyset(&set);
	for (size_t i = 0; i < ARRAY_SIZE(passed_on); i++)
		sigaddset(&set, passed_on[i]);
	sigaddset(&set, SIGCHLD);
	while (!command_ended(pid, &status)) {
		int signal_number = sigwaitinfo(&set, &info);

		/* The terminal sends its signals to the whole foreground group: the command has
		 * them. */
		if (signal_number > 0 && signal_number != SIGCHLD && info.si_code != SI_KERNEL)
			kill(pid, signal_number);
	}
	return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

static int command_run_in(const struct run_options *o, const struct directory *directory)
{
	sigset_t old;

	signals_block(&old);
	pid_t pid = fork();
	if (pid == 0) {
		sigprocmask(SIG_SETMASK, &old, NULL);
		_exit(command_exec(o, directory->path));
	}
	if (pid < 0) {
		complain("fork", errno);
		return EXIT_CODE_RUN_FAILED;
	}
	return command_wait(pid);
}

static void server_stop(pid_t pid, int control, const struct directory *directory)
{
	int status;

	close(control);
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	if (WIFSIGNALED(status)) {
		fprintf(stderr, "%s: the simulated host died of signal %d\n",
			program_invocation_short_name, WTERMSIG(status));
		directory_remove(directory->path);
	}
}

/* Anybody may look into the directory, and talk to the host. */
static int open_to_all(const struct directory *directory)
{
	char socket_path[PATH_MAX];

	snprintf(socket_path, sizeof(socket_path), "%s/%s", directory->path, WIRE_SOCKET_NAME);
	return chmod(socket_path, 0666) < 0 || chmod(directory->path, 0755) < 0 ? -errno : 0;
}

int run(const struct run_options *o)
{
	struct directory directory;
	int control;

	if (o->join)
		return command_exec(o, o->join);
	directory_sweep();
	int status = directory_make(&directory);
	if (status < 0) {
		complain("cannot make a directory in /tmp", status);
		return EXIT_CODE_RUN_FAILED;
	}
	pid_t server = server_start(o, &directory, &control);
	if (server < 0) {
		directory_remove(directory.path);
		return EXIT_CODE_RUN_FAILED;
	}
	status = o->shared ? open_to_all(&directory) : 0;
	if (status < 0)
		complain(directory.path, status);
	int code = status < 0 ? EXIT_CODE_RUN_FAILED : command_run_in(o, &directory);
	server_stop(server, control, &directory);
	return code;
}
