/* carve agent: starts an agent in the foreground or under the daemon, and looks after agents. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/error.h"
#include "base/macros.h"
#include "cli/cli.h"
#include "cli/job/agent_pods.h"
#include "cli/job/job_options.h"
#include "cli/job/jobs.h"
#include "cli/output.h"
#include "client/client.h"
#include "client/sessions.h"
#include "container/container_args.h"
#include "container/container_find.h"
#include "core/queue_spec.h"

#define AGENT_PATH_SIZE 96

/* ---- showing ------------------------------------------------------------------------------ */

static void agents_print(const json_t *agents)
{
	static const char *const headings[] = {"AGENT",   "USER",    "GPUS",   "QUEUE", "SIZE",
					       "WAITING", "RUNNING", "REASON", NULL};
	cleanup_table struct table table;
	size_t i, j;
	json_t *agent, *queue;

	table_begin(&table, headings);
	json_array_foreach(agents, i, agent)
	{
		json_array_foreach(json_object_get(agent, "queues"), j, queue)
		{
			table_add(&table, "%s", session_text(agent, "id"));
			table_add(&table, "%s", session_text(agent, "user"));
			table_add(&table, "%s",
				  json_object_get(agent, "pods") ? "pods"
								 : session_text(agent, "gpus"));
			table_add(&table, "%s", session_text(queue, "name"));
			table_add(&table, "%s", session_text_or_dash(queue, "size"));
			table_add(&table, "%d", (int)session_number(queue, "waiting"));
			table_add(&table, "%d", (int)session_number(queue, "running"));
			table_add(&table, "%s", session_text_or_dash(queue, "reason"));
		}
	}
	table_print(&table);
}

static int status(const struct cli *cli, const struct client *client, struct error *err)
{
	cleanup_json json_t *agents = NULL;
	int rc = client_call(client, "GET", "/v1/agents", NULL, NULL, &agents, err);

	if (rc < 0)
		return rc;
	if (cli->value[OPT_JSON])
		return output_json(agents, err);
	if (!json_array_size(agents))
		printf("no agent runs\n");
	else
		agents_print(agents);
	return 0;
}

/* ---- starting ----------------------------------------------------------------------------- */

static bool is_gpus(const char *word)
{
	return strspn(word, "0123456789,-") == strlen(word);
}

/* `--gpus 0, 1`: words that go on with a list that is not over. */
static bool continues_gpus(const char *gpus, const char *word)
{
	size_t length = strlen(gpus);

	return length && (gpus[length - 1] == ',' || *word == ',') && is_gpus(word);
}

/* The GPUs as one text, and queues as they stand, which are the body's. Words are either, wherever
 * they stand. */
static int words_take(const struct cli *cli, json_t *body, char gpus[static 256], struct error *err)
{
	json_t *queues = json_array();

	json_object_set_new(body, "queues", queues);
	snprintf(gpus, 256, "%s", cli->value[OPT_AGENT_GPUS] ? cli->value[OPT_AGENT_GPUS] : "all");
	for (int i = 0; i < cli->given_count; i++)
		if (cli->given[i].id == OPT_QUEUE)
			json_array_append_new(queues, json_string(cli->given[i].value));
	for (int i = 0; i < cli->argument_count; i++) {
		const char *word = cli->arguments[i];

		if (continues_gpus(gpus, word)) {
			snprintf(gpus + strlen(gpus), 256 - strlen(gpus), "%s", word);
		} else if (is_gpus(word)) {
			error_set(err, EXIT_CODE_USAGE, "agent: unexpected argument '%.64s'", word);
			error_hint(err, "GPUs are one list: --gpus 0,1 or --gpus 0-2");
			return -EXIT_CODE_USAGE;
		} else {
			json_array_append_new(queues, json_string(word));
		}
	}
	return 0;
}

static void text_add(json_t *body, const char *key, const char *value)
{
	if (value)
		json_object_set_new(body, key, json_string(value));
}

/* Before a daemon is started for it. *ret_contained: a queue has an image. */
static int words_check(const char *gpus, const json_t *queues, bool *ret_contained,
		       struct error *err)
{
	struct queue_spec spec;
	uint64_t mask;
	int rc = queue_gpus_parse(gpus, &mask, err);

	for (size_t i = 0; rc == 0 && i < json_array_size(queues); i++)
		if ((rc = queue_spec_parse(json_string_value(json_array_get(queues, i)), &spec,
					   err)) == 0)
			*ret_contained |= *spec.image != '\0';
	return rc;
}

