#include "cli/job/agent_pods.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/error.h"
#include "base/file.h"
#include "base/macros.h"
#include "cli/cli.h"
#include "client/client.h"

#define PROGRAM "carve-kubernetes"
#define WORDS_MAX 16
/* The reader says a few lines. */
#define SAID_SIZE 4096
#define MAX_PODS_MAX 100000

int agent_pods_check(const struct cli *cli, struct error *err)
{
	static const struct {
		enum cli_option_id id;
		const char *name;
	} of_pods[] = {{OPT_AGENT_TEMPLATE, "--pod-template"}, {OPT_AGENT_NAMESPACE, "--namespace"},
		       {OPT_AGENT_PODS, "--max-pods"},         {OPT_AGENT_API, "--api"},
		       {OPT_AGENT_TOKEN, "--token-file"},      {OPT_AGENT_CA, "--ca-file"}},
	  of_host[] = {{OPT_AGENT_GPUS, "--gpus"},
		       {OPT_AGENT_ALLOW, "--docker-allow"},
		       {OPT_AGENT_DENY, "--docker-deny"}};
	const char *on = cli->value[OPT_AGENT_ON];

	if (on && strcmp(on, "kubernetes") != 0) {
		error_set(err, EXIT_CODE_USAGE, "--on: '%.64s' is no place for jobs", on);
		error_hint(err, "--on kubernetes, or leave it out for the GPUs of this host");
		return -EXIT_CODE_USAGE;
	}
	if (on && !cli->value[OPT_AGENT_TEMPLATE] && !cli->value[OPT_JOB_DOCKER] &&
	    !cli->value[OPT_AGENT_STOP]) {
		error_set(err, EXIT_CODE_USAGE, "--on kubernetes: the pods have no image");
		error_hint(err, "name one with --docker IMAGE, or a pod with --pod-template FILE");
		return -EXIT_CODE_USAGE;
	}
	for (size_t i = 0; !on && i < ARRAY_SIZE(of_pods); i++)
		if (cli->value[of_pods[i].id])
			return error_set(err, EXIT_CODE_USAGE, "%s only goes with --on kubernetes",
					 of_pods[i].name);
	for (size_t i = 0; on && i < ARRAY_SIZE(of_host); i++)
		if (cli->value[of_host[i].id])
			return error_set(err, EXIT_CODE_USAGE,
					 "%s does not go with --on kubernetes", of_host[i].name);
	return 0;
}

/* ---- carve-kubernetes reads the template --------------------------------------------------- */

static size_t word_add(char *words[WORDS_MAX], size_t count, const char *option, const char *value)
{
	if (value) {
		words[count++] = (char *)option;
		words[count++] = (char *)value;
	}
	words[count] = NULL;
	return count;
}

_Noreturn static void reader_become(const struct cli *cli, int out, int said)
{
	char path[PATH_MAX], *words[WORDS_MAX] = {path, (char *)"template"};
	size_t count = 2;

	(void)executable_beside(PROGRAM, path, sizeof(path));
	count = word_add(words, count, "--pod-template", cli->value[OPT_AGENT_TEMPLATE]);
	count = word_add(words, count, "--namespace",
			 cli->value[OPT_AGENT_NAMESPACE] ? cli->value[OPT_AGENT_NAMESPACE]
							 : "default");
	count = word_add(words, count, "--image", cli->value[OPT_JOB_DOCKER]);
	count = word_add(words, count, "--api", cli->value[OPT_AGENT_API]);
	count = word_add(words, count, "--token-file", cli->value[OPT_AGENT_TOKEN]);
	(void)word_add(words, count, "--ca-file", cli->value[OPT_AGENT_CA]);
	if (dup2(out, STDOUT_FILENO) >= 0 && dup2(said, STDERR_FILENO) >= 0)
		execv(path, words);
	fprintf(stderr, PROGRAM ": cannot be executed: %s\n", strerrordesc_np(errno));
	_exit(EXIT_CODE_NOT_FOUND);
}

/* Prints what the reader said. The last line of a reader that `failed` becomes the error instead.
 */
static void said_tell(int fd, bool failed, char last[static SAID_SIZE])
{
	char text[SAID_SIZE];
	ssize_t n = pread(fd, text, sizeof(text) - 1, 0);
	char *line = text, *end;

	last[0] = '\0';
	text[n > 0 ? n : 0] = '\0';
	for (; *line; line = end) {
		end = line + strcspn(line, "\n");
		end += *end == '\n';
		if (!failed || *end) {
			fprintf(stderr, "%.*s", (int)(end - line), line);
			continue;
		}
		const char *words = line;
		if (!strncmp(words, PROGRAM ": ", strlen(PROGRAM ": ")))
			words += strlen(PROGRAM ": ");
		snprintf(last, SAID_SIZE, "%.*s", (int)strcspn(words, "\n"), words);
	}
}

