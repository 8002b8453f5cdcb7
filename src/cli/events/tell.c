/* An item is told to a command and to a URL, as the user who runs the verb. The end of a job is an
 * ID, a queue, a state, a time and numbers, and nothing that the job's user wrote, as root hears of
 * everybody's jobs. An event is JSON whose texts the daemon has cleaned. Whether an item was told
 * is the command's exit code and the server's status: the caller tries again until both say so. */
#include "cli/events/tell.h"

#include <curl/curl.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/error.h"
#include "base/file.h"
#include "base/macros.h"
#include "base/units.h"
#include "cli/cli.h"
#include "cli/events/follow.h"

#define POST_TIMEOUT_MS 10000L
#define TELL_NAME_SIZE 128
#define EXEC_TIMEOUT_NS 60000000000ull
/* The command is in a variable, where `ps` does not show it to other users. */
#define EXEC_SHELL                                                                 \
	"carve_exec=$" TELL_EXEC_ENV "; unset " TELL_EXEC_ENV " " TELL_WEBHOOK_ENV \
	"; eval \"$carve_exec\""

/* ---- a command ---------------------------------------------------------------------------- */

_Noreturn static void command_become(const struct tell *tell, const json_t *item, int in)
{
	if (dup2(in, STDIN_FILENO) < 0)
		_exit(EXIT_CODE_FAILED);
	/* With all that it starts it can be killed. */
	setpgid(0, 0);
	prctl(PR_SET_PDEATHSIG, SIGTERM);
	signal(SIGPIPE, SIG_DFL);
	tell->source->environment(item);
	setenv(TELL_EXEC_ENV, tell->command, 1);
	execl("/bin/sh", "sh", "-c", EXEC_SHELL, NULL);
	_exit(EXIT_CODE_FAILED);
}

/* False: it took too long, and was killed. */
static bool command_wait(pid_t child, uint64_t timeout_ns, int *ret_status)
{
	cleanup_close int pidfd = (int)syscall(SYS_pidfd_open, child, 0);
	struct pollfd ended = {.fd = pidfd, .events = POLLIN};
	bool late = pidfd >= 0 && poll(&ended, 1, (int)(timeout_ns / 1000000)) == 0;

	if (late)
		(void)kill(-child, SIGKILL);
	while (waitpid(child, ret_status, 0) < 0 && errno == EINTR)
		;
	return !late;
}

static int command_failed(const struct tell *tell, const json_t *item, const char *what,
			  struct error *err)
{
	char name[TELL_NAME_SIZE];

	return error_set(err, EXIT_CODE_FAILED, "the command for %s, %s",
			 tell->source->name(item, name, sizeof(name)), what);
}

int tell_command(const struct tell *tell, const json_t *item, struct error *err)
{
	cleanup_free char *text = json_dumps(item, JSON_COMPACT);
	char what[64] = "took too long and was killed";
	int ends[2], status = 0;

	if (!text || pipe2(ends, O_CLOEXEC) < 0)
		return command_failed(tell, item, "cannot be given a pipe", err);
	pid_t child = fork();
	if (child == 0)
		command_become(tell, item, ends[0]);
	close(ends[0]);
	/* A command that does not read it must not end this one. */
	signal(SIGPIPE, SIG_IGN);
	/* A whole line, as `read` in a script takes it. */
	if (child > 0 && write_all(ends[1], text, strlen(text)) == 0)
		(void)write_all(ends[1], "\n", 1);
	close(ends[1]);
	if (child < 0)
		return command_failed(tell, item, "cannot be started", err);
	bool in_time = command_wait(child, tell->timeout_ns, &status);
	if (in_time && status == 0)
		return 0;
	if (in_time && WIFSIGNALED(status))
		snprintf(what, sizeof(what), "was ended by signal %d", WTERMSIG(status));
	else if (in_time)
		snprintf(what, sizeof(what), "failed with exit code %d", WEXITSTATUS(status));
	return command_failed(tell, item, what, err);
}

/* ---- a URL -------------------------------------------------------------------------------- */

static int url_check(const char *url, struct error *err)
{
	if (!strncmp(url, "http://", 7) || !strncmp(url, "https://", 8))
		return 0;
	error_set(err, EXIT_CODE_USAGE, "--webhook takes an http:// or https:// URL");
	error_hint(err, "for example: --webhook https://example.org/hook");
	return -EXIT_CODE_USAGE;
}

static size_t ignore(char *data, size_t unit, size_t count, void *context)
{
	return unit * count;
}

/* libcurl brings thirty libraries along, 4 ms of each command's start: it is loaded where something
 * is posted. */
struct curl {
	CURL *(*init)(void);
	void (*cleanup)(CURL *handle);
	CURLcode (*setopt)(CURL *handle, CURLoption option, ...);
	CURLcode (*perform)(CURL *handle);
	CURLcode (*getinfo)(CURL *handle, CURLINFO info, ...);
	const char *(*strerror)(CURLcode code);
	struct curl_slist *(*append)(struct curl_slist *list, const char *text);
	void (*free_all)(struct curl_slist *list);
};

static bool curl_load(struct curl *ret)
{
	const struct {
		const char *name;
		void *place;
	} wanted[] = {
		{"curl_easy_init", &ret->init},       {"curl_easy_cleanup", &ret->cleanup},
		{"curl_easy_setopt", &ret->setopt},   {"curl_easy_perform", &ret->perform},
		{"curl_easy_getinfo", &ret->getinfo}, {"curl_easy_strerror", &ret->strerror},
		{"curl_slist_append", &ret->append},  {"curl_slist_free_all", &ret->free_all},
	};
	void *library = dlopen("libcurl.so.4", RTLD_NOW | RTLD_LOCAL);

	for (size_t i = 0; library && i < ARRAY_SIZE(wanted); i++) {
		void *found = dlsym(library, wanted[i].name);

		if (!found)
			return false;
		memcpy(wanted[i].place, &found, sizeof(found));
	}
	return library;
}

