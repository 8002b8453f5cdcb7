/* The completion of shells, made of the tables of verbs and options. */
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "cli/cli.h"
#include "cli/output.h"

static void options_print(const struct cli_verb *verb)
{
	for (const struct cli_option *o = cli_options; o->name; o++)
		if (verb->syntax != CLI_SYNTAX_RAW && cli_verb_takes(verb, o->id))
			printf(" --%s", o->name);
}

/* The second words of a group, "" where the verb has none. */
static void words_print(const char *group)
{
	for (const struct cli_verb *verb = cli_verbs; verb->name; verb++) {
		const char *gap = strchr(verb->name, ' ');

		if (gap && cli_verb_in_group(verb, group))
			printf(" %s", gap + 1);
	}
}

static bool is_first_of_group(const struct cli_verb *verb)
{
	size_t length = strcspn(verb->name, " ");

	for (const struct cli_verb *other = cli_verbs; other != verb; other++)
		if (!strncmp(other->name, verb->name, length) &&
		    strcspn(other->name, " ") == length)
			return false;
	return true;
}

static void groups_print(void)
{
	printf("\tcase $first in\n\t'') words='--help --version --json --host");
	for (const struct cli_verb *verb = cli_verbs; verb->name; verb++)
		if (is_first_of_group(verb))
			printf(" %.*s", (int)strcspn(verb->name, " "), verb->name);
	printf("' ;;\n");
	for (const struct cli_verb *verb = cli_verbs; verb->name; verb++) {
		char group[64];

		if (!is_first_of_group(verb) || !strchr(verb->name, ' '))
			continue;
		snprintf(group, sizeof(group), "%.*s", (int)strcspn(verb->name, " "), verb->name);
		printf("\t%s) words='", group);
		words_print(group);
		printf("' ;;\n");
	}
	printf("\tesac\n");
}

static void bash_print(void)
{
	printf("# Completion of carve for bash, made by `carve completion bash`.\n"
	       "_carve() {\n"
	       "\tlocal current=${COMP_WORDS[COMP_CWORD]} first= second= words= command= i\n"
	       "\tfor ((i = 1; i < COMP_CWORD; i++)); do\n"
	       "\t\tcase ${COMP_WORDS[i]} in\n"
	       "\t\t--host) ((i++)) ;;\n"
	       "\t\t-*) ;;\n"
	       "\t\t*) if [ -z \"$first\" ]; then first=${COMP_WORDS[i]}; "
	       "elif [ -z \"$second\" ]; then second=${COMP_WORDS[i]}; fi ;;\n"
	       "\t\tesac\n"
	       "\tdone\n");
	groups_print();
	printf("\tcase \"$first $second\" in\n");
	for (const struct cli_verb *verb = cli_verbs; verb->name; verb++) {
		printf("\t'%s'%s) words+='", verb->name, strchr(verb->name, ' ') ? "" : "' '*");
		options_print(verb);
		printf("'%s ;;\n", verb->syntax == CLI_SYNTAX_COMMAND ? " command=1" : "");
	}
	printf("\tesac\n"
	       "\tCOMPREPLY=()\n"
	       "\tif [ -z \"$command\" ] || [[ $current == -* ]]; then\n"
	       "\t\tmapfile -t COMPREPLY < <(compgen -W \"$words\" -- \"$current\")\n"
	       "\telse\n"
	       "\t\tmapfile -t COMPREPLY < <(compgen -c -f -- \"$current\")\n"
	       "\tfi\n"
	       "}\n"
	       "complete -F _carve carve\n");
}

int cli_completion(struct cli *cli, struct error *err)
{
	if (strcmp(cli->arguments[0], "bash") != 0) {
		error_set(err, EXIT_CODE_USAGE, "completion: '%.64s' is no shell that carve knows",
			  cli->arguments[0]);
		error_hint(err, "carve completion bash");
		return -EXIT_CODE_USAGE;
	}
	if (cli->value[OPT_JSON]) {
		error_set(err, EXIT_CODE_USAGE,
			  "completion: what it prints is for the shell, and never JSON");
		error_hint(err, "carve completion bash, or for programs: carve help --json");
		return -EXIT_CODE_USAGE;
	}
	bash_print();
	return 0;
}
