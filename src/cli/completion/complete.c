#include "cli/completion/complete.h"

#include <grp.h>
#include <jansson.h>
#include <pwd.h>
#include <stdbool.h>
#include <string.h>

#include "base/error.h"
#include "base/macros.h"
#include "cli/cli.h"
#include "cli/mig/mig_models.h"
#include "client/client.h"
#include "container/container_args.h"

/* Accounts of a directory service may be many thousands. */
#define NAMES_MAX 500

/* The command line before the word that is completed. */
struct line {
	FILE *out;
	const char *typed;
	const char *host;
	char first[32], second[32];
	const struct cli_verb *verb;     /* NULL: not named yet */
	const struct cli_option *option; /* the word before takes this value */
	int arguments;
	const char *argument; /* the first one; NULL: none yet */
	bool command;         /* somebody else's command has begun */
	bool runtime_option;  /* the word before is an option of docker's, and takes this value */
	bool joined;          /* the word goes on after a ':' or '=' */
};

static void offer(const struct line *line, const char *word)
{
	if (!strncmp(word, line->typed, strlen(line->typed)))
		fprintf(line->out, "%s\n", word);
}

static void offer_words(const struct line *line, const char *words)
{
	char text[512], *rest = NULL;

	snprintf(text, sizeof(text), "%s", words);
	for (char *word = strtok_r(text, " ", &rest); word; word = strtok_r(NULL, " ", &rest))
		offer(line, word);
}

/* ---- words that a daemon knows ------------------------------------------------------------ */

static json_t *daemon_tells(const struct line *line, const char *path)
{
	struct client client;
	struct error ignored = {0};
	json_t *answer = NULL;

	if (client_open_running(&client, line->host, &ignored) < 0 ||
	    client_call(&client, "GET", path, NULL, NULL, &answer, &ignored) < 0)
		return NULL;
	return answer;
}

/* A member of each: a text, or a number. */
static void offer_members(const struct line *line, const json_t *list, const char *key)
{
	size_t i;
	json_t *item;

	json_array_foreach(list, i, item)
	{
		const json_t *value = json_object_get(item, key);
		char number[24];

		snprintf(number, sizeof(number), "%" JSON_INTEGER_FORMAT,
			 json_integer_value(value));
		if (json_is_string(value) && *json_string_value(value))
			offer(line, json_string_value(value));
		else if (json_is_integer(value))
			offer(line, number);
	}
}

/* ---- words that the host knows ------------------------------------------------------------ */

/* The completion runs alone in its process. */
/* NOLINTBEGIN(concurrency-mt-unsafe) */
static void offer_users(const struct line *line)
{
	struct passwd *entry;

	setpwent();
	for (int i = 0; i < NAMES_MAX && (entry = getpwent()); i++)
		offer(line, entry->pw_name);
	endpwent();
}

static void offer_groups(const struct line *line)
{
	struct group *entry;

	setgrent();
	for (int i = 0; i < NAMES_MAX && (entry = getgrent()); i++)
		offer(line, entry->gr_name);
	endgrent();
}
/* NOLINTEND(concurrency-mt-unsafe) */

static void offer_models(const struct line *line)
{
	cleanup_json json_t *models = mig_models_list();

	offer_members(line, models, "key");
}

/* ---- values and arguments ----------------------------------------------------------------- */

static void offer_files(const struct line *line)
{
	fputs(":files\n", line->out);
}

/* Kinds of values, which options name in cli_options, and arguments in the usage of their verb. */
static const struct kind {
	const char *name;
	const char *words;
	const char *path, *keys[2]; /* members of a list that the daemon has */
	void (*tell)(const struct line *line);
} kinds[] = {
	{"SHELL", "bash zsh fish"},
	{"KIND", "alloc launch ecc lost hang nvml list-managed mig-create mig-destroy mig-hold "
		 "mig-time mig-capacity mig-ids mig-mode mig-clients vgpu all reset reboot"},
	{"ID", .path = "/v1/sessions", .keys = {"id", "name"}},
	{"JOB", .path = "/v1/jobs", .keys = {"id"}},
	{"GPU", .path = "/v1/gpus", .keys = {"index"}},
	{"QUEUE", .path = "/v1/queues", .keys = {"name"}},
	{"USER", .tell = offer_users},
	{"GROUP", .tell = offer_groups},
	{"MODEL", .tell = offer_models},
	{"FILE", .tell = offer_files},
	{"TRACE", .tell = offer_files},
};

static void offer_kind(const struct line *line, const struct kind *kind)
{
	if (kind->words)
		offer_words(line, kind->words);
	if (kind->tell)
		kind->tell(line);
	if (!kind->path)
		return;
	cleanup_json json_t *list = daemon_tells(line, kind->path);

	for (size_t i = 0; i < ARRAY_SIZE(kind->keys) && kind->keys[i]; i++)
		offer_members(line, list, kind->keys[i]);
}

