/* The facts that a compiled module tells, how several sources link, and how wrong text is refused.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/macros.h"
#include "test_ptx_support.h"

#define MODULE ".version 8.0\n.target sm_90\n.address_size 64\n"
#define IN_KERNEL(body)                                                                        \
	MODULE ".visible .entry k()\n{\n.reg .pred %p<3>; .reg .b32 %r<9>; .reg .b64 %d<9>;\n" \
	       ".reg .f32 %f<9>;\n" body "\n}\n"

TEST_DEVICE

static void test_kernels(void **state)
{
	const struct ptx_kernel_info *info;

	device_load(&device, MODULE
		    ".const .b8 table[100];\n.func helper()\n{ .local .b8 x[100]; ret; }\n"
		    ".visible .entry first(.param .u8 a, .param .u64 b, .param .u16 c,\n"
		    ".param .align 16 .b8 d[20])\n.maxntid 16, 4\n"
		    "{ .shared .b8 s[40]; .reg .u32 %r; ld.shared.u32 %r, [s]; ret; }\n"
		    ".entry second()\n.reqntid 8, 1, 1\n{ .local .b8 x[24]; call helper; ret; }\n");
	assert_int_equal(ptx_module_kernel_count(device.module), 2);
	assert_int_equal(ptx_module_kernel_find(device.module, "helper"), -ENOENT);
	info = ptx_module_kernel(device.module, 0);
	assert_string_equal(info->name, "first");
	assert_int_equal(info->param_count, 4);
	assert_int_equal(info->params[1].offset, 8);
	assert_int_equal(info->params[2].offset, 16);
	assert_int_equal(info->params[3].offset, 32);
	assert_int_equal(info->params[3].size, 20);
	assert_int_equal(info->param_bytes, 52);
	assert_int_equal(info->shared_bytes, 40);
	assert_int_equal(info->const_bytes, 100);
	assert_int_equal(info->local_bytes, 0);
	assert_int_equal(info->max_threads, 64);
	assert_int_equal(info->ptx_version, 80);
	assert_int_equal(info->sm, 90);
	info = ptx_module_kernel(device.module, 1);
	assert_string_equal(info->name, "second");
	assert_int_equal(info->reqntid[0], 8);
	assert_int_equal(info->shared_bytes, 0);
	assert_true(info->local_bytes >= 124);
	assert_int_equal(device_run(&device, "second", 1, 9, 0), -EINVAL);
	device_must_run(&device, "second", 1, 8, 0);
}

/* A kernel that keeps many values needs more registers than one that keeps few. */
static void test_registers(void **state)
{
	char text[8192];
	size_t length = (size_t)snprintf(text, sizeof(text), "%s",
					 MODULE ".entry k(.param .u64 p)\n{ .reg .u32 %r<99>;"
						".reg .u64 %d; ld.param.u64 %d, [p];\n");
	uint32_t few;

	device_load(&device, MODULE ".entry k(.param .u64 p)\n{ .reg .u32 %r; .reg .u64 %d;\n"
				    "ld.param.u64 %d, [p]; ld.global.u32 %r, [%d];\n"
				    "st.global.u32 [%d], %r; ret; }\n");
	few = ptx_module_kernel(device.module, 0)->registers;
	for (int i = 0; i < 64; i++)
		length += (size_t)snprintf(text + length, sizeof(text) - length,
					   "ld.global.u32 %%r%d, [%%d+%d];\n", i, 4 * i);
	for (int i = 0; i < 64; i++)
		length += (size_t)snprintf(text + length, sizeof(text) - length,
					   "st.global.u32 [%%d+%d], %%r%d;\n", 4 * (63 - i), i);
	snprintf(text + length, sizeof(text) - length, "ret; }\n");
	device_load(&device, text);
	assert_in_range(few, 8, 32);
	assert_int_equal(ptx_module_kernel(device.module, 0)->registers, few - 1 + 64);
}

static void initial(size_t index, void *bytes, size_t size)
{
	memset(bytes, 0, size);
	ptx_module_variable_init(device.module, index, bytes);
}

