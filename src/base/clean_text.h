/* Texts that users wrote, made fit for a log, for JSON and for a terminal. libc only. */
#pragma once

#include <stddef.h>

/* Copies as much of the text as fits, in whole characters. A byte that is no UTF-8, a control
 * character, a line separator and a character that turns the direction of writing become '?'.
 * `text` NULL is "". Returns buf. */
char *clean_text(const char *text, char *buf, size_t size);