static CURLcode post_once(const struct curl *curl, CURL *handle, const char *url, const char *text,
			  long *ret_status)
{
	const char *token = secure_getenv("CARVE_WEBHOOK_TOKEN");
	cleanup_free char *bearer = NULL;
	struct curl_slist *headers = curl->append(NULL, "Content-Type: application/json");

	if (token && asprintf(&bearer, "Authorization: Bearer %s", token) > 0)
		headers = curl->append(headers, bearer);
	curl->setopt(handle, CURLOPT_URL, url);
	curl->setopt(handle, CURLOPT_POSTFIELDS, text);
	curl->setopt(handle, CURLOPT_HTTPHEADER, headers);
	curl->setopt(handle, CURLOPT_WRITEFUNCTION, ignore);
	curl->setopt(handle, CURLOPT_NOSIGNAL, 1L);
	curl->setopt(handle, CURLOPT_TIMEOUT_MS, POST_TIMEOUT_MS);
	curl->setopt(handle, CURLOPT_PROTOCOLS_STR, "http,https");
	CURLcode code = curl->perform(handle);
	curl->getinfo(handle, CURLINFO_RESPONSE_CODE, ret_status);
	curl->free_all(headers);
	return code;
}

/* Without a user's name and password before it. */
static const char *host_of(const char *url, char *buf, size_t size)
{
	const char *host = strstr(url, "://") + 3;
	size_t length = strcspn(host, "/?#");
	const char *at = memrchr(host, '@', length);

	if (at) {
		length -= (size_t)(at + 1 - host);
		host = at + 1;
	}
	snprintf(buf, size, "%.*s", (int)MIN(length, size - 1), host);
	return buf;
}

int tell_url(const struct tell *tell, const json_t *item, struct error *err)
{
	cleanup_free char *text = json_dumps(item, JSON_COMPACT);
	struct curl curl = {0};
	CURL *handle = curl_load(&curl) ? curl.init() : NULL;
	CURLcode code = CURLE_FAILED_INIT;
	char host[128], status_text[40], name[TELL_NAME_SIZE];
	long status = 0;

	if (handle && text)
		code = post_once(&curl, handle, tell->url, text, &status);
	if (handle)
		curl.cleanup(handle);
	if (code == CURLE_OK && status >= 200 && status < 300)
		return 0;
	snprintf(status_text, sizeof(status_text), "HTTP status %ld", status);
	return error_set(err, EXIT_CODE_FAILED, "the webhook at %s did not take %s: %s",
			 host_of(tell->url, host, sizeof(host)),
			 tell->source->name(item, name, sizeof(name)),
			 code == CURLE_OK ? status_text
			 : handle         ? curl.strerror(code)
					  : "libcurl.so.4 cannot be loaded");
}

/* ---- options ------------------------------------------------------------------------------ */

static bool is_there(const char *variable)
{
	const char *value = secure_getenv(variable);

	return value && *value;
}

bool tell_is_asked(void)
{
	return is_there(TELL_EXEC_ENV) || is_there(TELL_WEBHOOK_ENV);
}

static const char *chosen(const struct cli *cli, enum cli_option_id id, const char *variable)
{
	const char *value = cli->value[id] ? cli->value[id] : secure_getenv(variable);

	return value && *value ? value : NULL;
}

int tell_options(const struct cli *cli, const struct follow_source *source, struct tell *ret,
		 struct error *err)
{
	const char *timeout = cli->value[OPT_JOB_EXEC_TIMEOUT];

	*ret = (struct tell){
		.source = source,
		.command = chosen(cli, OPT_JOB_EXEC, TELL_EXEC_ENV),
		.url = chosen(cli, OPT_JOB_WEBHOOK, TELL_WEBHOOK_ENV),
		.timeout_ns = EXEC_TIMEOUT_NS,
	};
	const char *exec = cli->value[OPT_JOB_EXEC];
	if (exec && !exec[strspn(exec, " \t\n")]) {
		error_set(err, EXIT_CODE_USAGE, "--exec: there is no command in it");
		error_hint(err, "for example: --exec 'logger carve', or leave it out");
		return -EXIT_CODE_USAGE;
	}
	if (timeout && !ret->command) {
		error_set(err, EXIT_CODE_USAGE, "--exec-timeout: there is no command to kill");
		error_hint(err, "name it with --exec CMD");
		return -EXIT_CODE_USAGE;
	}
	if (cli->value[OPT_JOB_WEBHOOK])
		ret->url = cli->value[OPT_JOB_WEBHOOK];
	int rc = ret->url ? url_check(ret->url, err) : 0;
	if (rc == 0 && timeout)
		rc = units_parse_seconds(timeout, "--exec-timeout", &ret->timeout_ns, err);
	if (rc == 0 && !ret->timeout_ns) {
		error_set(err, EXIT_CODE_USAGE, "--exec-timeout: '%.64s' gives a command no time",
			  timeout);
		error_hint(err, "for example: --exec-timeout 30");
		return -EXIT_CODE_USAGE;
	}
	ret->timeout_ns = MIN(ret->timeout_ns, INT_MAX * 1000000ull);
	return rc;
}
