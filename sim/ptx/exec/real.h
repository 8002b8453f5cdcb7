/* Floating point formats of lanes: flags, NaN, and the half-precision ones. */
#pragma once

#include <fenv.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "ptx/code.h"

/* f32 results that are no number have these bits on the hardware. */
#define NAN_BITS_F32 0x7fffffffu

static inline float bits_f32(uint32_t bits)
{
	float value;

	memcpy(&value, &bits, sizeof(value));
	return value;
}

static inline uint32_t f32_bits(float value)
{
	uint32_t bits;

	memcpy(&bits, &value, sizeof(bits));
	return bits;
}

static inline double bits_f64(uint64_t bits)
{
	double value;

	memcpy(&value, &bits, sizeof(value));
	return value;
}

static inline uint64_t f64_bits(double value)
{
	uint64_t bits;

	memcpy(&bits, &value, sizeof(bits));
	return bits;
}

static inline float canonical_f32(float value)
{
	return value != value ? bits_f32(NAN_BITS_F32) : value;
}

static inline double canonical_f64(double value)
{
	return value;
}

static inline float flush_f32(float value)
{
	return fabsf(value) < 0x1p-126f ? copysignf(0, value) : value;
}

/* There is no ftz for f64. */
static inline double flush_f64(double value)
{
	return value;
}

static inline float saturate_f32(float value)
{
	return value > 0 ? (value < 1 ? value : 1) : 0; /* NaN gives 0 */
}

static inline double saturate_f64(double value)
{
	return value > 0 ? (value < 1 ? value : 1) : 0;
}

/* The rounding of the host while lanes are computed; back to nearest with ROUND_NEAREST. */
static inline void round_host(uint32_t rounding)
{
	static const int modes[] = {FE_TONEAREST, FE_TOWARDZERO, FE_DOWNWARD,  FE_UPWARD,
				    FE_TONEAREST, FE_TONEAREST,  FE_TONEAREST, FE_TONEAREST};

	fesetround(modes[rounding & FLAG_ROUND_MASK]);
}

struct half_format {
	unsigned mantissa; /* bits */
	int exponent_min;  /* the least exponent of normal numbers */
	uint16_t infinity;
};

/* TYPE_F16, TYPE_F16X2 or TYPE_BF16, TYPE_BF16X2. */
static inline const struct half_format *half_format(enum type type)
{
	static const struct half_format f16 = {10, -14, 0x7c00}, bf16 = {7, -126, 0x7f80};

	return type == TYPE_F16 || type == TYPE_F16X2 ? &f16 : &bf16;
}

double half_to_double(uint16_t half, const struct half_format *format);
uint16_t half_from_double(double value, const struct half_format *format, uint32_t rounding);
