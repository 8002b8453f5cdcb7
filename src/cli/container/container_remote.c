#include "cli/container/container_remote.h"

#include <jansson.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "base/error.h"
#include "base/file.h"
#include "base/macros.h"
#include "cli/container/container_watch.h"
#include "container/container_args.h"

/* The value of the last option of this name, "" where it has none; NULL: it is not there. */
static const char *option_value(const struct words *words, const char *name, char letter)
{
	const char *found = NULL, *next;
	size_t length = strlen(name);

	for (size_t i = 0; i < words->count; i++) {
		const char *word = words->list[i];

		next = i + 1 < words->count ? words->list[i + 1] : "";
		if (!strncmp(word, "--", 2) && !strncmp(word + 2, name, length) &&
		    (word[2 + length] == '=' || !word[2 + length]))
			found = word[2 + length] ? word + 3 + length : next;
		else if (letter && word[0] == '-' && word[1] == letter)
			found = word[2] ? word + 2 + (word[2] == '=') : next;
	}
	return found;
}

static const char *variable(const char *name)
{
	const char *value = secure_getenv(name);

	return value && *value ? value : NULL;
}

static int refuse(const char *what, const char *where, struct error *err)
{
	error_set(err, EXIT_CODE_RUN_FAILED,
		  "%s: %.200s may be another host, whose GPUs carve does not share", what, where);
	error_hint(err, "run carve there, or name a socket of this host");
	return -EXIT_CODE_RUN_FAILED;
}

/* podman's client of another podman takes no hooks, wherever that one is. */
static int podman_check(const struct container_args *args, struct error *err)
{
	static const struct {
		const char *name;
		char letter;
	} options[] = {{"remote", 'r'}, {"url", 0}, {"connection", 'c'}};
	static const char *const variables[] = {"CONTAINER_HOST", "CONTAINER_CONNECTION"};

	for (size_t i = 0; i < ARRAY_SIZE(options); i++) {
		const char *value =
			option_value(&args->everywhere, options[i].name, options[i].letter);

		if (value && strcmp(value, "false") != 0)
			return error_set(
				err, EXIT_CODE_RUN_FAILED,
				"podman --%s: a slice needs podman itself, not its service",
				options[i].name);
	}
	for (size_t i = 0; i < ARRAY_SIZE(variables); i++)
		if (secure_getenv(variables[i]))
			return error_set(err, EXIT_CODE_RUN_FAILED,
					 "%s is set: a slice needs podman itself, not its service",
					 variables[i]);
	return 0;
}

/* The context that docker's configuration chooses; "": none. */
static void context_read(char *buf, size_t size)
{
	const char *dir = variable("DOCKER_CONFIG"), *home = variable("HOME");
	char path[PATH_MAX];

	snprintf(path, sizeof(path), "%.2000s%s/config.json",
		 dir    ? dir
		 : home ? home
			: "",
		 dir ? "" : "/.docker");
	json_t *json = json_load_file(path, 0, NULL);
	const char *name = json_string_value(json_object_get(json, "currentContext"));
	snprintf(buf, size, "%s", name ? name : "");
	json_decref(json);
}

/* A socket, or a port of this host, behind which docker may be. */
static bool is_here(const char *endpoint)
{
	static const char *const here[] = {"unix://",          "fd://",      "/",
					   "tcp://localhost:", "tcp://127.", "tcp://[::1]:"};

	for (size_t i = 0; i < ARRAY_SIZE(here); i++)
		if (!strncmp(endpoint, here[i], strlen(here[i])))
			return true;
	return !*endpoint;
}

/* Whether somebody listens at a socket of this host. */
static bool socket_answers(const char *endpoint)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	const char *path = !strncmp(endpoint, "unix://", 7) ? endpoint + 7
			   : !*endpoint                     ? "/var/run/docker.sock"
							    : endpoint;
	cleanup_close int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	return fd >= 0 && *path == '/' &&
	       snprintf(address.sun_path, sizeof(address.sun_path), "%s", path) <
		       (int)sizeof(address.sun_path) &&
	       connect(fd, (struct sockaddr *)&address, sizeof(address)) == 0;
}

/* docker itself says why it has no daemon. Its `run` with a slice's options would say that the
 * daemon's system is unknown. A docker that is not installed is told of later. */
static int reach_check(const struct container_args *args, const char *endpoint, struct error *err)
{
	const char *const version[] = {"version", "--format", "{{.Server.Version}}", NULL};
	char why[400];

	if (socket_answers(endpoint) ||
	    runtime_ask_error(&(struct runtime){"docker", args->everywhere.list}, why, sizeof(why),
			      version) ||
	    !*why)
		return 0;
	return error_set(err, EXIT_CODE_RUN_FAILED, "docker: %s", why);
}

/* docker's own order: --context, --host, DOCKER_HOST, DOCKER_CONTEXT, its configuration. */
static int docker_check(const struct container_args *args, struct error *err)
{
	const char *context = option_value(&args->global, "context", 'c');
	const char *host = context ? NULL : option_value(&args->global, "host", 'H');
	char name[256] = "", endpoint[512] = "";

	if (!context && !host)
		host = variable("DOCKER_HOST");
	if (host)
		return is_here(host) ? reach_check(args, host, err)
				     : refuse("docker run", host, err);
	if (!context)
		context = variable("DOCKER_CONTEXT");
	if (!context)
		context_read(name, sizeof(name));
	else
		snprintf(name, sizeof(name), "%s", context);
	if (!*name || !strcmp(name, "default"))
		return reach_check(args, "", err);
	const char *const inspect[] = {
		"context", "inspect", "--format", "{{.Endpoints.docker.Host}}", name, NULL};
	/* One that is not there is docker's own to tell. */
	if (!runtime_ask(&(struct runtime){.program = "docker"}, endpoint, sizeof(endpoint),
			 inspect))
		return 0;
	return is_here(endpoint) ? reach_check(args, endpoint, err)
				 : refuse("docker run", endpoint, err);
}

int container_remote_check(const char *runtime, const struct container_args *args,
			   struct error *err)
{
	if (!strcmp(runtime, "podman"))
		return podman_check(args, err);
	return strcmp(runtime, "docker") != 0 ? 0 : docker_check(args, err);
}
