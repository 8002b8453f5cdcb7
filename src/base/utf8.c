#include "base/utf8.h"

#include <stdbool.h>

size_t utf8_take(const char *begin, uint32_t *ret)
{
	const unsigned char *text = (const unsigned char *)begin;
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
