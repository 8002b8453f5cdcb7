#include "ptx/exec/real.h"

double half_to_double(uint16_t half, const struct half_format *format)
{
	unsigned exponent = (half & 0x7fffu) >> format->mantissa;
	unsigned fraction = half & ((1u << format->mantissa) - 1);
	double value;

	if ((half & 0x7fff) >= format->infinity)
		value = fraction ? (double)NAN : (double)INFINITY;
	else if (exponent == 0)
		value = ldexp(fraction, format->exponent_min - (int)format->mantissa);
	else
		value = ldexp(fraction | 1u << format->mantissa,
			      format->exponent_min - (int)format->mantissa + (int)exponent - 1);
	return half & 0x8000 ? -value : value;
}

/* Whether the digits that are cut off (rest out of 1 << shift) round the magnitude up. */
static bool rounds_up(uint32_t rounding, bool negative, uint64_t kept, uint64_t rest,
		      unsigned shift)
{
	uint64_t half = (uint64_t)1 << (shift - 1);

	switch (rounding) {
	case ROUND_ZERO:
		return false;
	case ROUND_DOWN:
		return negative && rest;
	case ROUND_UP:
		return !negative && rest;
	case ROUND_AWAY:
		return rest >= half;
	default:
		return rest > half || (rest == half && (kept & 1));
	}
}

uint16_t half_from_double(double value, const struct half_format *format, uint32_t rounding)
{
	uint64_t bits = f64_bits(value), fraction = bits & ((1ULL << 52) - 1), kept;
	uint16_t sign = (uint16_t)(bits >> 48 & 0x8000);
	int exponent = (int)(bits >> 52 & 0x7ff) - 1023;
	unsigned shift = 52 - format->mantissa;
	bool outward;

	if (value != value)
		return 0x7fff;
	if (exponent == 1024)
		return sign | format->infinity;
	if (exponent == -1023)
		exponent = -1022;
	else
		fraction |= 1ULL << 52;
	if (exponent < format->exponent_min)
		shift += (unsigned)(format->exponent_min - exponent);
	if (shift > 60) { /* nothing but a trace is left */
		shift = 60;
		fraction = fraction ? 1 : 0;
	}
	kept = fraction >> shift;
	kept += rounds_up(rounding, sign, kept, fraction & ((1ULL << shift) - 1), shift);
	if (exponent > format->exponent_min)
		kept += (uint64_t)(exponent - format->exponent_min) << format->mantissa;
	if (kept < format->infinity)
		return sign | (uint16_t)kept;
	outward = rounding == ROUND_NEAREST || rounding == ROUND_AWAY ||
		  (rounding == ROUND_UP && !sign) || (rounding == ROUND_DOWN && sign);
	return sign | (uint16_t)(format->infinity - (outward ? 0 : 1));
}
