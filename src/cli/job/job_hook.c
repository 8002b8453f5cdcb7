#include "cli/job/job_hook.h"

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
#include "cli/job/job_options.h"
#include "client/sessions.h"

#define POST_TIMEOUT_MS 10000L
#define POST_TRIES 3
#define POST_AGAIN_MS 1000
#define HOOK_TIMEOUT_NS 60000000000ull
/* The command is in a variable, where `ps` does not show it to other users. */
#define HOOK_SHELL                                                              \
	"carve_hook=$" JOB_HOOK_ENV "; unset " JOB_HOOK_ENV " " JOB_WEBHOOK_ENV \
	"; eval \"$carve_hook\""

/* ---- a command ---------------------------------------------------------------------------- */

_Noreturn static void command_become(const char *command, const json_t *event, int in)
{
	if (dup2(in, STDIN_FILENO) < 0)
		_exit(EXIT_CODE_FAILED);
	/* With all that it starts it can be killed. */
	setpgid(0, 0);
	prctl(PR_SET_PDEATHSIG, SIGTERM);
	signal(SIGPIPE, SIG_DFL);
	setenv("CARVE_JOB_ID", session_text(event, "id"), 1);
	setenv("CARVE_JOB_QUEUE", session_text(event, "queue"), 1);
	setenv("CARVE_JOB_STATE", session_text(event, "state"), 1);
	setenv(JOB_HOOK_ENV, command, 1);
	execl("/bin/sh", "sh", "-c", HOOK_SHELL, NULL);
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

static int command_run(const struct job_hook *hook, const json_t *event, struct error *err)
{
	cleanup_free char *text = json_dumps(event, JSON_COMPACT);
	int ends[2], status = 0;

	fflush(stdout);
	if (!text || pipe2(ends, O_CLOEXEC) < 0)
		return error_set(err, EXIT_CODE_FAILED, "cannot run the hook: %s",
				 strerrordesc_np(errno));
	pid_t child = fork();
	if (child == 0)
		command_become(hook->command, event, ends[0]);
	close(ends[0]);
	/* A command that does not read it must not end this one. */
	signal(SIGPIPE, SIG_IGN);
	if (child > 0)
		(void)write_all(ends[1], text, strlen(text));
	close(ends[1]);
	if (child < 0)
		return error_set(err, EXIT_CODE_FAILED, "cannot run the hook: %s",
				 strerrordesc_np(errno));
	bool in_time = command_wait(child, hook->timeout_ns, &status);
	if (!in_time || status != 0)
		fprintf(stderr, "carve: note: the hook %s for job %s, %s\n",
			in_time ? "failed" : "took too long and was killed",
			session_text(event, "id"), session_text(event, "state"));
	return 0;
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

static void url_post(const char *url, const json_t *event)
{
	cleanup_free char *text = json_dumps(event, JSON_COMPACT);
	struct curl curl = {0};
	CURL *handle = curl_load(&curl) ? curl.init() : NULL;
	CURLcode code = CURLE_FAILED_INIT;
	char host[128];
	long status = 0;

	for (int i = 0; handle && text && i < POST_TRIES; i++) {
		if (i)
			(void)poll(NULL, 0, POST_AGAIN_MS);
		code = post_once(&curl, handle, url, text, &status);
		/* A request that the other side understood and refuses is not sent again. */
		if (code == CURLE_OK && status < 500)
			break;
	}
	if (handle)
		curl.cleanup(handle);
	if (code == CURLE_OK && status >= 200 && status < 300)
		return;
	fprintf(stderr, "carve: note: the webhook at %s did not take job %s, %s: ",
		host_of(url, host, sizeof(host)), session_text(event, "id"),
		session_text(event, "state"));
	if (code == CURLE_OK)
		fprintf(stderr, "HTTP status %ld\n", status);
	else
		fprintf(stderr, "%s\n",
			handle ? curl.strerror(code) : "libcurl.so.4 cannot be loaded");
}

/* ---- both --------------------------------------------------------------------------------- */

static const char *chosen(const struct cli *cli, enum cli_option_id id, const char *variable)
{
	const char *value = cli->value[id] ? cli->value[id] : secure_getenv(variable);

	return value && *value ? value : NULL;
}

int job_hook_options(const struct cli *cli, struct job_hook *ret, struct error *err)
{
	const char *timeout = cli->value[OPT_JOB_HOOK_TIMEOUT];

	*ret = (struct job_hook){
		.command = chosen(cli, OPT_JOB_HOOK, JOB_HOOK_ENV),
		.url = chosen(cli, OPT_JOB_WEBHOOK, JOB_WEBHOOK_ENV),
		.timeout_ns = HOOK_TIMEOUT_NS,
	};
	int rc = ret->url ? url_check(ret->url, err) : 0;
	if (rc == 0 && timeout)
		rc = units_parse_seconds(timeout, "--hook-timeout", &ret->timeout_ns, err);
	if (rc == 0 && !ret->timeout_ns) {
		error_set(err, EXIT_CODE_USAGE, "--hook-timeout: '%.64s' gives a hook no time",
			  timeout);
		error_hint(err, "for example: --hook-timeout 30");
		return -EXIT_CODE_USAGE;
	}
	ret->timeout_ns = MIN(ret->timeout_ns, INT_MAX * 1000000ull);
	return rc;
}

int job_hook_tell(const struct job_hook *hook, const json_t *event, struct error *err)
{
	int rc = hook->command ? command_run(hook, event, err) : 0;

	if (rc == 0 && hook->url)
		url_post(hook->url, event);
	return rc;
}

static void variable_add(json_t *env, const char *name, const char *value)
{
	if (value)
		json_array_append_new(env, json_sprintf("%s=%s", name, value));
}

json_t *job_hook_program(const struct cli *cli, const struct job_hook *hook, struct error *err)
{
	const char *timeout = cli->value[OPT_JOB_HOOK_TIMEOUT];
	json_t *program = json_object(), *argv = json_array();
	char dir[PATH_MAX];
	int rc = executable_dir(dir, sizeof(dir));

	if (rc < 0)
		error_set(err, EXIT_CODE_FAILED, "cannot find carve: %s", strerrordesc_np(-rc));
	else
		rc = job_options_place(program, err);
	json_array_append_new(argv, json_sprintf("%s/carve", dir));
	json_array_append_new(argv, json_string("job"));
	json_array_append_new(argv, json_string("events"));
	json_array_append_new(argv, json_string("--stdin"));
	if (timeout)
		json_array_append_new(argv, json_sprintf("--hook-timeout=%s", timeout));
	json_object_set_new(program, "argv", argv);
	json_t *env = json_object_get(program, "env");
	variable_add(env, JOB_HOOK_ENV, hook->command);
	variable_add(env, JOB_WEBHOOK_ENV, hook->url);
	if (rc == 0)
		return program;
	json_decref(program);
	return NULL;
}
