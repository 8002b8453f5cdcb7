#include <getopt.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/macros.h"
#include "base/program.h"
#include "base/suggest.h"
#include "base/units.h"
#include "cli/cli.h"
#include "cli/split_unit.h"
#include "cli/words.h"
#include "container/container_args.h"

#define OPTIONS_MAX 64
/* The value that getopt_long returns for option 0; above every character and '?'. */
#define OPTION_BASE 256

bool cli_verb_takes(const struct cli_verb *verb, enum cli_option_id id)
{
	if (id < OPT_CHOSEN)
		return id != OPT_VERSION || !verb;
	return verb && verb->options >> (id - OPT_CHOSEN) & 1;
}

bool cli_verb_in_group(const struct cli_verb *verb, const char *group)
{
	size_t length = strlen(group);

	return !strncmp(verb->name, group, length) &&
	       (verb->name[length] == ' ' || !verb->name[length]);
}

static const struct cli_verb *verb_find(const char *name)
{
	for (const struct cli_verb *verb = cli_verbs; verb->name; verb++)
		if (!strcmp(verb->name, name))
			return verb;
	return NULL;
}

static void options_make(const struct cli_verb *verb, struct option out[OPTIONS_MAX])
{
	size_t count = 0;

	for (const struct cli_option *o = cli_options; o->name && count + 1 < OPTIONS_MAX; o++)
		if (cli_verb_takes(verb, o->id))
			out[count++] = (struct option){o->name, o->argument != NULL, NULL,
						       OPTION_BASE + (int)o->id};
	out[count] = (struct option){0};
}

/* "session request" or "carve": what an error message names, and what its hint sends to. */
static const char *verb_path(const struct cli *cli, char buf[64])
{
	const char *name = cli->verb ? cli->verb->name : cli->group;

	snprintf(buf, 64, "carve%s%s", name ? " " : "", name ? name : "");
	return buf;
}

/* `resize ID -3`: no option has a digit for its letter. */
static bool is_negative_size(const struct cli *cli, const char *text)
{
	return cli->verb && strstr(cli->verb->usage, "SIZE") && text[0] == '-' &&
	       ((text[1] >= '0' && text[1] <= '9') || text[1] == '.');
}

static void unknown_option(const struct cli *cli, const char *text, struct error *err)
{
	struct suggestion near = {0};
	size_t length = strcspn(text, "=");
	const char *meant;
	char typed[64], path[64];

	if (is_negative_size(cli, text)) {
		error_set(err, EXIT_CODE_USAGE, "SIZE: a size cannot be negative");
		error_hint(err, "for example: %s", cli->verb->example);
		return;
	}
	snprintf(typed, sizeof(typed), "%.*s", (int)MIN(length, sizeof(typed) - 1), text);
	error_set(err, EXIT_CODE_USAGE, "unknown option %s", typed);
	if (words_option_hint(cli->verb, typed, err))
		return;
	for (const struct cli_option *o = cli_options; o->name; o++)
		if (cli_verb_takes(cli->verb, o->id) && !strncmp(typed, "--", 2))
			suggest_offer(&near, typed + 2, o->name, strlen(o->name));
	meant = words_option(cli->verb, typed);
	if (meant || near.word)
		error_hint(err, "did you mean --%s? see `%s --help`", meant ? meant : near.word,
			   verb_path(cli, path));
	else
		error_hint(err, "see `%s --help`", verb_path(cli, path));
}

/* Words the first thing that is wrong; later ones often only follow from it. `result` and `text`
 * are what getopt_long answered, and the word it stood on. */
static void option_error(const struct cli *cli, int result, const char *text, struct error *err)
{
	char path[64], letter[3] = {'-', (char)optopt, '\0'};

	if (err->code)
		return;
	if (result == '?' && optopt >= OPTION_BASE)
		error_set(err, EXIT_CODE_USAGE, "%.64s: this option takes no value", text);
	else if (result == '?')
		return unknown_option(cli, optopt ? letter : text, err);
	else
		error_set(err, EXIT_CODE_USAGE, "%.64s needs a value", text);
	error_hint(err, "see `%s --help`", verb_path(cli, path));
}

static int short_option(const struct cli *cli, int letter)
{
	static const struct {
		int letter;
		enum cli_option_id id;
	} letters[] = {{'h', OPT_HELP},      {'v', OPT_VERBOSE},    {'v', OPT_CHECK_VERBOSE},
		       {'V', OPT_VERSION},   {'i', OPT_JOB_INPUT},  {'o', OPT_JOB_OUTPUT},
		       {'e', OPT_JOB_ERROR}, {'f', OPT_JOB_FOLLOW}, {'t', OPT_IMAGE_TAG}};

	for (size_t i = 0; i < ARRAY_SIZE(letters); i++)
		if (letters[i].letter == letter && cli_verb_takes(cli->verb, letters[i].id))
			return OPTION_BASE + (int)letters[i].id;
	return '?';
}