static int template_read(const struct cli *cli, json_t **ret, struct error *err)
{
	cleanup_close int said = memfd_create("carve-said", MFD_CLOEXEC);
	char last[SAID_SIZE];
	int ends[2], status = 0;

	/* The template alone could be read without a cluster, and each job would fail. */
	if (!cli->value[OPT_AGENT_API] && !secure_getenv("KUBERNETES_SERVICE_HOST")) {
		error_set(err, EXIT_CODE_USAGE,
			  "this is no pod of a cluster, and no API server is named");
		error_hint(err, "--api https://HOST:6443 --token-file FILE --ca-file FILE");
		return -EXIT_CODE_USAGE;
	}
	if (pipe(ends) < 0)
		return error_set(err, EXIT_CODE_FAILED, "pipe: %s", strerrordesc_np(errno));
	fflush(NULL);
	pid_t child = fork();
	if (child == 0)
		reader_become(cli, ends[1], said);
	close(ends[1]);
	FILE *from = fdopen(ends[0], "r");
	*ret = from ? json_loadf(from, 0, NULL) : NULL;
	if (from)
		fclose(from);
	while (child > 0 && waitpid(child, &status, 0) < 0 && errno == EINTR)
		;
	bool read = child > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0 && *ret;
	said_tell(said, !read, last);
	if (read)
		return 0;
	json_decref(*ret);
	*ret = NULL;
	error_set(err,
		  WIFEXITED(status) && WEXITSTATUS(status) ? WEXITSTATUS(status) : EXIT_CODE_FAILED,
		  "%s", *last ? last : "the pod template cannot be read");
	return -err->code;
}

/* ---- the request -------------------------------------------------------------------------- */

/* NAME=N of a queue whose template has maxPods becomes NAME=N,max=K, where it says no K itself. */
static void limits_add(json_t *queues, const json_t *of_template)
{
	size_t i;
	json_t *item;

	json_array_foreach(queues, i, item)
	{
		const char *text = json_string_value(item);
		char name[128];

		snprintf(name, sizeof(name), "%.*s", (int)strcspn(text, "=,"), text);
		const json_t *max = json_object_get(json_object_get(of_template, name), "max_pods");
		if (json_is_integer(max) && !strstr(text, ",max="))
			json_array_set_new(
				queues, i,
				json_sprintf("%s,max=%d", text, (int)json_integer_value(max)));
	}
}

static int number_read(const char *text, json_t **ret, struct error *err)
{
	char *end;
	long number = strtol(text, &end, 10);

	if (*text >= '0' && *text <= '9' && !*end && number >= 1 && number <= MAX_PODS_MAX) {
		*ret = json_integer(number);
		return 0;
	}
	error_set(err, EXIT_CODE_USAGE, "--max-pods: '%.32s' is no number of pods", text);
	error_hint(err, "a number from 1 to %d", MAX_PODS_MAX);
	return -EXIT_CODE_USAGE;
}

/* Jobs run elsewhere than this command does. */
static int path_add(json_t *pods, const char *key, const char *option, const char *path,
		    struct error *err)
{
	char whole[PATH_MAX];

	if (!path)
		return 0;
	if (!realpath(path, whole) || access(whole, R_OK) < 0)
		return error_set(err, EXIT_CODE_USAGE, "%s %.200s: %s", option, path,
				 strerrordesc_np(errno));
	json_object_set_new(pods, key, json_string(whole));
	return 0;
}

int agent_pods_body(const struct cli *cli, json_t *body, struct error *err)
{
	json_t *pods = json_object(), *most = NULL, *template = NULL;
	const char *namespace = cli->value[OPT_AGENT_NAMESPACE];

	json_object_set_new(body, "pods", pods);
	json_object_set_new(pods, "namespace", json_string(namespace ? namespace : "default"));
	if (cli->value[OPT_AGENT_API])
		json_object_set_new(pods, "api", json_string(cli->value[OPT_AGENT_API]));
	int rc = path_add(pods, "token_file", "--token-file", cli->value[OPT_AGENT_TOKEN], err);
	if (rc == 0)
		rc = path_add(pods, "ca_file", "--ca-file", cli->value[OPT_AGENT_CA], err);
	if (rc == 0 && cli->value[OPT_AGENT_PODS])
		rc = number_read(cli->value[OPT_AGENT_PODS], &most, err);
	if (most)
		json_object_set_new(pods, "max", most);
	if (rc == 0)
		rc = template_read(cli, &template, err);
	if (rc < 0)
		return rc;
	json_object_set_new(pods, "template", template);
	limits_add(json_object_get(body, "queues"), json_object_get(template, "queues"));
	return 0;
}