/* A word that is misspelt in such a list would allow or forbid nothing. */
static int option_names_check(const char *option, const char *list, struct error *err)
{
	for (const char *at = list ? list : ""; *at; at += strcspn(at, ", ")) {
		at += strspn(at, ", ");
		const char *name = at + strspn(at, "-");
		size_t length = strcspn(name, ", ");

		if (!*at || container_args_known(name, length))
			continue;
		error_set(err, EXIT_CODE_USAGE,
			  "%s: podman, docker and apptainer have no option '%.*s'", option,
			  (int)MIN(length, 64), name);
		error_hint(err, "for example: %s env,ipc", option);
		return -EXIT_CODE_USAGE;
	}
	return 0;
}

static int containers_check(const struct cli *cli, struct error *err)
{
	static const struct {
		enum cli_option_id id;
		const char *option;
	} lists[] = {{OPT_AGENT_ALLOW, "--docker-allow"}, {OPT_AGENT_DENY, "--docker-deny"}};
	int rc = job_image_check(cli, err);

	for (size_t i = 0; rc == 0 && i < ARRAY_SIZE(lists); i++) {
		const char *list = cli->value[lists[i].id];

		if (list && !list[strspn(list, ", -")])
			rc = error_set(err, EXIT_CODE_USAGE,
				       "%s: the list is empty; leave the option out",
				       lists[i].option);
		else
			rc = option_names_check(lists[i].option, list, err);
	}
	return rc;
}

/* `carve agent stop` would start an agent for a queue of this name. */
static int act_word_check(const struct cli *cli, struct error *err)
{
	static const struct {
		const char *word, *right;
	} acts[] = {
		{"stop", "carve agent --stop"},
		{"start", "carve agent --queue NAME=N --detached"},
		{"status", "carve agent --status"},
		{"list", "carve agent --status"},
		{"ls", "carve agent --status"},
		{"show", "carve agent --status"},
		{"drain", "carve agent --drain"},
		{"resume", "carve agent --resume"},
		{"restart", "carve agent --stop, then carve agent --queue NAME=N --detached"},
		{"help", "carve agent --help"},
	};
	const char *word = cli->argument_count ? cli->arguments[0] : "";

	for (size_t i = 0; i < ARRAY_SIZE(acts); i++) {
		if (strcmp(word, acts[i].word) != 0)
			continue;
		error_set(err, EXIT_CODE_USAGE,
			  "agent: '%s' would be the name of a queue: did you mean %s?", word,
			  acts[i].right);
		error_hint(err, "a queue of that name: --queue %s", word);
		return -EXIT_CODE_USAGE;
	}
	return 0;
}

static int body_make(const struct cli *cli, json_t *body, struct error *err)
{
	char gpus[256];
	bool contained = cli->value[OPT_JOB_DOCKER] != NULL;
	int rc = agent_pods_check(cli, err);

	if (rc == 0)
		rc = act_word_check(cli, err);
	if (rc == 0)
		rc = containers_check(cli, err);
	if (rc < 0)
		return rc;
	if ((rc = words_take(cli, body, gpus, err)) < 0)
		return rc;
	const json_t *queues = json_object_get(body, "queues");
	text_add(body, "gpus", cli->value[OPT_AGENT_ON] ? NULL : gpus);
	json_object_set_new(body, "order_fairness",
			    json_boolean(cli->value[OPT_AGENT_FAIRNESS] != NULL));
	text_add(body, "image", cli->value[OPT_JOB_DOCKER]);
	text_add(body, "container_allow", cli->value[OPT_AGENT_ALLOW]);
	text_add(body, "container_deny", cli->value[OPT_AGENT_DENY]);
	json_object_set_new(body, "detached", json_boolean(cli->value[OPT_AGENT_DETACHED] != NULL));
	if (!json_array_size(queues)) {
		error_set(err, EXIT_CODE_USAGE, "agent: no queue is named");
		error_hint(err, "for example: %s", cli->verb->example);
		return -EXIT_CODE_USAGE;
	}
	rc = words_check(gpus, queues, &contained, err);
	if (rc == 0 && cli->value[OPT_AGENT_ON])
		return agent_pods_body(cli, body, err);
	if (rc == 0 && contained && !container_runtime_find(err))
		rc = -EXIT_CODE_NOT_FOUND;
	return rc;
}

/* The child: prints what happens, until its parent ends it. */
_Noreturn static void events_print(const struct cli *cli)
{
	struct error err = {0};

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (job_changes_print(cli, &err) < 0)
		output_error(&err, cli->value[OPT_JSON]);
	_exit(EXIT_CODE_UNREACHABLE);
}

