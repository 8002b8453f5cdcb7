#include "cli/words.h"

#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/macros.h"
#include "cli/cli.h"

#define MEANINGS 4

/* A word, and the verbs that it can stand for: the first one that a group has. `release` comes
 * after `cancel`, as it lets a held job start. A session in use is not released without --force. */
static const struct {
	const char *word, *verb[MEANINGS];
} meanings[] = {
	{"ls", {"list"}},
	{"ps", {"list"}},
	{"show", {"stat", "list"}},
	{"status", {"show", "stat", "list"}},
	{"info", {"show", "stat", "list"}},
	{"get", {"show", "stat", "list"}},
	{"describe", {"show", "stat", "list"}},
	{"inspect", {"show", "stat", "list"}},
	{"rm", {"remove", "cancel", "release"}},
	{"remove", {"cancel", "release"}},
	{"delete", {"remove", "cancel", "release"}},
	{"unset", {"remove"}},
	{"del", {"remove", "cancel", "release"}},
	{"uninstall", {"remove"}},
	{"stop", {"cancel", "release"}},
	{"kill", {"cancel", "release"}},
	{"end", {"cancel", "release"}},
	{"cancel", {"release"}},
	{"create", {"request", "set", "generate", "build"}},
	{"new", {"request", "set", "generate", "build"}},
	{"add", {"request", "set", "generate", "install"}},
	{"start", {"request"}},
	{"update", {"resize", "set", "edit"}},
	{"log", {"logs"}},
	{"retry", {"rerun"}},
};

/* Words whose command is in another group, or none of carve's; a word of "": all that ask for a
 * list. */
static const struct {
	const char *group, *word, *hint;
} elsewhere[] = {
	{"node", "", "carve gpu list shows the GPUs of this host, and which of them have a role"},
	{"image", "", "carve keeps no images; docker image ls or podman image ls lists them"},
	{"hook", "", "carve hook install --help names the directories of its files"},
	{"timeslicing", "", "carve timeslicing shows how the GPUs' time is shared"},
	{"timeslicing", "on", "carve timeslicing --mode fair (or strict) turns it on"},
	{"timeslicing", "fair", "carve timeslicing --mode fair sets that mode"},
	{"timeslicing", "strict", "carve timeslicing --mode strict sets that mode"},
	{"timeslicing", "off", "carve timeslicing --mode off turns it off"},
	{"podman", "", "podman ps lists containers, carve session list their slices"},
	{"docker", "", "docker ps lists containers, carve session list their slices"},
	{"job", "submit", "carve enqueue --queue NAME CMD puts a command into a queue"},
	{"job", "create", "carve enqueue --queue NAME CMD puts a command into a queue"},
	{"job", "add", "carve enqueue --queue NAME CMD puts a command into a queue"},
	{"job", "run", "carve enqueue --queue NAME CMD puts a command into a queue"},
	{"queue", "submit", "carve enqueue --queue NAME CMD puts a command into a queue"},
	{"queue", "add", "carve enqueue --queue NAME CMD puts a command into a queue"},
	{"queue", "create", "a queue is made by its agent: carve agent NAME=FRACTION"},
	{"queue", "remove", "a queue goes with its agent: carve agent --stop"},
	{"session", "shrink", "carve session resize SIZE makes a session that large"},
	{"session", "grow", "carve session resize SIZE makes a session that large"},
	{"session", "run", "carve run CMD runs a command in your session"},
	{"session", "exec", "carve run CMD runs a command in your session"},
	{NULL, "exec", "carve run CMD runs a command in a slice"},
	{NULL, "submit", "carve enqueue --queue NAME CMD puts a command into a queue"},
	{NULL, "cancel", "carve job cancel JOB ends a job, carve session release ID a session"},
	{NULL, "rm", "carve job cancel JOB ends a job, carve session release ID a session"},
	{NULL, "stop", "carve job cancel JOB ends a job, carve session release ID a session"},
	{NULL, "kill", "carve job cancel JOB ends a job, carve session release ID a session"},
	{NULL, "logs",
	 "carve job logs JOB prints what a job printed; journalctl -u carved, the daemon"},
	{NULL, "log",
	 "carve job logs JOB prints what a job printed; journalctl -u carved, the daemon"},
	{NULL, "start",
	 "carved starts when it is needed; as a service: systemctl start carved.service"},
	{NULL, "restart", "carved restarts as a service: systemctl restart carved.service"},
	{NULL, "daemon", "the daemon is carved: carved --help"},
	{NULL, "config", "man carved describes the daemon's settings"},
	{NULL, "doctor", "carve check says what is missing"},
	{NULL, "info", "carve status shows GPUs, sessions and users"},
	{NULL, "smi", "carve gpu list lists the GPUs; carve run nvidia-smi, what a slice sees"},
	{NULL, "nvidia-smi",
	 "carve gpu list lists the GPUs; carve run nvidia-smi, what a slice sees"},
	{NULL, "k8s", "carve kubernetes check says what a cluster lacks for slices"},
	{NULL, "gpus", "carve gpu list lists the GPUs"},
	{NULL, "jobs", "carve job list lists the jobs"},
	{NULL, "queues", "carve queue list lists the queues"},
	{NULL, "quotas", "carve quota list lists the quotas"},
	{NULL, "sessions", "carve session list lists the sessions"},
};