static void test_variables(void **state)
{
	const struct ptx_variable_info *info;
	unsigned char bytes[32];
	uint64_t address;

	assert_int_equal(device_compile(&device, MODULE
					".visible .global .align 8 .b8 a[5] = {1, -2, 0x7f};\n"
					".global .u64 pointers[3] = {a, generic(a)+3, f};\n"
					".func f()\n{ ret; }\n"),
			 -EINVAL); /* f is not declared yet */
	assert_int_equal(
		device_compile(&device, MODULE
			       ".func f();\n.visible .global .align 8 .b8 a[5] = {1, -2, 0x7f};\n"
			       ".global .u64 pointers[3] = {a, generic(a)+3, f};\n"
			       ".const .f32 reals[2][2] = {{1.5, -2}, {0f3F800000}};\n"
			       ".global .b8 parts[4] = {0xff(a), 0xff00(a), 7, 0xff000000(a)};\n"
			       ".global .u32 zero;\n.func f()\n{ ret; }\n"),
		0);
	assert_int_equal(ptx_module_variable_count(device.module), 5);
	assert_int_equal(ptx_module_bind(device.module, NULL, 0), -EINVAL);
	assert_int_equal(
		ptx_module_bind(device.module, (const uint64_t[]){0x712345678900, 2, 3, 4, 5}, 5),
		0);
	info = ptx_module_variable(device.module, 0);
	assert_string_equal(info->name, "a");
	assert_int_equal(info->size, 5);
	assert_int_equal(info->align, 8);
	assert_true(info->visible);
	assert_int_equal(info->space, PTX_SPACE_GLOBAL);
	assert_int_equal(ptx_module_variable(device.module, 2)->space, PTX_SPACE_CONST);
	assert_int_equal(ptx_module_variable_find(device.module, "zero"), 4);
	assert_int_equal(ptx_module_variable_find(device.module, "none"), -ENOENT);
	initial(0, bytes, sizeof(bytes));
	assert_memory_equal(bytes, ((const unsigned char[]){1, 0xfe, 0x7f, 0, 0}), 5);
	initial(1, bytes, sizeof(bytes));
	memcpy(&address, bytes, 8);
	assert_int_equal(address, 0x712345678900);
	memcpy(&address, bytes + 8, 8);
	assert_int_equal(address, 0x712345678903);
	memcpy(&address, bytes + 16, 8);
	assert_true(address > PTX_WINDOW_CODE);
	initial(2, bytes, sizeof(bytes));
	assert_memory_equal(bytes, ((const float[]){1.5f, -2, 1, 0}), 16);
	initial(3, bytes, sizeof(bytes));
	assert_memory_equal(bytes, ((const unsigned char[]){0x00, 0x89, 7, 0x45}), 4);
}

static void test_shared_layout(void **state)
{
	/* b is reached by both kernels, a and c by one each; dynamic memory comes behind them all.
	 */
	device_load(&device, MODULE
		    ".shared .b8 a[8]; .shared .b8 b[16]; .shared .b8 c[32];\n"
		    ".extern .shared .align 16 .b8 dyn[];\n"
		    ".entry first(.param .u64 out)\n{ .reg .u32 %r<5>; .reg .u64 %d;\n"
		    "mov.u32 %r0, a; mov.u32 %r1, b; mov.u32 %r2, dyn; mov.u32 %r3, "
		    "%dynamic_smem_size;\n"
		    "ld.param.u64 %d, [out]; st.global.v4.u32 [%d], {%r0, %r1, %r2, %r3}; ret; }\n"
		    ".entry second()\n{ .reg .u32 %r<3>; mov.u32 %r0, b; mov.u32 %r1, c; ret; }\n");
	uint64_t out = device_alloc(&device, 16);

	assert_int_equal(ptx_module_kernel(device.module, 0)->shared_bytes, 24);
	assert_int_equal(ptx_module_kernel(device.module, 1)->shared_bytes, 48);
	device.launch.shared_bytes = 100;
	device_must_run(&device, "first", 1, 1, 1, out);
	assert_memory_equal(device_host(&device, out), ((const uint32_t[]){16, 0, 48, 100}), 16);
}