static void stop(const struct client *client, const char *id)
{
	char path[AGENT_PATH_SIZE];
	struct error ignored;

	snprintf(path, sizeof(path), "/v1/agents/%s", id);
	(void)client_call(client, "DELETE", path, NULL, NULL, NULL, &ignored);
}

/* In the foreground: until a signal. Jobs that run end by themselves. */
static int stay(const struct cli *cli, const struct client *client, const char *id)
{
	sigset_t set, before;
	int number = 0;

	sigemptyset(&set);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGHUP);
	sigaddset(&set, SIGCHLD);
	sigprocmask(SIG_BLOCK, &set, &before);
	fflush(stdout);
	pid_t child = fork();
	if (child == 0) {
		sigprocmask(SIG_SETMASK, &before, NULL);
		events_print(cli);
	}
	while (sigwait(&set, &number) != 0 ||
	       (number == SIGCHLD && waitpid(child, NULL, WNOHANG) == 0))
		;
	if (child > 0 && number != SIGCHLD) {
		kill(child, SIGKILL);
		waitpid(child, NULL, 0);
	}
	stop(client, id);
	return number == SIGCHLD ? EXIT_CODE_UNREACHABLE : EXIT_CODE_OK;
}

/* Queues that were given no size, which a user may have left out by mistake. */
static void sizeless_print(const json_t *agent)
{
	size_t i;
	json_t *queue;

	json_array_foreach(json_object_get(agent, "queues"), i, queue)
	{
		const char *name = session_text(queue, "name");

		if (!*session_text(queue, "size"))
			printf("queue %s: jobs of any size that say it themselves (--vram); for a "
			       "fraction of a GPU each: --queue %s=0.5\n",
			       name, name);
	}
}

static int start(const struct cli *cli, const struct client *client, const json_t *body,
		 struct error *err)
{
	cleanup_json json_t *agent = NULL;
	int rc = client_call(client, "POST", "/v1/agents", body, NULL, &agent, err);
	const json_t *pods = json_object_get(agent, "pods");

	if (rc < 0)
		return rc;
	if (cli->value[OPT_JSON])
		rc = output_json(agent, err);
	else
		printf("agent %s serves %zu queue%s on %s %s\n", session_text(agent, "id"),
		       json_array_size(json_object_get(agent, "queues")),
		       json_array_size(json_object_get(agent, "queues")) == 1 ? "" : "s",
		       pods ? "kubernetes, namespace" : "GPU",
		       pods ? session_text(pods, "namespace") : session_text(agent, "gpus"));
	if (!cli->value[OPT_JSON])
		sizeless_print(agent);
	if (rc < 0 || cli->value[OPT_AGENT_DETACHED])
		return rc;
	return stay(cli, client, session_text(agent, "id"));
}

/* ---- stopping and draining ---------------------------------------------------------------- */

static const json_t *queue_of(const json_t *agent, const char *name)
{
	size_t i;
	json_t *queue;

	json_array_foreach(json_object_get(agent, "queues"), i, queue)
	{
		if (!strcmp(session_text(queue, "name"), name))
			return queue;
	}
	return NULL;
}

/* Whether the agent has the queue of a word ("half=0.5,max=3"), and all that the word says of it.
 */
static bool has_queue(const json_t *agent, const char *word)
{
	struct queue_spec spec;
	struct error ignored;
	char size[QUEUE_SIZE_TEXT];

	if (queue_spec_parse(word, &spec, &ignored) < 0)
		return false;
	const json_t *queue = queue_of(agent, spec.name);
	queue_size_text(&spec, size);
	return queue && (!*size || !strcmp(size, session_text(queue, "size"))) &&
	       (!spec.most || spec.most == (uint64_t)session_number(queue, "max")) &&
	       (!*spec.image || !strcmp(spec.image, session_text(queue, "image")));
}

/* The agents that are meant, by the words that started them or by an ID. */
struct meant {
	bool by_gpus;
	uint64_t gpus;       /* a bit for each index */
	bool pods;           /* agents whose jobs are pods alone */
	const json_t *words; /* "NAME=N" of queues, and IDs of agents */
};

