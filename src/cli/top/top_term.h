/* The kind of this terminal, and how it is given back when there is no time to ask curses. */
#pragma once

#include <stdbool.h>

/* Whether a screen can be drawn here: standard input and output are a terminal that can place its
 * cursor. */
bool top_term_usable(void);
/* Notes the terminal's state, and has it restored when the program dies of its own error. */
void top_term_guard(void);