static void complete_value(const struct line *line)
{
	const char *values = line->option->values;

	for (size_t i = 0; values && i < ARRAY_SIZE(kinds); i++)
		if (!strcmp(values, kinds[i].name))
			return offer_kind(line, &kinds[i]);
	if (values)
		offer_words(line, values);
}

static void complete_first(const struct line *line);
static void complete_second(const struct line *line, const char *first);

static void complete_help(const struct line *line)
{
	if (line->arguments == 0)
		complete_first(line);
	else
		complete_second(line, line->argument);
}

static void complete_option(const struct line *line);

/* `docker run` and its like, which take options of carve's and of the runtime's. */
static bool is_container(const struct cli_verb *verb)
{
	return verb && verb->syntax == CLI_SYNTAX_RAW && verb->options;
}

/* How a runtime reads the options at this place: its own before `run`, or those of `run`. False:
 * the line is no runtime's. */
static bool runtime_syntax(const struct line *line, enum container_syntax *ret)
{
	if (!line->verb)
		return container_syntax_global(line->first, ret);
	*ret = strcmp(line->first, "apptainer") != 0 ? CONTAINER_SYNTAX_OCI
						     : CONTAINER_SYNTAX_APPTAINER;
	return is_container(line->verb);
}

/* The verb whose options may stand here: those of `docker run` may stand before `run`, too. */
static const struct cli_verb *options_verb(const struct line *line)
{
	enum container_syntax syntax;

	if (line->verb || !runtime_syntax(line, &syntax))
		return line->verb;
	for (const struct cli_verb *verb = cli_verbs; verb->name; verb++)
		if (cli_verb_in_group(verb, line->first))
			return verb;
	return NULL;
}

/* `docker run`: carve's options, and apptainer's images, which are files. */
static void complete_image(const struct line *line)
{
	if (line->arguments)
		return;
	if (!strcmp(line->first, "apptainer"))
		offer_files(line);
	complete_option(line);
}

static void complete_argument(const struct line *line)
{
	const struct cli_verb *verb = line->verb;

	if (verb->arguments_max >= 0 && line->arguments >= verb->arguments_max)
		return;
	if (!strcmp(verb->name, "help"))
		return complete_help(line);
	if (is_container(verb))
		return complete_image(line);
	for (size_t i = 0; i < ARRAY_SIZE(kinds); i++) {
		if (!strstr(verb->usage, kinds[i].name))
			continue;
		/* Words stand for the first argument alone. */
		if (!kinds[i].words || line->arguments == 0)
			offer_kind(line, &kinds[i]);
		return;
	}
}

/* A verb that reads its options itself has them in its usage alone. */
static void complete_usage_option(const struct line *line)
{
	char word[64];

	for (const char *at = line->verb->usage; (at = strstr(at, "[--")) != NULL; at++) {
		snprintf(word, sizeof(word), "%.*s", (int)strcspn(at + 1, " ]"), at + 1);
		if (strlen(word) > strlen("--"))
			offer(line, word);
	}
}

static void complete_option(const struct line *line)
{
	const struct cli_verb *verb = options_verb(line);
	char word[64];

	if (line->verb && line->verb->syntax == CLI_SYNTAX_RAW && !line->verb->options)
		return complete_usage_option(line);
	for (const struct cli_option *o = cli_options; o->name; o++) {
		snprintf(word, sizeof(word), "--%s", o->name);
		if (cli_verb_takes(verb, o->id))
			offer(line, word);
	}
}

/* ---- words of verbs ----------------------------------------------------------------------- */

static bool is_first_of_group(const struct cli_verb *verb)
{
	size_t length = strcspn(verb->name, " ");

	for (const struct cli_verb *other = cli_verbs; other != verb; other++)
		if (!strncmp(other->name, verb->name, length) &&
		    strcspn(other->name, " ") == length)
			return false;
	return true;
}

static void complete_first(const struct line *line)
{
	char word[64];

	for (const struct cli_verb *verb = cli_verbs; verb->name; verb++) {
		snprintf(word, sizeof(word), "%.*s", (int)strcspn(verb->name, " "), verb->name);
		if (is_first_of_group(verb))
			offer(line, word);
	}
	for (const struct cli_short *s = cli_shorts; s->word; s++)
		offer(line, s->word);
}

static void complete_second(const struct line *line, const char *first)
{
	for (const struct cli_verb *verb = cli_verbs; verb->name; verb++) {
		const char *gap = strchr(verb->name, ' ');

		if (gap && cli_verb_in_group(verb, first))
			offer(line, gap + 1);
	}
}

/* ---- the line ----------------------------------------------------------------------------- */