static bool is_meant(const json_t *agent, const struct meant *meant)
{
	struct error ignored;
	uint64_t its = 0;
	json_t *word;
	size_t i;

	if (meant->pods && !json_object_get(agent, "pods"))
		return false;
	if (meant->by_gpus && (queue_gpus_parse(session_text(agent, "gpus"), &its, &ignored) < 0 ||
			       its != meant->gpus))
		return false;
	json_array_foreach((json_t *)meant->words, i, word)
	{
		const char *text = json_string_value(word);

		if (strcmp(text, session_text(agent, "id")) != 0 && !has_queue(agent, text))
			return false;
	}
	return true;
}

/* The GPUs as the daemon tells them of an agent: it has numbers in place of "all". */
static int gpus_meant(const struct client *client, const char *text, uint64_t *ret,
		      struct error *err)
{
	cleanup_json json_t *gpus = NULL;
	json_t *gpu;
	size_t i;
	int rc = queue_gpus_parse(text, ret, err);

	if (rc < 0 || *ret != UINT64_MAX)
		return rc;
	rc = client_call(client, "GET", "/v1/gpus", NULL, NULL, &gpus, err);
	*ret = 0;
	json_array_foreach(gpus, i, gpu)
	{
		unsigned index = (unsigned)session_number(gpu, "index");

		*ret |= index < 64 ? UINT64_C(1) << index : 0;
	}
	return rc;
}

static int unmeant(size_t running, size_t found, bool any, struct error *err)
{
	if (!running)
		return error_set(err, EXIT_CODE_FAILED, "no agent runs");
	if (!found)
		error_set(err, EXIT_CODE_FAILED,
			  "no agent has these GPUs and queues of these sizes");
	else
		error_set(err, EXIT_CODE_USAGE, "%zu agents %s: name the one that is meant", found,
			  any ? "run" : "have these GPUs and queues");
	error_hint(err, "`carve agent --status` shows them; for example: --stop a-1");
	return -err->code;
}

/* The agent that is meant, of this user's if there are several. An ID that is nobody's is the
 * daemon's to refuse. */
static int agent_choose(const struct cli *cli, const struct client *client, char buf[static 32],
			struct error *err)
{
	cleanup_json json_t *agents = NULL, *body = json_object();
	struct meant meant = {.by_gpus = cli->value[OPT_AGENT_GPUS] != NULL,
			      .pods = cli->value[OPT_AGENT_ON] != NULL};
	char gpus[256];
	bool ignored = false;
	size_t found[2] = {0}, i; /* all, and this user's */
	const char *id[2] = {NULL, NULL};
	json_t *agent;
	int rc = words_take(cli, body, gpus, err);

	meant.words = json_object_get(body, "queues");
	if (rc == 0)
		rc = words_check(gpus, meant.words, &ignored, err);
	if (rc == 0 && meant.by_gpus)
		rc = gpus_meant(client, gpus, &meant.gpus, err);
	if (rc < 0 || (rc = client_call(client, "GET", "/v1/agents", NULL, NULL, &agents, err)) < 0)
		return rc;
	json_array_foreach(agents, i, agent)
	{
		if (!is_meant(agent, &meant))
			continue;
		for (int own = 0; own <= session_owner_is_me(session_text(agent, "user")); own++) {
			found[own]++;
			id[own] = session_text(agent, "id");
		}
	}
	bool named = json_array_size(meant.words) == 1 && !meant.by_gpus && !meant.pods &&
		     !cli->value[OPT_QUEUE];
	const char *one = found[0] == 1        ? id[0]
			  : found[1] == 1      ? id[1]
			  : !found[0] && named ? json_string_value(json_array_get(meant.words, 0))
					       : NULL;

	if (!one || strlen(one) >= 32 || strpbrk(one, "/?#% "))
		return unmeant(json_array_size(agents), found[0],
			       !json_array_size(meant.words) && !meant.by_gpus && !meant.pods, err);
	snprintf(buf, 32, "%s", one);
	return 0;
}

static int stop_one(const struct cli *cli, const struct client *client, struct error *err)
{
	cleanup_json json_t *answer = NULL;
	char id[32], path[AGENT_PATH_SIZE];
	int rc = agent_choose(cli, client, id, err);

	if (rc < 0)
		return rc;
	snprintf(path, sizeof(path), "/v1/agents/%s%s", id,
		 cli->value[OPT_AGENT_NOW] ? "?now=1" : "");
	rc = client_call(client, "DELETE", path, NULL, NULL, &answer, err);
	if (rc < 0)
		return rc;
	if (cli->value[OPT_JSON])
		return output_json(answer, err);
	printf("agent %s is stopped%s\n", id,
	       cli->value[OPT_AGENT_NOW] ? ", and its jobs are being ended" : "");
	return 0;
}

