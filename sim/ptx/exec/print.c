/* The device's vprintf and the arguments of intrinsic calls. */
#include <inttypes.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/macros.h"
#include "ptx/exec/handlers.h"

#define FORMAT_MAX 4096
#define LINE_MAX_BYTES 8192
#define STRING_MAX_BYTES 4096

static const unsigned char *slot_bytes(const struct warp *warp, const uint32_t *slot, unsigned lane)
{
	if (slot[0])
		return (const unsigned char *)value_at(warp, slot[1]) + (size_t)lane * slot[2];
	return warp->local + (size_t)lane * warp->launch->local_bytes + warp->local_base + slot[1];
}

uint64_t call_argument(const struct warp *warp, const struct insn *insn, unsigned index,
		       unsigned lane)
{
	const uint32_t *words = &warp->extra[insn->extra];
	const uint32_t *slot = words + 2 + (size_t)3 * (words[0] + index);
	uint64_t value = 0;

	if (index < words[1])
		memcpy(&value, slot_bytes(warp, slot, lane), MIN(slot[2], 8u));
	return value;
}

void call_return(struct warp *warp, const struct insn *insn, uint64_t value, unsigned lane)
{
	const uint32_t *words = &warp->extra[insn->extra], *slot = words + 2;

	if (words[0] > 0)
		memcpy((unsigned char *)slot_bytes(warp, slot, lane), &value, MIN(slot[2], 8u));
}

/* A string of the device; false after a fault. */
static bool read_string(struct warp *warp, uint64_t address, char *text, size_t size, unsigned lane)
{
	for (size_t i = 0; i + 1 < size; i++) {
		const unsigned char *at = warp_resolve(warp, address + i, 1, false, lane);

		if (!at)
			return false;
		text[i] = (char)*at;
		if (!*at)
			return true;
	}
	text[size - 1] = '\0';
	return true;
}

struct printer {
	struct warp *warp;
	unsigned lane;
	uint64_t arguments; /* address of the next one */
	char line[LINE_MAX_BYTES];
	size_t length;
	unsigned count;
};

static bool next_argument(struct printer *p, unsigned size, uint64_t *ret)
{
	const unsigned char *at;

	p->arguments = ALIGN_UP(p->arguments, (uint64_t)size);
	at = warp_resolve(p->warp, p->arguments, size, false, p->lane);
	if (!at)
		return false;
	*ret = 0;
	memcpy(ret, at, size);
	p->arguments += size;
	p->count++;
	return true;
}

static void append(struct printer *p, const char *text, size_t length)
{
	length = MIN(length, sizeof(p->line) - p->length);
	memcpy(p->line + p->length, text, length);
	p->length += length;
}

/* One conversion: `directive` is "%-08" and its like, without length and letter. */
static bool print_conversion(struct printer *p, const char *directive, bool wide, char letter)
{
	char format[48], text[512], string[STRING_MAX_BYTES];
	uint64_t bits;
	double real;
	int length = 0;
	bool is_signed = letter == 'd' || letter == 'i';
	bool is_real = strchr("aAeEfFgG", letter) != NULL;

	if (!next_argument(p, wide || is_real || letter == 's' || letter == 'p' ? 8 : 4, &bits))
		return false;
	if (letter == 's') {
		if (!read_string(p->warp, bits, string, sizeof(string), p->lane))
			return false;
		append(p, string, strlen(string));
		return true;
	}
	if (letter == 'p') {
		length = snprintf(text, sizeof(text), "0x%" PRIx64, bits);
	} else if (is_real) {
		memcpy(&real, &bits, sizeof(real));
		snprintf(format, sizeof(format), "%s%c", directive, letter);
		length = snprintf(text, sizeof(text), format, real);
	} else if (letter == 'c') {
		text[0] = (char)bits;
		length = 1;
	} else {
		snprintf(format, sizeof(format), "%sj%c", directive, letter);
		if (is_signed)
			length = snprintf(text, sizeof(text), format,
					  wide ? (intmax_t)bits : (intmax_t)(int32_t)bits);
		else
			length = snprintf(text, sizeof(text), format, (uintmax_t)bits);
	}
	append(p, text, (size_t)MIN(MAX(length, 0), (int)sizeof(text) - 1));
	return true;
}

/* Copies flags, width and precision of a conversion into `directive` ('*' is read from the
 * arguments); returns what follows them. */
static const char *read_directive(struct printer *p, const char *at, char *directive, size_t size)
{
	size_t length = 1;

	directive[0] = '%';
	for (; *at && strchr("-+ #0123456789.*", *at); at++) {
		uint64_t bits = 0;

		if (length + 12 >= size)
			continue;
		if (*at == '*') {
			if (!next_argument(p, 4, &bits))
				return NULL;
			length += (size_t)snprintf(directive + length, size - length, "%d",
						   (int)(int32_t)bits % 1000);
		} else {
			directive[length++] = *at;
		}
	}
	directive[length] = '\0';
	/* Wide fields would overrun the line; the hardware's buffer is small too. */
	for (const char *digits = directive; *digits; digits++) {
		if (strspn(digits, "0123456789") > 3)
			directive[1] = '\0';
	}
	return at;
}

/* One thread's printf; what it returns is the number of arguments. */
static bool print_format(struct printer *p, const char *format)
{
	while (*format) {
		size_t plain = strcspn(format, "%");
		char directive[32];
		bool wide = false;

		append(p, format, plain);
		format += plain;
		if (!*format)
			break;
		if (format[1] == '%') {
			append(p, "%", 1);
			format += 2;
			continue;
		}
		format = read_directive(p, format + 1, directive, sizeof(directive));
		if (!format)
			return false;
		for (; *format && strchr("hljztL", *format); format++)
			wide = wide || strchr("ljzt", *format);
		if (!*format || !strchr("diouxXcspaAeEfFgG", *format))
			continue;
		if (!print_conversion(p, directive, wide, *format++))
			return false;
	}
	return true;
}

void warp_print(struct warp *warp, const struct insn *insn, uint32_t mask)
{
	const struct ptx_launch *given = warp->launch->given;
	/* That of the "C" locale is static: there is nothing to free. */
	locale_t before = uselocale(newlocale(LC_ALL_MASK, "C", (locale_t)0));
	char format[FORMAT_MAX];

	launch_meet_when_due(warp->launch);
	LANES_OF(mask)
	{
		struct printer p = {.warp = warp, .lane = l};

		p.arguments = call_argument(warp, insn, 1, l);
		if (!read_string(warp, call_argument(warp, insn, 0, l), format, sizeof(format),
				 l) ||
		    !print_format(&p, format))
			break;
		if (given->callbacks->print)
			given->callbacks->print(given->user, p.line, p.length);
		call_return(warp, insn, p.count, l);
	}
	uselocale(before);
}
