#include "ptx/types.h"

#include <string.h>

#include "base/macros.h"

static const struct {
	const char *name;
	unsigned size;
} types[] = {
	[TYPE_NONE] = {"", 0},     [TYPE_PRED] = {"pred", 4},   [TYPE_B8] = {"b8", 1},
	[TYPE_U8] = {"u8", 1},     [TYPE_S8] = {"s8", 1},       [TYPE_B16] = {"b16", 2},
	[TYPE_U16] = {"u16", 2},   [TYPE_S16] = {"s16", 2},     [TYPE_F16] = {"f16", 2},
	[TYPE_BF16] = {"bf16", 2}, [TYPE_B32] = {"b32", 4},     [TYPE_U32] = {"u32", 4},
	[TYPE_S32] = {"s32", 4},   [TYPE_F16X2] = {"f16x2", 4}, [TYPE_BF16X2] = {"bf16x2", 4},
	[TYPE_TF32] = {"tf32", 4}, [TYPE_F32] = {"f32", 4},     [TYPE_B64] = {"b64", 8},
	[TYPE_U64] = {"u64", 8},   [TYPE_S64] = {"s64", 8},     [TYPE_F64] = {"f64", 8},
};

enum type type_parse(const char *text, size_t length)
{
	for (size_t i = TYPE_PRED; i < ARRAY_SIZE(types); i++) {
		if (strlen(types[i].name) == length && memcmp(types[i].name, text, length) == 0)
			return (enum type)i;
	}
	return TYPE_NONE;
}

const char *type_name(enum type type)
{
	return types[type].name;
}

unsigned type_size(enum type type)
{
	return types[type].size;
}

bool type_is_signed(enum type type)
{
	return type == TYPE_S8 || type == TYPE_S16 || type == TYPE_S32 || type == TYPE_S64;
}

bool type_is_float(enum type type)
{
	return type == TYPE_F16 || type == TYPE_BF16 || type == TYPE_F32 || type == TYPE_F64;
}

bool type_is_half(enum type type)
{
	return type == TYPE_F16 || type == TYPE_BF16 || type_is_packed(type);
}

bool type_is_packed(enum type type)
{
	return type == TYPE_F16X2 || type == TYPE_BF16X2;
}
