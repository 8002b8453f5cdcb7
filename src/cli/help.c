/* --help and `carve help`, made of the tables of verbs and options. */
#include "cli/help.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/macros.h"
#include "cli/cli.h"
#include "cli/output.h"

static void options_print(const struct cli_verb *verb)
{
	printf("\nOptions:\n");
	for (const struct cli_option *o = cli_options; o->name; o++) {
		char left[64];

		if (!o->help || !cli_verb_takes(verb, o->id))
			continue;
		snprintf(left, sizeof(left), "--%s%s%s", o->name, o->argument ? " " : "",
			 o->argument ? o->argument : "");
		printf("  %-27s %s\n", left, o->help);
	}
}

/* A verb that is a group as well. */
static void others_print(const struct cli_verb *verb)
{
	bool title = false;

	for (const struct cli_verb *other = cli_verbs; other->name; other++) {
		if (other == verb || !cli_verb_in_group(other, verb->name))
			continue;
		printf("%s  %-21s %s\n", title ? "" : "\nSee also:\n", other->name, other->summary);
		title = true;
	}
}

static void verb_help(const struct cli_verb *verb)
{
	printf("usage: carve %s [OPTION]...%s%s\n%s\n", verb->name, *verb->usage ? " " : "",
	       verb->usage, verb->summary);
	options_print(verb);
	if (verb->syntax == CLI_SYNTAX_RAW && verb->options)
		puts("All others are the runtime's own, --gpus and --name too.");
	printf("\nExample:\n  %s\n", verb->example);
	others_print(verb);
}

static const char *const section_titles[SECTION_COUNT] = {
	[SECTION_EVERYDAY] = "Everyday",           [SECTION_QUEUES] = "Queues",
	[SECTION_CONTAINERS] = "Containers",       [SECTION_CLUSTER] = "Cluster",
	[SECTION_ADMINISTRATOR] = "Administrator", [SECTION_SIMULATED] = "Simulated GPUs",
};

static bool is_in_group(const struct cli_verb *verb, const char *group)
{
	return !group || cli_verb_in_group(verb, group);
}

static int width_of(const char *group)
{
	int width = 0;

	for (const struct cli_verb *verb = cli_verbs; verb->name; verb++)
		if (is_in_group(verb, group))
			width = MAX(width, (int)strlen(verb->name));
	return width;
}

/* The commands of `group`, or with NULL all of them, each section under its title. Returns the
 * first one. */
static const struct cli_verb *verbs_print(const char *group)
{
	const struct cli_verb *first = NULL, *last = NULL;
	int width = width_of(group);

	for (const struct cli_verb *verb = cli_verbs; verb->name; verb++) {
		if (!is_in_group(verb, group))
			continue;
		if (!last || (!group && verb->section != last->section))
			printf("\n%s:\n", group ? "Commands" : section_titles[verb->section]);
		printf("  %-*s  %s\n", width, verb->name, verb->summary);
		first = first ? first : verb;
		last = verb;
	}
	return first;
}

void help_print(const struct cli_verb *verb, const char *group)
{
	const struct cli_verb *first;

	if (verb) {
		verb_help(verb);
		return;
	}
	printf("usage: carve %s%sCOMMAND [OPTION]... [ARG]...\n", group ? group : "",
	       group ? " " : "");
	if (!group)
		printf("Cut GPUs into slices that hold.\n");
	first = verbs_print(group);
	if (first)
		printf("\nExample:\n  %s\n", first->example);
	printf("\n`carve %s%sCOMMAND --help` tells more about one.\n", group ? group : "",
	       group ? " " : "");
	if (!group)
		printf("The guides are listed in /usr/share/doc/carve/index.md.\n");
}

static json_t *verb_json(const struct cli_verb *verb)
{
	json_t *options = json_array();

	for (const struct cli_option *o = cli_options; o->name; o++)
		if (verb->syntax != CLI_SYNTAX_RAW && cli_verb_takes(verb, o->id))
			json_array_append_new(options, json_sprintf("--%s", o->name));
	return json_pack("{s:s,s:s,s:s,s:s,s:s,s:o}", "name", verb->name, "section",
			 section_titles[verb->section], "usage", verb->usage, "summary",
			 verb->summary, "example", verb->example, "options", options);
}

static int help_json(const char *name, struct error *err)
{
	json_t *verbs = json_array();

	for (const struct cli_verb *verb = cli_verbs; verb->name; verb++)
		if (!name || cli_verb_in_group(verb, name))
			json_array_append_new(verbs, verb_json(verb));
	int rc = output_json(verbs, err);
	json_decref(verbs);
	return rc;
}

/* The program that such a verb is handed to knows its options. */
static int tool_help(struct cli *cli, const struct cli_verb *verb, struct error *err)
{
	char *argument = "--help";

	cli->verb = verb;
	cli->arguments = &argument;
	cli->argument_count = 1;
	return verb->run(cli, err);
}

int cli_help(struct cli *cli, struct error *err)
{
	char name[64] = "";
	const char *group = cli->argument_count ? cli->arguments[0] : NULL;
	bool known = !group;

	if (group)
		snprintf(name, sizeof(name), "%s%s%s", group, cli->argument_count > 1 ? " " : "",
			 cli->argument_count > 1 ? cli->arguments[1] : "");
	const struct cli_verb *found = NULL;
	for (const struct cli_verb *verb = cli_verbs; verb->name && group; verb++) {
		known = known || cli_verb_in_group(verb, name);
		if (!strcmp(verb->name, name))
			found = verb;
	}
	if (!known) {
		error_set(err, EXIT_CODE_USAGE, "help: unknown command '%.64s'", name);
		error_hint(err, "see `carve help`");
		return -EXIT_CODE_USAGE;
	}
	if (cli->value[OPT_JSON])
		return help_json(group ? name : NULL, err);
	if (found && found->syntax == CLI_SYNTAX_RAW)
		return tool_help(cli, found, err);
	help_print(found, group);
	return 0;
}