/* JSON, and so a request, can carry only such a text. */
static bool is_utf8(const char *text)
{
	json_t *string = json_string(text);
	bool is = string != NULL;

	json_decref(string);
	return is;
}

/* Names of files may be any bytes. */
static bool is_file(const struct cli_option *option)
{
	return !strcmp(option->argument, "FILE") || !strcmp(option->argument, "PATH") ||
	       !strcmp(option->argument, "DIR");
}

/* JSON carries UTF-8 only: what is something else would be left out of a request. */
static void value_check(enum cli_option_id id, const char *value, struct error *err)
{
	const struct cli_option *option = cli_options;

	while (option->id != id)
		option++;
	if (err->code || !option->argument || is_file(option) || is_utf8(value))
		return;
	error_set(err, EXIT_CODE_USAGE, "--%s: '%.64s' is not UTF-8", option->name, value);
	error_hint(err, "write it in the characters of a UTF-8 locale");
}

static void option_take(struct cli *cli, enum cli_option_id id, const char *value,
			struct error *err)
{
	cli->value[id] = value ? value : "";
	value_check(id, cli->value[id], err);
	if (cli->given_count < CLI_GIVEN_MAX) {
		cli->given[cli->given_count].id = id;
		cli->given[cli->given_count++].value = cli->value[id];
	} else if (!err->code) {
		error_set(err, EXIT_CODE_USAGE, "more than %d options are given", CLI_GIVEN_MAX);
		error_hint(err, "see `carve %s --help`", cli->verb ? cli->verb->name : "");
	}
}

/* Reads the options of argv[1 ...]. Returns the index of the first argument; where the first one
 * does not end the options, arguments are moved to the end. */
static int options_read(struct cli *cli, int argc, char **argv, bool stop, struct error *err)
{
	struct option options[OPTIONS_MAX];
	int result;

	options_make(cli->verb, options);
	optind = 0; /* glibc's way to forget the last scan */
	opterr = 0;
	/* One thread; the state that makes getopt unsafe is wanted here. */
	/* NOLINTNEXTLINE(concurrency-mt-unsafe) */
	while ((result = getopt_long(argc, argv, stop ? "+:hvVi:o:e:ft:" : ":hvVi:o:e:ft:", options,
				     NULL)) != -1) {
		if (result != ':' && result != '?' && result < OPTION_BASE) {
			optopt = result;
			result = short_option(cli, result);
		}
		if (result >= OPTION_BASE)
			option_take(cli, (enum cli_option_id)(result - OPTION_BASE), optarg, err);
		else
			option_error(cli, result, argv[optind - 1], err);
	}
	cli->dashes = optind > 1 && !strcmp(argv[optind - 1], "--");
	return optind;
}

/* The word of a verb's name that a user may have meant. */
static const char *verb_word(const struct cli_verb *verb, const char *group)
{
	const char *gap = strchr(verb->name, ' ');

	if (!group)
		return verb->name;
	return gap && cli_verb_in_group(verb, group) ? gap + 1 : NULL;
}

static int unknown_verb(const struct cli *cli, const char *typed, struct error *err)
{
	struct suggestion near = {0};
	char path[64], meant[SPLIT_UNIT_SIZE];

	error_set(err, EXIT_CODE_USAGE, "unknown command '%.64s'", typed);
	if (split_unit_option(cli, typed, true, meant)) {
		error_hint(err, "did you mean %s?", meant);
		return -err->code;
	}
	if (words_hint(cli->group, typed, err))
		return -err->code;
	for (const struct cli_verb *verb = cli_verbs; verb->name; verb++) {
		const char *word = verb_word(verb, cli->group);

		if (word)
			suggest_offer(&near, typed, word, strcspn(word, " "));
	}
	verb_path(cli, path);
	if (near.word)
		error_hint(err, "did you mean `%s %.*s`? see `%s --help`", path, (int)near.length,
			   near.word, path);
	else
		error_hint(err, "see `%s --help`", path);
	return -err->code;
}

static bool group_exists(const char *word)
{
	for (const struct cli_verb *verb = cli_verbs; verb->name; verb++)
		if (cli_verb_in_group(verb, word))
			return true;
	return false;
}

/* "the command" of "[--] CMD [ARG]...", "JOB" of "JOB...": the first word that must be there. */
static const char *missing_name(const struct cli_verb *verb, char buf[static 64])
{
	const char *word = verb->usage;

	while (*word == '[')
		word += strcspn(word, " ") + (strchr(word, ' ') ? 1 : 0);
	snprintf(buf, 64, "%.*s", (int)strcspn(word, " .["), word);
	return strcmp(buf, "CMD") ? buf : "the command";
}

