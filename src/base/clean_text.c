#include "base/clean_text.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

/* The length in bytes of the character, and its number. 0: it is no UTF-8. */
static size_t character_take(const unsigned char *text, uint32_t *ret)
{
	static const struct {
		unsigned char mask, lead;
		uint32_t least; /* smaller numbers have shorter forms */
	} forms[] = {{0x80, 0, 0}, {0xe0, 0xc0, 0x80}, {0xf0, 0xe0, 0x800}, {0xf8, 0xf0, 0x10000}};

	for (size_t length = 1; length <= 4; length++) {
		size_t at = 1;

		if ((text[0] & forms[length - 1].mask) != forms[length - 1].lead)
			continue;
		*ret = text[0] & (unsigned char)~forms[length - 1].mask;
		while (at < length && (text[at] & 0xc0) == 0x80)
			*ret = *ret << 6 | (text[at++] & 0x3f);
		bool is_surrogate = *ret >= 0xd800 && *ret <= 0xdfff;
		return at == length && *ret >= forms[length - 1].least && *ret <= 0x10ffff &&
				       !is_surrogate
			       ? length
			       : 0;
	}
	return 0;
}

static bool is_fit(uint32_t character)
{
	return character >= 0x20 && !(character >= 0x7f && character <= 0x9f) &&
	       !(character >= 0x200e && character <= 0x200f) &&
	       !(character >= 0x2028 && character <= 0x202e) &&
	       !(character >= 0x2066 && character <= 0x2069) && character != 0x61c &&
	       character != 0xfeff;
}

char *clean_text(const char *text, char *buf, size_t size)
{
	const unsigned char *at = (const unsigned char *)(text ? text : "");
	size_t used = 0;

	while (*at) {
		uint32_t character = 0;
		size_t length = character_take(at, &character);
		bool fit = length && is_fit(character);
		size_t taken = fit ? length : 1;

		if (used + taken >= size)
			break;
		if (fit)
			memcpy(buf + used, at, length);
		else
			buf[used] = '?';
		used += taken;
		at += length ? length : 1;
	}
	buf[used] = '\0';
	return buf;
}
