#include "base/clean_text.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "base/utf8.h"

char *clean_text(const char *text, char *buf, size_t size)
{
	const char *at = text ? text : "";
	size_t used = 0;

	while (*at) {
		uint32_t character = 0;
		size_t length = utf8_take(at, &character);
		bool fit = length && !utf8_is_control(character);
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