/* One argument too many that is a size or a unit: `session request 4G`, `--vram 4 GB`, `resize 4
 * GB`. True: *err has the hint. */
static bool size_hint(const struct cli *cli, struct error *err)
{
	int most = cli->verb->arguments_max;
	const char *typed = cli->arguments[most];
	struct error ignored = {0};
	char meant[SPLIT_UNIT_SIZE];
	uint64_t bytes;

	if (split_unit_option(cli, typed, false, meant) ||
	    (most && split_unit_size(cli->arguments[most - 1], typed, meant))) {
		error_hint(err, "did you mean %s?", meant);
		return true;
	}
	if (!cli_verb_takes(cli->verb, OPT_VRAM) || units_parse_vram(typed, &bytes, &ignored) < 0)
		return false;
	error_hint(err, "did you mean --vram %.64s?", typed);
	return true;
}

/* `run --vram 4 GB CMD`: the unit would be taken for the command. */
static int command_check(const struct cli *cli, struct error *err)
{
	const char *typed = cli->arguments[0];
	char meant[SPLIT_UNIT_SIZE];

	if (cli->verb->syntax != CLI_SYNTAX_COMMAND || cli->dashes || !cli->argument_count ||
	    !split_unit_option(cli, typed, true, meant) || program_is_there(typed))
		return 0;
	error_set(err, EXIT_CODE_USAGE, "%s: there is no command '%s'", cli->verb->name, typed);
	error_hint(err, "did you mean %s?", meant);
	return -EXIT_CODE_USAGE;
}

/* Those of commands are other programs', and passed on as they stand. */
static int words_check(const struct cli *cli, struct error *err)
{
	const char *usage = cli->verb->usage;

	if (cli->verb->syntax != CLI_SYNTAX_MIXED || strstr(usage, "FILE") ||
	    strstr(usage, "PATH") || strstr(usage, "DIR"))
		return 0;
	for (int i = 0; i < cli->argument_count; i++)
		if (!is_utf8(cli->arguments[i])) {
			error_set(err, EXIT_CODE_USAGE, "%s: '%.64s' is not UTF-8", cli->verb->name,
				  cli->arguments[i]);
			error_hint(err, "write it in the characters of a UTF-8 locale");
			return -EXIT_CODE_USAGE;
		}
	return 0;
}

static int arguments_check(const struct cli *cli, struct error *err)
{
	const struct cli_verb *verb = cli->verb;
	char path[64], name[64];

	if (verb->arguments_max >= 0 && cli->argument_count > verb->arguments_max)
		error_set(err, EXIT_CODE_USAGE, "%s: unexpected argument '%.64s'", verb->name,
			  cli->arguments[verb->arguments_max]);
	else if (cli->argument_count < verb->arguments_min)
		error_set(err, EXIT_CODE_USAGE, "%s: %s is missing", verb->name,
			  missing_name(verb, name));
	else
		return words_check(cli, err) < 0 ? -err->code : command_check(cli, err);
	if (verb->arguments_max >= 0 && cli->argument_count > verb->arguments_max &&
	    size_hint(cli, err))
		return -EXIT_CODE_USAGE;
	error_hint(err, "usage: carve %s%s%s; see `%s --help`", verb->name, *verb->usage ? " " : "",
		   verb->usage, verb_path(cli, path));
	return -EXIT_CODE_USAGE;
}

static int verb_parse(struct cli *cli, int argc, char **argv, struct error *err)
{
	int first = 1;

	if (cli->verb->syntax != CLI_SYNTAX_RAW)
		first = options_read(cli, argc, argv, cli->verb->syntax == CLI_SYNTAX_COMMAND, err);
	cli->arguments = argv + first;
	cli->argument_count = argc - first;
	if (err->code || cli->value[OPT_HELP])
		return -err->code;
	/* Somebody's variable that is not set: another daemon than the one that was meant. */
	if (cli->value[OPT_HOST] && !*cli->value[OPT_HOST]) {
		error_set(err, EXIT_CODE_USAGE, "--host: no socket is named");
		error_hint(err, "leave it out for the daemon of this host or user");
		return -EXIT_CODE_USAGE;
	}
	return arguments_check(cli, err);
}

/* A verb without arguments that is a group as well: a first word is one of the group's verbs. */
static bool leads_group(const struct cli_verb *verb)
{
	if (verb->arguments_max)
		return false;
	for (const struct cli_verb *other = cli_verbs; other->name; other++)
		if (other != verb && cli_verb_in_group(other, verb->name))
			return true;
	return false;
}

