#pragma once

struct cli_verb;

/* Prints the help of a verb; or, where it is NULL, of a group; or, where both are, of carve. */
void help_print(const struct cli_verb *verb, const char *group);
