/* The fundamental types of PTX. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

enum type {
	TYPE_NONE,
	TYPE_PRED,
	TYPE_B8,
	TYPE_U8,
	TYPE_S8,
	TYPE_B16,
	TYPE_U16,
	TYPE_S16,
	TYPE_F16,
	TYPE_BF16,
	TYPE_B32,
	TYPE_U32,
	TYPE_S32,
	TYPE_F16X2,
	TYPE_BF16X2,
	TYPE_TF32,
	TYPE_F32,
	TYPE_B64,
	TYPE_U64,
	TYPE_S64,
	TYPE_F64,
};

/* "u32" -> TYPE_U32; TYPE_NONE for what is no type. */
enum type type_parse(const char *text, size_t length);
const char *type_name(enum type type);
/* Bytes; a predicate counts 4: one bit a lane of a warp. */
unsigned type_size(enum type type);
bool type_is_signed(enum type type);
/* f16, bf16, f32, f64 (not the packed ones). */
bool type_is_float(enum type type);
/* f16, bf16, f16x2, bf16x2. */
bool type_is_half(enum type type);
bool type_is_packed(enum type type);
