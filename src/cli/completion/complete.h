/* The words that may stand at a place of a command line, for the completion of shells. */
#pragma once

#include <stdio.h>

/* Prints the candidates for the last of `words`, which follow the word `carve`. The last word may
 * be typed in part, or be "". One candidate a line, and only those that begin with it. ":files" and
 * ":commands" stand for the files and commands that the shell knows. Asks a daemon that runs, and
 * starts none. */
void complete_print(FILE *out, int count, char *const *words);