static void test_refused(void **state)
{
	static const struct {
		int status;
		const char *log; /* must be in it */
		const char *text;
	} cases[] = {
		{-EINVAL, ".version", "hello"},
		{-EINVAL, ".version", ""},
		{-EINVAL, "no .target", ".version 8.0\n"},
		{-ENOTSUP, "line 1: .version 9.1", ".version 9.1\n.target sm_90\n"},
		{-ENOTSUP, "sm_100", ".version 8.6\n.target sm_100\n"},
		{-ENOTSUP, "sm_80a", ".version 8.6\n.target sm_80a\n"},
		{-EINVAL, "line 8: unknown or unsupported instruction 'frobnicate'",
		 IN_KERNEL("frobnicate.u32 %r0, 1;")},
		{-EINVAL, "'wmma'", IN_KERNEL("wmma.load.a.sync {%r0}, [%d0];")},
		{-EINVAL, "'tex'",
		 IN_KERNEL("tex.2d.v4.f32.f32 {%f0,%f1,%f2,%f3}, [t, {%f0, %f1}];")},
		{-EINVAL, "'.foo' of instruction 'add'", IN_KERNEL("add.foo.u32 %r0, %r1, 2;")},
		{-EINVAL, "type of instruction 'add'", IN_KERNEL("add.u32 %r0, %d1, 2;")},
		{-EINVAL, "instruction 'add'", IN_KERNEL("add.u32 %r0, %r1;")},
		{-EINVAL, "instruction 'shl'", IN_KERNEL("shl.f32 %r0, %r1, 3;")},
		{-EINVAL, "instruction 'setp'", IN_KERNEL("setp.ltu.s32 %p0, %r1, 3;")},
		{-EINVAL, "no array", IN_KERNEL("mov.u64 %d0, %d1[2];")},
		{-EINVAL, "no array", IN_KERNEL(".shared .u32 one; mov.u64 %d0, one[2];")},
		{-EINVAL, "no array", IN_KERNEL("bra L[0]; L: ret;")},
		{-EINVAL, "instruction 'ld'",
		 IN_KERNEL(".shared .u32 s[4]; ld.shared.u32 %r0, s;")},
		{-EINVAL, "']'", IN_KERNEL(".shared .u32 s[4]; ld.shared.u32 %r0, [s[1]];")},
		{-EINVAL, "'+'", IN_KERNEL(".shared .u32 s[4]; mov.u64 %d0, s[1]+4;")},
		{-EINVAL, "'%x7'", IN_KERNEL("mov.u32 %r0, %x7;")},
		{-EINVAL, "'%r9'", IN_KERNEL("mov.u32 %r9, 1;")},
		{-EINVAL, "'NOWHERE'", IN_KERNEL("bra NOWHERE;")},
		{-EINVAL, "'L'", IN_KERNEL("L: ret; L: ret;")},
		{-EINVAL, "'a' is declared twice", IN_KERNEL(".reg .u32 a, a;")},
		{-EINVAL, "line 9: expected", IN_KERNEL("ret")},
		{-EINVAL, "a predicate", IN_KERNEL("@%r0 ret;")},
		{-EINVAL, "before the end", MODULE ".entry k() { ret;"},
		{-EINVAL, "'@'", IN_KERNEL("add.u32 @, 1, 2;")},
		{-EINVAL, "too large", MODULE ".global .b8 a[0xffffffffffff][0xffffffffff];"},
		{-EINVAL, "too many initial values", MODULE ".global .b8 a[2] = {1, 2, 3};"},
		{-EINVAL, "'.texref'", MODULE ".global .texref t;"},
		{-EINVAL, "address_size", ".version 8.0\n.target sm_90\n.address_size 32\n"},
		{-EINVAL, "too many registers", IN_KERNEL(".reg .b64 %x<9999999>;")},
		{-ENOENT, "function 'other'",
		 MODULE ".extern .func other();\n.entry k()\n{ call other; ret; }\n"},
		{-ENOENT, "variable 'there'", MODULE ".extern .global .u32 there;\n"},
		{-EINVAL, "number of arguments",
		 MODULE ".func f(.reg .u32 a)\n{ ret; }\n.entry k()\n{ call f; ret; }\n"},
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		int status = device_compile(&device, cases[i].text);

		if (status != cases[i].status || !strstr(device.log, cases[i].log))
			fail_msg("%s\ngives %d: %s", cases[i].text, status, device.log);
	}
}

