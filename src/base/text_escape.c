#include "base/text_escape.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/macros.h"
#include "base/utf8.h"

/* Bytes of a UTF-8 character. */
#define CHARACTER_MOST 4

/* The length of a well-formed character, from its first byte. */
static size_t lead_length(const char *text)
{
	unsigned char lead = (unsigned char)text[0];

	return lead < 0x80 ? 1 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
}

/* Length of the UTF-8 character that `size` bytes begin with, and the character; 0: they begin with
 * none. */
static size_t character_take(const char *text, size_t size, uint32_t *ret)
{
	char begin[CHARACTER_MOST + 1] = "";

	memcpy(begin, text, MIN(size, (size_t)CHARACTER_MOST));
	return utf8_take(begin, ret);
}

const char *text_escape(const char *text, bool controls, char *buf)
{
	char *to = buf;

	while (*text) {
		uint32_t character = 0;
		size_t length = utf8_take(text, &character);

		if (length && !(controls && utf8_is_control(character))) {
			to = mempcpy(to, text, length);
			text += length;
			continue;
		}
		for (size_t i = 0; i < MAX(length, 1); i++, text++)
			to += *text == '\n' ? sprintf(to, "\\n")
					    : sprintf(to, "\\x%02x", (unsigned char)*text);
	}
	*to = '\0';
	return buf;
}

/* The rest of the part may be the beginning of a character. */
static bool is_cut(const char *text, size_t size)
{
	unsigned char lead = (unsigned char)text[0];
	bool cut = lead >= 0xc2 && lead <= 0xf4 && size < lead_length(text);

	for (size_t i = 1; cut && i < size; i++)
		cut = ((unsigned char)text[i] & 0xc0) == 0x80;
	return cut;
}

static bool is_shown(uint32_t character)
{
	return character == '\n' || character == '\t' || !utf8_is_control(character);
}

size_t text_escape_part(const char *part, size_t size, bool last, char *buf, size_t *ret_size)
{
	const char *at = part, *end = part + size;
	char *to = buf;

	while (at < end && (last || !is_cut(at, (size_t)(end - at)))) {
		uint32_t character = 0;
		size_t length = character_take(at, (size_t)(end - at), &character);

		if (length && is_shown(character)) {
			to = mempcpy(to, at, length);
			at += length;
			continue;
		}
		for (size_t i = 0; i < MAX(length, 1); i++, at++) {
			char code[TEXT_ESCAPE_SIZE + 1];

			snprintf(code, sizeof(code), "\\x%02x", (unsigned char)*at);
			to = mempcpy(to, code, TEXT_ESCAPE_SIZE);
		}
	}
	*ret_size = (size_t)(to - buf);
	return (size_t)(at - part);
}