/* Options of other programs, and the options that they can stand for: the first that a verb has. */
static const struct {
	const char *typed, *option[2];
} options_elsewhere[] = {
	{"--memory", {"vram"}},
	{"--mem", {"vram"}},
	{"--gpu-mem", {"vram"}},
	{"--gpu-memory-limit", {"vram"}},
	{"--size", {"vram"}},
	{"-m", {"vram"}},
	{"--cores", {"gpu-compute"}},
	{"--sm", {"gpu-compute"}},
	{"--gres", {"gpus"}},
	{"--num-gpus", {"gpus"}},
	{"--gpu-count", {"gpus"}},
	{"-g", {"gpus"}},
	{"--device", {"gpu-ids"}},
	{"--devices", {"gpu-ids"}},
	{"--profile", {"mig-profile"}},
	{"--timeout", {"session-timeout", "time"}},
	{"--time", {"session-timeout"}},
	{"--time-limit", {"session-timeout", "time"}},
	{"--job-name", {"name"}},
	{"-n", {"name", "interval"}},
	{"-J", {"name"}},
	{"--partition", {"queue"}},
	{"-p", {"queue"}},
	{"-q", {"queue"}},
	{"--dependency", {"after"}},
	{"--env", {"export"}},
	{"--workdir", {"chdir"}},
	{"--cwd", {"chdir"}},
	{"-d", {"detached", "interval"}},
	{"--detach", {"detached"}},
	{"--daemon", {"detached"}},
	{"--delay", {"interval"}},
	{"--refresh", {"interval"}},
	{"--format", {"json"}},
	{"-a", {"all"}},
	{"-f", {"force"}},
	{"--yes", {"force"}},
	{"-y", {"force"}},
	{"-v", {"version"}},
};

/* Options that a verb had, and what is typed now. */
static const struct {
	const char *verb, *typed, *hint;
} options_gone[] = {
	{"agent", "--hook", "carve job events --exec CMD runs a command at the end of each job"},
	{"agent", "--hook-timeout", "carve job events --exec CMD --exec-timeout TIME"},
	{"agent", "--webhook", "carve job events --webhook URL posts the end of each job"},
	{"job events", "--hook", "carve job events --exec CMD runs a command at each end"},
	{"job events", "--hook-timeout", "carve job events --exec CMD --exec-timeout TIME"},
	{"job events", "--stdin", "carve job events --from N reads ends from the daemon"},
};

static const struct cli_verb *verb_find(const char *group, const char *word)
{
	char name[128];

	snprintf(name, sizeof(name), "%s %s", group, word);
	for (const struct cli_verb *verb = cli_verbs; verb->name; verb++)
		if (!strcmp(verb->name, name))
			return verb;
	return NULL;
}

/* `carve sim info` runs the program info, as `carve run info` does. */
static bool may_be_a_program(const char *group, const char *word)
{
	for (const struct cli_verb *verb = cli_verbs; verb->name; verb++)
		if (!strcmp(verb->name, group) && verb->syntax == CLI_SYNTAX_COMMAND)
			return strcmp(word, "ls") != 0 && strcmp(word, "ps") != 0 &&
			       strcmp(word, "status") != 0;
	return false;
}

const struct cli_verb *words_verb(const char *group, const char *word)
{
	const struct cli_verb *verb = verb_find(group, word);

	if (may_be_a_program(group, word))
		return verb;
	for (size_t i = 0; i < ARRAY_SIZE(meanings) && !verb; i++) {
		if (strcmp(meanings[i].word, word) != 0)
			continue;
		for (size_t j = 0; j < MEANINGS && meanings[i].verb[j] && !verb; j++)
			verb = verb_find(group, meanings[i].verb[j]);
	}
	return verb;
}

bool words_mean_list(const char *word)
{
	for (size_t i = 0; i < ARRAY_SIZE(meanings); i++)
		for (size_t j = 0; j < MEANINGS && meanings[i].verb[j]; j++)
			if (!strcmp(meanings[i].word, word) && !strcmp(meanings[i].verb[j], "list"))
				return true;
	return !strcmp(word, "list");
}

bool words_hint(const char *group, const char *word, struct error *err)
{
	for (size_t i = 0; i < ARRAY_SIZE(elsewhere); i++) {
		bool same_group = group && elsewhere[i].group ? !strcmp(group, elsewhere[i].group)
							      : !group && !elsewhere[i].group;
		bool same_word = *elsewhere[i].word ? !strcmp(word, elsewhere[i].word)
						    : words_mean_list(word);

		if (!same_group || !same_word)
			continue;
		error_hint(err, "%s", elsewhere[i].hint);
		return true;
	}
	return false;
}

bool words_option_hint(const struct cli_verb *verb, const char *typed, struct error *err)
{
	for (size_t i = 0; verb && i < ARRAY_SIZE(options_gone); i++) {
		if (strcmp(options_gone[i].verb, verb->name) != 0 ||
		    strcmp(options_gone[i].typed, typed) != 0)
			continue;
		error_hint(err, "%s", options_gone[i].hint);
		return true;
	}
	return false;
}

const char *words_option(const struct cli_verb *verb, const char *typed)
{
	for (size_t i = 0; i < ARRAY_SIZE(options_elsewhere); i++)
		for (size_t j = 0; !strcmp(options_elsewhere[i].typed, typed) && j < 2; j++)
			for (const struct cli_option *o = cli_options; o->name; o++)
				if (options_elsewhere[i].option[j] &&
				    !strcmp(options_elsewhere[i].option[j], o->name) &&
				    cli_verb_takes(verb, o->id))
					return o->name;
	return NULL;
}