/* A queue by its name, of whichever agent has it; all queues of all agents where none is named. */
static int drain(const struct cli *cli, const struct client *client, bool drains, struct error *err)
{
	cleanup_json json_t *agents = NULL, *changed = json_array();
	const char *name = cli->arguments[0];
	int rc = client_call(client, "GET", "/v1/agents", NULL, NULL, &agents, err);
	size_t i;
	json_t *agent;

	if (rc < 0)
		return rc;
	json_array_foreach(agents, i, agent)
	{
		cleanup_json json_t *body = json_pack("{s:b}", "drain", drains), *answer = NULL;
		char path[AGENT_PATH_SIZE];

		if (name && !queue_of(agent, name))
			continue;
		if (name)
			json_object_set_new(body, "queue", json_string(name));
		snprintf(path, sizeof(path), "/v1/agents/%s", session_text(agent, "id"));
		rc = client_call(client, "PATCH", path, body, NULL, &answer, err);
		if (rc < 0)
			return rc;
		json_array_append(changed, answer);
	}
	if (!json_array_size(changed)) {
		error_set(err, EXIT_CODE_FAILED,
			  name ? "no agent serves queue %.64s" : "no agent runs", name);
		error_hint(err, "`carve agent --status` shows agents and their queues");
		return -EXIT_CODE_FAILED;
	}
	if (cli->value[OPT_JSON])
		return output_json(changed, err);
	printf("%s%s: %s\n", name ? "queue " : "all queues", name ? name : "",
	       drains ? "drained, no more jobs start" : "jobs start again");
	return 0;
}

/* ---- the verb ----------------------------------------------------------------------------- */

static int one_of_them(const struct cli *cli, struct error *err)
{
	static const enum cli_option_id acts[] = {OPT_AGENT_STATUS, OPT_AGENT_STOP, OPT_AGENT_DRAIN,
						  OPT_AGENT_RESUME};
	unsigned given = 0;

	for (size_t i = 0; i < ARRAY_SIZE(acts); i++)
		given += cli->value[acts[i]] != NULL;
	/* The words that started an agent also name the one to stop. */
	if (given > 1 || (given && !cli->value[OPT_AGENT_STOP] &&
			  (cli->value[OPT_QUEUE] || cli->value[OPT_AGENT_GPUS]))) {
		error_set(err, EXIT_CODE_USAGE,
			  "agent: --status, --stop, --drain, --resume and a new "
			  "agent exclude each other");
		error_hint(err, "give one of them; see `carve agent --help`");
		return -EXIT_CODE_USAGE;
	}
	if (cli->value[OPT_AGENT_NOW] && !cli->value[OPT_AGENT_STOP]) {
		error_set(err, EXIT_CODE_USAGE, "--now only goes with --stop");
		return -EXIT_CODE_USAGE;
	}
	return (int)given;
}

/* The word of ‘clearml-agent daemon’. After --drain and --resume it alone may be a queue. */
static void daemon_word_drop(struct cli *cli)
{
	bool may_be_queue = cli->value[OPT_AGENT_DRAIN] || cli->value[OPT_AGENT_RESUME];

	if (cli->argument_count <= may_be_queue || strcmp(cli->arguments[0], "daemon") != 0)
		return;
	cli->arguments++;
	cli->argument_count--;
}

int cli_agent(struct cli *cli, struct error *err)
{
	cleanup_json json_t *body = json_object();
	struct client client;
	int acts = one_of_them(cli, err), rc;

	if (acts < 0)
		return acts;
	daemon_word_drop(cli);
	int most = cli->value[OPT_AGENT_STATUS] ? 0 : 1;
	if (acts && !cli->value[OPT_AGENT_STOP] && cli->argument_count > most) {
		error_set(err, EXIT_CODE_USAGE, "agent: unexpected argument '%.64s'",
			  cli->arguments[most]);
		return -EXIT_CODE_USAGE;
	}
	if (!acts && (rc = body_make(cli, body, err)) < 0)
		return rc;
	if ((rc = client_open(&client, cli->value[OPT_HOST], err)) < 0)
		return rc;
	if (cli->value[OPT_AGENT_STATUS])
		return status(cli, &client, err);
	if (cli->value[OPT_AGENT_STOP])
		return stop_one(cli, &client, err);
	if (acts)
		return drain(cli, &client, cli->value[OPT_AGENT_DRAIN] != NULL, err);
	return start(cli, &client, body, err);
}
