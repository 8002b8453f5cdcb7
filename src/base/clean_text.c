#include "base/clean_text.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "base/utf8.h"

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
	const char *at = text ? text : "";
	size_t used = 0;

	while (*at) {
		uint32_t character = 0;
		size_t length = utf8_take(at, &character);
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