static int link_two(const char *first, const char *second)
{
	struct ptx_source sources[] = {{first, strlen(first), "first"},
				       {second, strlen(second), "second"}};
	struct ptx_options options = {.sm = 90};

	ptx_module_free(device.module);
	device.module = NULL;
	return ptx_module_compile(sources, 2, &options, device.log, sizeof(device.log),
				  &device.module);
}

static void test_linking(void **state)
{
	uint64_t out = device_alloc(&device, 8);
	const char *library =
		MODULE ".visible .global .u32 seven = 7;\n.global .u32 own = 1;\n"
		       ".visible .func (.reg .u32 y) add7(.reg .u32 x)\n"
		       "{ .reg .u32 %r; ld.global.u32 %r, [seven]; add.u32 y, x, %r; ret; }\n";
	const char *program = MODULE ".extern .func (.reg .u32 y) add7(.reg .u32 x);\n"
				     ".extern .global .u32 seven;\n.global .u32 own = 2;\n"
				     ".entry k(.param .u64 out)\n{ .reg .u32 %r<3>; .reg .u64 %d;\n"
				     "ld.global.u32 %r0, [own]; call (%r1), add7, (%r0);\n"
				     "ld.global.u32 %r2, [seven]; add.u32 %r1, %r1, %r2;\n"
				     "ld.param.u64 %d, [out]; st.global.u32 [%d], %r1; ret; }\n";
	uint64_t addresses[3];

	assert_int_equal(link_two(program, library), 0);
	assert_int_equal(ptx_module_variable_count(device.module), 3);
	for (size_t i = 0; i < 3; i++)
		addresses[i] = device_alloc(&device, 4);
	assert_int_equal(ptx_module_bind(device.module, addresses, 3), 0);
	for (size_t i = 0; i < 3; i++)
		ptx_module_variable_init(device.module, i, device_host(&device, addresses[i]));
	device_must_run(&device, "k", 1, 1, 1, out);
	assert_int_equal(*(uint32_t *)device_host(&device, out), 16);
	assert_int_equal(link_two(library, library), -EEXIST);
	assert_int_equal(link_two(program, MODULE), -ENOENT);
	assert_non_null(strstr(device.log, "add7"));
	assert_int_equal(link_two(MODULE, "x"), -EINVAL);
	assert_non_null(strstr(device.log, "second line 1"));
}

/* The one constant with a name: an operand, a part of expressions and an initial value. */
static void test_warp_size(void **state)
{
	uint64_t out = device_alloc(&device, 16);
	const uint32_t *words = device_host(&device, out);

	device_load(&device, MODULE
		    ".global .u32 ws[2] = {WARP_SZ, WARP_SZ * 2 - 1};\n"
		    ".visible .entry k(.param .u64 p)\n{ .reg .b32 %r<9>; .reg .b64 %d;\n"
		    "ld.param.u64 %d, [p]; mov.u32 %r0, WARP_SZ; st.global.u32 [%d], %r0;\n"
		    "mov.u32 %r1, 3; mul.lo.u32 %r1, %r1, WARP_SZ; st.global.u32 [%d+4], %r1;\n"
		    "ld.global.u32 %r2, [ws+WARP_SZ-28]; st.global.u32 [%d+8], %r2;\n"
		    "ld.global.u32 %r2, [ws]; st.global.u32 [%d+12], %r2; ret; }\n");
	device_must_run(&device, "k", 1, 1, 1, out);
	assert_int_equal(words[0], 32);
	assert_int_equal(words[1], 96);
	assert_int_equal(words[2], 63);
	assert_int_equal(words[3], 32);
}

