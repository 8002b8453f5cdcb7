#include "integrations/kubernetes/object/quantity.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/macros.h"

/* More digits than a quantity can have. */
#define DIGITS_MAX 30
/* 10^exponent beyond this is 0 or overflows, whatever the digits are. */
#define EXPONENT_MAX 60
/* Quantities are compared to a millionth. Nine decimals of a GPU's memory in bytes overflow. */
#define EQUAL_DECIMALS 6

typedef unsigned __int128 wide;

static const struct suffix {
	const char *text;
	int ten, two; /* 10^ten * 2^two */
} suffixes[] = {
	{"", 0, 0},    {"n", -9, 0},  {"u", -6, 0},  {"m", -3, 0},  {"k", 3, 0},   {"M", 6, 0},
	{"G", 9, 0},   {"T", 12, 0},  {"P", 15, 0},  {"E", 18, 0},  {"Ki", 0, 10}, {"Mi", 0, 20},
	{"Gi", 0, 30}, {"Ti", 0, 40}, {"Pi", 0, 50}, {"Ei", 0, 60},
};

/* The digits before and after the point as one number, and how many stood after it. */
static const char *digits_read(const char *at, wide *ret_value, int *ret_decimals)
{
	wide value = 0;
	int digits = 0, decimals = 0;
	bool point = false;

	for (; isdigit((unsigned char)*at) || (*at == '.' && !point); at++) {
		if (*at == '.') {
			point = true;
			continue;
		}
		value = value * 10 + (wide)(*at - '0');
		digits++;
		decimals += point;
		if (digits > DIGITS_MAX)
			return NULL;
	}
	*ret_value = value;
	*ret_decimals = decimals;
	return digits ? at : NULL;
}

/* The powers of a suffix or an exponent. 0 or -EINVAL. */
static int scale_read(const char *at, int *ret_ten, int *ret_two)
{
	char *end;

	for (size_t i = 0; i < ARRAY_SIZE(suffixes); i++)
		if (!strcmp(suffixes[i].text, at)) {
			*ret_ten = suffixes[i].ten;
			*ret_two = suffixes[i].two;
			return 0;
		}
	if ((*at != 'e' && *at != 'E') || !at[strspn(at, "eE+-")])
		return -EINVAL;
	long ten = strtol(at + 1, &end, 10);
	if (*end || end == at + 1 || isspace((unsigned char)at[1]) || ten < -EXPONENT_MAX ||
	    ten > EXPONENT_MAX)
		return -EINVAL;
	*ret_ten = (int)ten;
	*ret_two = 0;
	return 0;
}

int quantity_parse_scaled(const char *text, int decimals_kept, uint64_t *ret)
{
	int decimals, ten, two;
	wide value;
	const char *at = digits_read(text + (*text == '+'), &value, &decimals);

	if (!at || scale_read(at, &ten, &two) < 0)
		return -EINVAL;
	for (; two > 0; two--) {
		if (value >> 120)
			return -EINVAL;
		value *= 2;
	}
	ten += decimals_kept - decimals;
	for (; ten > 0; ten--) {
		if (value >> 120)
			return -EINVAL;
		value *= 10;
	}
	bool rest = false;
	for (; ten < 0 && value; ten++) {
		rest |= value % 10 != 0;
		value /= 10;
	}
	value += rest;
	if (value > INT64_MAX)
		return -EINVAL;
	*ret = (uint64_t)value;
	return 0;
}

int quantity_parse(const char *text, uint64_t *ret)
{
	return quantity_parse_scaled(text, 0, ret);
}

bool quantity_equal(const char *a, const char *b)
{
	uint64_t x, y;

	/* A number that is too large for so many decimals is compared without them. */
	if (quantity_parse_scaled(a, EQUAL_DECIMALS, &x) == 0)
		return quantity_parse_scaled(b, EQUAL_DECIMALS, &y) == 0 && x == y;
	return quantity_parse(a, &x) == 0 && quantity_parse(b, &y) == 0 && x == y;
}

const char *quantity_format_bytes(uint64_t bytes, char buf[static QUANTITY_TEXT_SIZE])
{
	if (bytes && bytes % MIB(1) == 0)
		snprintf(buf, QUANTITY_TEXT_SIZE, "%" PRIu64 "Mi", bytes / MIB(1));
	else
		snprintf(buf, QUANTITY_TEXT_SIZE, "%" PRIu64, bytes);
	return buf;
}
