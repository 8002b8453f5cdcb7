/* Characters of UTF-8. libc only. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The length in bytes of the character at the beginning of a text that ends with a zero byte, and
 * the character's number. 0: these bytes are no character. Overlong forms, surrogates and numbers
 * above U+10FFFF are none. */
size_t utf8_take(const char *begin, uint32_t *ret);

/* Whether a character is not to be shown. It is a control character (C0, DELETE, C1), or changes
 * how a terminal shows others: it has no width, separates lines, or changes the direction. */
bool utf8_is_control(uint32_t character);