/* The results of ptxas for them: an index counts the innermost elements, which of vectors are
 * single. */
static void test_indices(void **state)
{
	uint64_t out = device_alloc(&device, 128);
	const uint32_t *words = device_host(&device, out);

	device_load(
		&device, MODULE
		".global .u32 table[8] = {10, 11, 12, 13, 14, 15, 16, 17};\n"
		".global .u16 rows[2][4]; .global .v4 .f32 vectors[4];\n"
		".extern .global .u64 later[]; .global .u64 later[2] = {7, 8}; .const .b8 c[4] = "
		"{1, 2, 3};\n"
		".visible .entry k(.param .u64 p, .param .align 8 .b8 s[8])\n"
		"{ .reg .b32 %r<9>; .reg .b64 %d<9>; .shared .u32 sh[4]; .local .u16 lo[8];\n"
		"ld.param.u64 %d0, [p];\n"
		"mov.u64 %d1, table; mov.u64 %d2, table[5]; sub.u64 %d2, %d2, %d1;\n"
		"st.global.u32 [%d0], %d2;\n"
		"mov.u64 %d2, table[-1]; sub.u64 %d2, %d1, %d2; st.global.u32 [%d0+4], %d2;\n"
		"mov.u64 %d1, rows; mov.u64 %d2, rows[2*3]; sub.u64 %d2, %d2, %d1;\n"
		"st.global.u32 [%d0+8], %d2;\n"
		"mov.u64 %d1, vectors; mov.u64 %d2, vectors[2]; sub.u64 %d2, %d2, %d1;\n"
		"st.global.u32 [%d0+12], %d2;\n"
		"ld.global.u32 %r1, table[3]; st.global.u32 [%d0+16], %r1;\n"
		"ld.global.u32 %r1, later[1]; st.global.u32 [%d0+20], %r1;\n"
		"ld.const.u8 %r1, c[2]; st.global.u32 [%d0+24], %r1;\n"
		"st.shared.u32 sh[2], 21; mov.u32 %r2, sh; ld.shared.u32 %r1, [%r2+8];\n"
		"st.global.u32 [%d0+28], %r1;\n"
		"st.local.u16 lo[3], 22; ld.local.u16 %r1, [lo+6]; st.global.u32 [%d0+32], %r1;\n"
		"ld.param.u32 %r1, s[4]; st.global.u32 [%d0+36], %r1;\n"
		"st.global.u32 table[7], 99; ld.global.u32 %r1, [table+28];\n"
		"st.global.u32 [%d0+40], %r1; ret; }\n");
	device_must_run(&device, "k", 1, 1, 2, out, (uint64_t)23 << 32);
	static const uint32_t expected[] = {20, 4, 12, 8, 13, 8, 3, 21, 22, 23, 99};
	for (size_t i = 0; i < ARRAY_SIZE(expected); i++)
		assert_int_equal(words[i], expected[i]);
}

/* Old and new text that compilers write around the code. */
static void test_ignored(void **state)
{
	device_load(&device, MODULE
		    ".file 1 \"a.cu\", 12, 34\n.section .debug_str { .b8 1,2,3 }\n"
		    "/* a comment\n */ .visible .entry k(.param .u64 .ptr .global .align 4 p)\n"
		    ".maxnreg 32 .minnctapersm 2\n{ // another\n.reg .b32 %r<2>;\n"
		    ".loc 1 2 3, function_name $L__info, inlined_at 1 2 3\n.pragma \"nounroll\";\n"
		    "mov.b32 %r0, %envreg3; prefetch.global.L1 [p];\n"
		    "ld.global.nc.L1::no_allocate.L2::128B.u32 %r1, [p]; }\n");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_kernels),       TEST(test_registers), TEST(test_variables),
		TEST(test_shared_layout), TEST(test_refused),   TEST(test_linking),
		TEST(test_ignored),       TEST(test_warp_size), TEST(test_indices),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
