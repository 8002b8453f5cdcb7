/* For the test programs against the CUDA driver API: named checks, chosen by the first argument.
 * A check that fails says where, and the program exits with 1. */
#pragma once

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/cuda_abi.h"
#include "base/macros.h"

#define EXPECT(condition)                                                               \
	do {                                                                            \
		if (!(condition)) {                                                     \
			fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition); \
			exit(1);                                                        \
		}                                                                       \
	} while (0)

#define EXPECT_RESULT(call, expected)                                                              \
	do {                                                                                       \
		CUresult got_ = (call);                                                            \
		if (got_ != (expected)) {                                                          \
			fprintf(stderr, "%s:%d: %s gives %d, not %d\n", __FILE__, __LINE__, #call, \
				(int)got_, (int)(expected));                                       \
			exit(1);                                                                   \
		}                                                                                  \
	} while (0)

#define OK(call) EXPECT_RESULT(call, CUDA_SUCCESS)

struct check {
	const char *name;
	void (*run)(int argc, char **argv);
};

/* Runs the check that argv[1] names with what follows; without a name, lists them. */
static inline int checks_main(int argc, char **argv, const struct check *checks, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		if (argc < 2) {
			puts(checks[i].name);
		} else if (strcmp(argv[1], checks[i].name) == 0) {
			checks[i].run(argc - 2, argv + 2);
			return 0;
		}
	}
	return argc < 2 ? 0 : 2;
}

/* A context on device 0, current. */
static inline CUcontext check_context(void)
{
	CUcontext ctx;

	OK(cuInit(0));
	OK(cuCtxCreate_v2(&ctx, 0, 0));
	return ctx;
}

static inline size_t check_free_bytes(void)
{
	size_t bytes, total;

	OK(cuMemGetInfo_v2(&bytes, &total));
	return bytes;
}

static inline double check_seconds(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* PTX: every thread adds value to *p. */
#define CHECK_PTX_ADD                                                \
	".visible .entry add(.param .u64 p, .param .u32 value)\n{\n" \
	".reg .b64 %rd<2>; .reg .b32 %r<3>;\n"                       \
	"ld.param.u64 %rd1, [p]; ld.param.u32 %r1, [value];\n"       \
	"red.global.add.u32 [%rd1], %r1;\nret;\n}\n"

/* PTX: *p = *p * 10 + digit, so that the order of launches shows. */
#define CHECK_PTX_DIGIT                                                \
	".visible .entry digit(.param .u64 p, .param .u32 digit)\n{\n" \
	".reg .b64 %rd<3>; .reg .b32 %r<4>;\n"                         \
	"ld.param.u64 %rd1, [p]; ld.param.u32 %r1, [digit];\n"         \
	"ld.global.u32 %r2, [%rd1]; mad.lo.u32 %r3, %r2, 10, %r1;\n"   \
	"st.global.u32 [%rd1], %r3;\nret;\n}\n"

/* A kernel of a module that is made of this text for it alone. */
static inline CUfunction check_kernel(const char *ptx, const char *name)
{
	CUmodule module;
	CUfunction f;

	OK(cuModuleLoadData(&module, ptx));
	OK(cuModuleGetFunction(&f, module, name));
	return f;
}