static int leader_parse(struct cli *cli, int argc, char **argv, struct error *err)
{
	const struct cli_verb *leader = cli->verb;
	int next = options_read(cli, argc, argv, true, err);

	if (err->code || next == argc || cli->dashes)
		return verb_parse(cli, argc, argv, err);
	cli->verb = words_verb(leader->name, argv[next]);
	cli->group = leader->name;
	if (!cli->verb)
		return unknown_verb(cli, argv[next], err);
	return verb_parse(cli, argc - next, argv + next, err);
}

static int group_verb_missing(const struct cli *cli, struct error *err)
{
	char path[64];

	error_set(err, EXIT_CODE_USAGE, "%s: no command given", cli->group);
	error_hint(err, "see `%s --help`", verb_path(cli, path));
	return -EXIT_CODE_USAGE;
}

/* `docker -H unix:///run/docker.sock run ...`: the runtime's own options, and carve's, may stand
 * before the verb. False: *rc is not set, as none of them is there. */
static bool runtime_parse(struct cli *cli, int argc, char **argv, int *rc, struct error *err)
{
	enum container_syntax syntax;

	if (argc < 2 || argv[1][0] != '-' || !strcmp(argv[1], "--help") || !strcmp(argv[1], "-h") ||
	    !container_syntax_global(argv[0], &syntax))
		return false;
	cli->global = argv + 1;
	cli->global_count = (int)container_args_global_count(cli->global, syntax);
	int next = 1 + cli->global_count;
	if (next >= argc) {
		*rc = group_verb_missing(cli, err);
		return true;
	}
	cli->verb = words_verb(cli->group, argv[next]);
	*rc = cli->verb ? verb_parse(cli, argc - next, argv + next, err)
			: unknown_verb(cli, argv[next], err);
	return true;
}

/* argv[0] names a group or a verb. */
static int words_parse(struct cli *cli, int argc, char **argv, struct error *err)
{
	int rc;

	cli->verb = argc > 1 ? words_verb(argv[0], argv[1]) : NULL;
	if (cli->verb)
		return verb_parse(cli, argc - 1, argv + 1, err);
	cli->verb = verb_find(argv[0]);
	if (cli->verb)
		return leads_group(cli->verb) ? leader_parse(cli, argc, argv, err)
					      : verb_parse(cli, argc, argv, err);
	cli->group = argv[0];
	if (runtime_parse(cli, argc, argv, &rc, err))
		return rc;
	int next = options_read(cli, argc, argv, true, err);

	if (err->code || cli->value[OPT_HELP])
		return -err->code;
	if (next == argc)
		return group_verb_missing(cli, err);
	cli->verb = words_verb(cli->group, argv[next]);
	if (!cli->verb)
		return unknown_verb(cli, argv[next], err);
	return verb_parse(cli, argc - next, argv + next, err);
}

static const struct cli_short *short_find(const char *word)
{
	for (const struct cli_short *s = cli_shorts; s->word; s++)
		if (!strcmp(s->word, word))
			return s;
	return NULL;
}

/* `ls --json` as `session list --json`. argv[next] is the short word. */
static int short_parse(struct cli *cli, const struct cli_short *word, int argc, char **argv,
		       int next, struct error *err)
{
	char **longer = calloc((size_t)argc + 2, sizeof(*longer));
	int count = 0;

	if (!longer)
		return error_set(err, EXIT_CODE_FAILED, "out of memory");
	for (int i = 0; i < next; i++)
		longer[count++] = argv[i];
	longer[count++] = (char *)word->first;
	if (word->second)
		longer[count++] = (char *)word->second;
	for (int i = next + 1; i < argc; i++)
		longer[count++] = argv[i];
	*cli = (struct cli){.words = longer};
	return cli_parse(cli, count, longer, err);
}

int cli_parse(struct cli *cli, int argc, char **argv, struct error *err)
{
	int next = options_read(cli, argc, argv, true, err);

	if (!err->code && cli->value[OPT_VERSION] && !cli->value[OPT_HELP] && next < argc)
		return error_set(err, EXIT_CODE_USAGE, "--version: unexpected argument '%.64s'",
				 argv[next]);
	if (err->code || cli->value[OPT_HELP] || cli->value[OPT_VERSION])
		return -err->code;
	if (next == argc) {
		error_set(err, EXIT_CODE_USAGE, "no command given");
		error_hint(err, "see `carve --help`; for example: carve gpu list");
		return -EXIT_CODE_USAGE;
	}
	const struct cli_short *word = short_find(argv[next]);
	if (word)
		return short_parse(cli, word, argc, argv, next, err);
	/* No queue is named so: an agent for one would be a surprise. */
	if (!strcmp(argv[next], "agent") && next + 1 < argc && words_mean_list(argv[next + 1]))
		argv[next + 1] = (char *)"--status";
	if (!group_exists(argv[next]))
		return unknown_verb(cli, argv[next], err);
	return words_parse(cli, argc - next, argv + next, err);
}
