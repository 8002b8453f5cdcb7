/* wmma: matrices loaded, multiplied and stored again, against products computed here. Elements are
 * small whole numbers, so every type has exact results; the layouts and strides differ. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/macros.h"
#include "test_ptx_support.h"

#define TEXT_BYTES 8192
#define MATRIX_BYTES ((size_t)64 * 64 * 8)
#define PAD 8 /* columns that lie between the matrix's rows */

enum kind { F16, BF16, TF32, F32, F64, U8, S8, S32 };

static const struct {
	const char *name;
	unsigned size;
} kinds[] = {[F16] = {"f16", 2}, [BF16] = {"bf16", 2}, [TF32] = {"tf32", 4}, [F32] = {"f32", 4},
	     [F64] = {"f64", 8}, [U8] = {"u8", 1},     [S8] = {"s8", 1},     [S32] = {"s32", 4}};

struct product {
	unsigned m, n, k;
	enum kind in, c, d;
	unsigned a_registers, b_registers, c_registers, d_registers; /* by the ISA's tables */
	bool a_by_column, b_by_column, c_by_column;
};

TEST_DEVICE

/* A whole number below 256 in size. */
static void element_put(unsigned char *to, enum kind kind, int value)
{
	float real = (float)value;
	double twice = value;
	uint32_t bits;

	memcpy(&bits, &real, 4);
	if (kind == F16) {
		uint32_t half = value ? (bits >> 16 & 0x8000) | ((bits >> 23 & 0xff) - 112) << 10 |
						(bits >> 13 & 0x3ff)
				      : 0;
		memcpy(to, &half, 2);
	} else if (kind == BF16) {
		memcpy(to, (unsigned char *)&bits + 2, 2);
	} else if (kind == F64) {
		memcpy(to, &twice, 8);
	} else {
		memcpy(to, kind == TF32 || kind == F32 ? (void *)&bits : &value, kinds[kind].size);
	}
}

static int value_of(enum kind kind, unsigned row, unsigned column)
{
	int value = (int)((row * 7 + column * 5) % 9);

	return kind == U8 ? value : value - 4;
}

static uint64_t matrix_make(enum kind kind, unsigned rows, unsigned columns, bool by_column)
{
	unsigned stride = (by_column ? rows : columns) + PAD, size = kinds[kind].size;
	uint64_t address = device_alloc(&device, MATRIX_BYTES);
	unsigned char *at = device_host(&device, address);

	for (unsigned r = 0; r < rows; r++) {
		for (unsigned c = 0; c < columns; c++) {
			unsigned i = by_column ? c * stride + r : r * stride + c;

			element_put(at + (size_t)i * size, kind, value_of(kind, r, c));
		}
	}
	return address;
}

static void append(char *text, const char *format, ...)
{
	size_t length = strlen(text);
	va_list args;

	va_start(args, format);
	/* clang 14 does not follow va_start: */
	/* NOLINTNEXTLINE(clang-analyzer-valist.Uninitialized) */
	vsnprintf(text + length, TEXT_BYTES - length, format, args);
	va_end(args);
}

static void append_registers(char *text, char name, unsigned count)
{
	append(text, "{");
	for (unsigned i = 0; i < count; i++)
		append(text, "%s%%%c%u", i ? ", " : "", name, i);
	append(text, "}");
}

static void append_load(char *text, char name, enum kind kind, const struct product *p,
			unsigned count, bool by_column, unsigned stride)
{
	append(text, "ld.param.u64 %%p, [%c]; wmma.load.%c.sync.aligned.%s.m%un%uk%u.global.%s ",
	       name, name, by_column ? "col" : "row", p->m, p->n, p->k, kinds[kind].name);
	append_registers(text, name, count);
	append(text, ", [%%p], %u;\n", stride);
}

