/* Words that people try in place of a verb's name. */
#pragma once

#include <stdbool.h>

struct cli_verb;
struct error;

/* The verb of a group that a word stands for: its own name, or one that other commands have for the
 * same. NULL: none. */
const struct cli_verb *words_verb(const char *group, const char *word);
/* Whether a word asks for a list, or for how things are. */
bool words_mean_list(const char *word);
/* The command to type instead, where the group (NULL: none was named) has no such verb, but another
 * command does it. True: *err has the hint. */
bool words_hint(const char *group, const char *word, struct error *err);
/* The command to type instead of an option that the verb had once. True: *err has the hint. */
bool words_option_hint(const struct cli_verb *verb, const char *typed, struct error *err);
/* The option of `verb` that one of other programs (--memory, -q) stands for. NULL: none. */
const char *words_option(const struct cli_verb *verb, const char *typed);
