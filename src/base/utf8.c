#include "base/utf8.h"

#include "base/macros.h"

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

bool utf8_is_control(uint32_t character)
{
	static const struct {
		uint32_t first, last;
	} controls[] = {{0, 0x1f},         /* C0 */
			{0x7f, 0x9f},      /* DELETE and C1 */
			{0x61c, 0x61c},    /* ARABIC LETTER MARK */
			{0x200b, 0x200f},  /* ZERO WIDTH SPACE to RIGHT-TO-LEFT MARK */
			{0x2028, 0x202e},  /* LINE SEPARATOR to RIGHT-TO-LEFT OVERRIDE */
			{0x2066, 0x2069},  /* the isolates */
			{0xfeff, 0xfeff}}; /* ZERO WIDTH NO-BREAK SPACE */

	for (size_t i = 0; i < ARRAY_SIZE(controls); i++)
		if (controls[i].first <= character && character <= controls[i].last)
			return true;
	return false;
}