static void program(char *text, const struct product *p)
{
	const char *bits = p->in == F64 ? "f64" : "b32";
	const char *c_bits = p->c == F32 || p->c == F64 ? kinds[p->c].name : "b32";
	const char *d_bits = p->d == F32 || p->d == F64 ? kinds[p->d].name : "b32";

	snprintf(text, TEXT_BYTES,
		 ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry k(.param .u64 a,\n"
		 ".param .u64 b, .param .u64 c, .param .u64 d)\n{ .reg .u64 %%p; .reg .%s %%a<8>;\n"
		 ".reg .%s %%b<8>; .reg .%s %%c<8>; .reg .%s %%d<8>;\n",
		 bits, bits, c_bits, d_bits);
	append_load(text, 'a', p->in, p, p->a_registers, p->a_by_column,
		    (p->a_by_column ? p->m : p->k) + PAD);
	append_load(text, 'b', p->in, p, p->b_registers, p->b_by_column,
		    (p->b_by_column ? p->k : p->n) + PAD);
	append_load(text, 'c', p->c, p, p->c_registers, p->c_by_column,
		    (p->c_by_column ? p->m : p->n) + PAD);
	append(text, "wmma.mma.sync.aligned.%s.%s.m%un%uk%u", p->a_by_column ? "col" : "row",
	       p->b_by_column ? "col" : "row", p->m, p->n, p->k);
	if (p->in == F16)
		append(text, ".%s.%s ", kinds[p->d].name, kinds[p->c].name);
	else
		append(text, ".%s.%s.%s.%s ", kinds[p->d].name, kinds[p->in].name,
		       kinds[p->in].name, kinds[p->c].name);
	append_registers(text, 'd', p->d_registers);
	append(text, ", ");
	append_registers(text, 'a', p->a_registers);
	append(text, ", ");
	append_registers(text, 'b', p->b_registers);
	append(text, ", ");
	append_registers(text, 'c', p->c_registers);
	/* The result lies densely, row by row: no stride is given. */
	append(text,
	       ";\nld.param.u64 %%p, [d]; wmma.store.d.sync.aligned.row.m%un%uk%u.global.%s "
	       "[%%p], ",
	       p->m, p->n, p->k, kinds[p->d].name);
	append_registers(text, 'd', p->d_registers);
	append(text, ";\nret; }\n");
}

static void product_check(const struct product *p)
{
	uint64_t a = matrix_make(p->in, p->m, p->k, p->a_by_column);
	uint64_t b = matrix_make(p->in, p->k, p->n, p->b_by_column);
	uint64_t c = matrix_make(p->c, p->m, p->n, p->c_by_column);
	uint64_t d = device_alloc(&device, MATRIX_BYTES);
	const unsigned char *got = device_host(&device, d);
	char text[TEXT_BYTES];

	program(text, p);
	device_load(&device, text);
	device_must_run(&device, "k", 1, 32, 4, a, b, c, d);
	for (unsigned i = 0; i < p->m * p->n; i++) {
		unsigned size = kinds[p->d].size, row = i / p->n, column = i % p->n;
		int sum = value_of(p->c, row, column);
		unsigned char expected[8];

		for (unsigned k = 0; k < p->k; k++)
			sum += value_of(p->in, row, k) * value_of(p->in, k, column);
		element_put(expected, p->d, sum);
		assert_memory_equal(got + (size_t)i * size, expected, size);
	}
}

static void test_products(void **state)
{
	static const struct product products[] = {
		{16, 16, 16, F16, F32, F32, 8, 8, 8, 8, false, true, false},
		{16, 16, 16, F16, F16, F16, 8, 8, 4, 4, true, false, true},
		{16, 16, 16, F16, F16, F32, 8, 8, 4, 8, false, false, false},
		{8, 32, 16, F16, F32, F16, 8, 8, 8, 4, true, true, true},
		{32, 8, 16, F16, F32, F32, 8, 8, 8, 8, false, true, true},
		{16, 16, 16, BF16, F32, F32, 4, 4, 8, 8, false, true, false},
		{8, 32, 16, BF16, F32, F32, 2, 8, 8, 8, true, false, false},
		{32, 8, 16, BF16, F32, F32, 8, 2, 8, 8, false, false, true},
		{16, 16, 8, TF32, F32, F32, 4, 4, 8, 8, false, true, false},
		{8, 8, 4, F64, F64, F64, 1, 1, 2, 2, false, true, false},
		{16, 16, 16, U8, S32, S32, 2, 2, 8, 8, false, true, false},
		{16, 16, 16, S8, S32, S32, 2, 2, 8, 8, true, false, true},
		{8, 32, 16, S8, S32, S32, 1, 4, 8, 8, false, true, false},
		{32, 8, 16, U8, S32, S32, 4, 1, 8, 8, true, true, false},
	};

	for (size_t i = 0; i < ARRAY_SIZE(products); i++)
		product_check(&products[i]);
}

/* Sums of integers wrap, or stop at the ends with .satfinite. */
static void test_saturation(void **state)
{
	const char *format =
		".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry k(.param .u64 d)\n"
		"{ .reg .u64 %%p; .reg .b32 %%m, %%x<8>; ld.param.u64 %%p, [d];\n"
		"mov.b32 %%m, 0x01010101;\n"
		"mov.b32 %%x0, 0x7ffffff8; mov.b32 %%x1, %%x0; mov.b32 %%x2, %%x0; mov.b32 %%x3, "
		"%%x0;\n"
		"mov.b32 %%x4, %%x0; mov.b32 %%x5, %%x0; mov.b32 %%x6, %%x0; mov.b32 %%x7, %%x0;\n"
		"wmma.mma.sync.aligned.row.col.m16n16k16.s32.s8.s8.s32%s\n"
		"{%%x0,%%x1,%%x2,%%x3,%%x4,%%x5,%%x6,%%x7}, {%%m,%%m}, {%%m,%%m},\n"
		"{%%x0,%%x1,%%x2,%%x3,%%x4,%%x5,%%x6,%%x7}; "
		"wmma.store.d.sync.aligned.row.m16n16k16.s32\n"
		"[%%p], {%%x0,%%x1,%%x2,%%x3,%%x4,%%x5,%%x6,%%x7}; ret; }\n";
	uint64_t d = device_alloc(&device, 1024);
	const uint32_t *got = device_host(&device, d);
	char text[TEXT_BYTES];

	for (int saturates = 0; saturates < 2; saturates++) {
		snprintf(text, sizeof(text), format, saturates ? ".satfinite" : "");
		device_load(&device, text);
		device_must_run(&device, "k", 1, 32, 1, d);
		for (unsigned i = 0; i < 256; i++)
			assert_int_equal(got[i], saturates ? 0x7fffffff : 0x80000008);
	}
}

static void test_refused(void **state)
{
	static const char *const bodies[] = {
		"wmma.load.a.sync.aligned.row.m16n16k16.f16 {%a,%a,%a,%a}, [%p];",
		"wmma.load.a.sync.aligned.row.m16n16k8.f16 {%a,%a,%a,%a,%a,%a,%a,%a}, [%p];",
		"wmma.load.c.sync.aligned.row.m16n16k16.bf16 {%a,%a,%a,%a}, [%p];",
		"wmma.load.a.sync.aligned.m16n16k16.bf16 {%a,%a,%a,%a}, [%p];",
		"wmma.load.a.sync.aligned.row.m8n8k32.s4 {%a}, [%p];",
	};

	for (size_t i = 0; i < ARRAY_SIZE(bodies); i++) {
		char text[1024];

		snprintf(text, sizeof(text),
			 ".version 8.0\n.target sm_90\n.address_size 64\n.entry k()\n"
			 "{ .reg .b32 %%a; .reg .u64 %%p; %s ret; }\n",
			 bodies[i]);
		assert_int_not_equal(device_compile(&device, text), 0);
		assert_non_null(strstr(device.log, "wmma"));
	}
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_products),
		TEST(test_saturation),
		TEST(test_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
