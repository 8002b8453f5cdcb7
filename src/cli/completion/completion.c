/* The completion of shells: a few lines of each, which ask `carve completion words`, and keep the
 * order of its words. */
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/macros.h"
#include "cli/cli.h"
#include "cli/completion/complete.h"

static const char bash_script[] =
	"# Completion of carve for bash, made by `carve completion bash`.\n"
	"_carve() {\n"
	"\tlocal current=${COMP_WORDS[COMP_CWORD]} word\n"
	"\tCOMPREPLY=()\n"
	"\t[ \"$current\" != = ] || current=\n"
	"\twhile IFS= read -r word; do\n"
	"\t\tcase $word in\n"
	"\t\t:files) mapfile -t -O ${#COMPREPLY[@]} COMPREPLY < <(compgen -f -- \"$current\") ;;\n"
	"\t\t:commands) mapfile -t -O ${#COMPREPLY[@]} COMPREPLY < <(compgen -c -- \"$current\") "
	";;\n"
	"\t\t*) COMPREPLY+=(\"$word\") ;;\n"
	"\t\tesac\n"
	"\tdone < <(\"${COMP_WORDS[0]}\" completion words -- \"${COMP_WORDS[@]:1:COMP_CWORD}\" "
	"2>/dev/null)\n"
	"}\n"
	"complete -o nosort -F _carve carve\n";

static const char zsh_script[] =
	"#compdef carve\n"
	"# Completion of carve for zsh, made by `carve completion zsh`.\n"
	"_carve() {\n"
	"\tlocal -a found plain\n"
	"\tfound=(\"${(@f)$(\"${words[1]}\" completion words -- \"${(@)words[2,CURRENT]}\" "
	"2>/dev/null)}\")\n"
	"\tplain=(${found:#:*})\n"
	"\t[[ $PREFIX != --*=* ]] || compset -P '--*='\n"
	"\t[[ -n ${found[(r):files]} ]] && _files\n"
	"\t[[ -n ${found[(r):commands]} ]] && _command_names -e\n"
	"\tcompadd -V carve -a plain\n"
	"}\n"
	"if [[ ${funcstack[1]} == _carve ]]; then _carve \"$@\"; else compdef _carve carve; fi\n";

static const char fish_script[] =
	"# Completion of carve for fish, made by `carve completion fish`.\n"
	"function __carve_words\n"
	"\tset -l tokens (commandline -opc)\n"
	"\tset -l current (commandline -ct)\n"
	"\tset -l option (string match -r -- '^--[^=]*=' \"$current\")\n"
	"\tfor word in ($tokens[1] completion words -- $tokens[2..-1] \"$current\" 2>/dev/null)\n"
	"\t\tswitch $word\n"
	"\t\tcase :files\n"
	"\t\t\tfor path in (__fish_complete_path (string replace -- \"$option\" '' \"$current\"))\n"
	"\t\t\t\techo \"$option$path\"\n"
	"\t\t\tend\n"
	"\t\tcase :commands\n"
	"\t\t\t__fish_complete_command\n"
	"\t\tcase '*'\n"
	"\t\t\techo \"$option$word\"\n"
	"\t\tend\n"
	"\tend\n"
	"end\n"
	"complete -c carve -k -f -a '(__carve_words)'\n";

static const struct {
	const char *name, *script;
} shells[] = {{"bash", bash_script}, {"zsh", zsh_script}, {"fish", fish_script}};

static int refuse(const char *message, const char *word, const char *hint, struct error *err)
{
	error_set(err, EXIT_CODE_USAGE, message, word);
	error_hint(err, "%s", hint);
	return -EXIT_CODE_USAGE;
}

int cli_completion(struct cli *cli, struct error *err)
{
	const char *shell = cli->arguments[0];

	if (!strcmp(shell, "words")) {
		bool dashes = cli->argument_count > 1 && !strcmp(cli->arguments[1], "--");

		complete_print(stdout, cli->argument_count - 1 - dashes,
			       cli->arguments + 1 + dashes);
		return 0;
	}
	/* The words that follow "words" may be anything, so that options end before the shell. */
	if (cli->argument_count > 1 && !strcmp(cli->arguments[1], "--json"))
		cli->value[OPT_JSON] = "";
	else if (cli->argument_count > 1)
		return refuse("completion: unexpected argument '%.64s'", cli->arguments[1],
			      "carve completion bash", err);
	if (cli->value[OPT_JSON])
		return refuse("completion: it prints text for the shell, and never JSON%s", "",
			      "carve completion bash, or for programs: carve help --json", err);
	for (size_t i = 0; i < ARRAY_SIZE(shells); i++)
		if (!strcmp(shell, shells[i].name)) {
			fputs(shells[i].script, stdout);
			return 0;
		}
	return refuse("completion: '%.64s' is no shell that carve knows", shell,
		      "carve completion bash (or zsh, or fish)", err);
}