static const struct cli_verb *verb_named(const char *first, const char *second)
{
	char name[sizeof(((struct line *)0)->first) * 2 + 2];

	snprintf(name, sizeof(name), "%s%s%s", first, *second ? " " : "", second);
	for (const struct cli_verb *verb = cli_verbs; verb->name; verb++)
		if (!strcmp(verb->name, name))
			return verb;
	return NULL;
}

/* The option of a word like --mode or --mode=; NULL: none that this verb takes. */
static const struct cli_option *option_named(const struct line *line, const char *word)
{
	const struct cli_verb *verb = options_verb(line);
	size_t length = strcspn(word, "=");

	for (const struct cli_option *o = cli_options; o->name; o++)
		if (!strncmp(word, "--", 2) && strlen(o->name) == length - 2 &&
		    !strncmp(o->name, word + 2, length - 2) && cli_verb_takes(verb, o->id))
			return o;
	return NULL;
}

/* `--mode=f`: its value is completed, and the shell keeps what stands before it. */
static void typed_value_read(struct line *line)
{
	const char *equals = strchr(line->typed, '=');
	const struct cli_option *option = equals ? option_named(line, line->typed) : NULL;

	if (line->option && equals == line->typed) {
		line->typed++; /* bash has "--mode" and "=" */
	} else if (!line->option && option && option->argument) {
		line->option = option;
		line->typed = equals + 1;
	}
}

static void option_read(struct line *line, const char *word, const char *next)
{
	const struct cli_option *option = option_named(line, word);
	const char *value = strchr(word, '=');
	enum container_syntax syntax;

	if (!option && !line->arguments && runtime_syntax(line, &syntax))
		line->runtime_option = container_args_takes_next(word, syntax);
	if (!option || !option->argument)
		return;
	if (!value)
		line->option = option;
	if (option->id == OPT_HOST)
		line->host = value ? value + 1 : next;
}

/* A word that is no option: of the verb's name, or one of its arguments. */
static void word_read(struct line *line, const char *word)
{
	const struct cli_verb *longer = NULL;

	if (!line->first[0]) {
		for (const struct cli_short *s = cli_shorts; s->word; s++)
			if (!strcmp(s->word, word) && s->second && s->second[0] != '-') {
				snprintf(line->first, sizeof(line->first), "%s", s->first);
				word = s->second;
			}
	}
	if (!line->first[0])
		snprintf(line->first, sizeof(line->first), "%s", word);
	else if (!line->second[0] && !line->arguments)
		longer = verb_named(line->first, word);
	if (longer)
		snprintf(line->second, sizeof(line->second), "%s", word);
	else if (line->verb)
		line->command = ++line->arguments && line->verb->syntax == CLI_SYNTAX_COMMAND;
	if (line->arguments == 1 && !line->argument)
		line->argument = word;
	if (!line->arguments)
		line->verb = verb_named(line->first, line->second);
}

/* bash takes `-v x:y` and `--mode=fair` apart at ':' and '=', which become words. */
static bool is_joint(const char *word)
{
	return !strcmp(word, ":") || !strcmp(word, "=");
}

/* After an option its value follows; else what follows belongs to the word before. */
static void joint_read(struct line *line, int *i, int count)
{
	if (line->option || line->runtime_option)
		return;
	++*i;
	line->joined = *i == count - 1;
}

static void line_read(struct line *line, int count, char *const *words)
{
	for (int i = 0; i < count - 1 && !line->command; i++) {
		if (is_joint(words[i])) {
			joint_read(line, &i, count);
			continue;
		}
		if (line->option || line->runtime_option) {
			line->option = NULL;
			line->runtime_option = false;
		} else if (!strcmp(words[i], "--")) {
			line->command = line->verb && line->verb->syntax == CLI_SYNTAX_COMMAND;
		} else if (words[i][0] == '-') {
			option_read(line, words[i], words[i + 1]);
		} else {
			word_read(line, words[i]);
		}
	}
}

void complete_print(FILE *out, int count, char *const *words)
{
	struct line line = {.out = out, .typed = count ? words[count - 1] : ""};

	line_read(&line, count, words);
	if (!line.command)
		typed_value_read(&line);
	if (line.command) {
		fputs(line.arguments ? ":files\n" : ":commands\n", out);
	} else if (line.joined) {
		return;
	} else if (line.option) {
		complete_value(&line);
	} else if (line.runtime_option && line.typed[0] != '-') {
		offer_files(&line);
	} else if (line.typed[0] == '-') {
		complete_option(&line);
	} else if (!line.first[0]) {
		complete_first(&line);
	} else {
		if (!line.second[0] && !line.arguments)
			complete_second(&line, line.first);
		if (line.verb && line.verb->syntax == CLI_SYNTAX_COMMAND &&
		    line.verb->run != cli_completion)
			fputs(":commands\n", out);
		else if (line.verb)
			complete_argument(&line);
	}
}
