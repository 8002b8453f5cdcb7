/* Kernels: results against the CPU's, launches and their errors, time. */
#include <dlfcn.h>
#include <math.h>
#include <unistd.h>

#include "base/file.h"
#include "cuda_check.h"

/* Small kernels of our own, where a compiler would be in the way. */
static const char *const tiny_ptx =
	".version 6.4\n.target sm_70\n.address_size 64\n"
	".visible .global .align 4 .u32 counter = 5;\n"
	/* as compilers write a __constant__ of a whole program */
	".const .align 4 .u32 own = 7;\n"
	/* *p = value */
	".visible .entry store(.param .u64 p, .param .u32 value)\n{\n"
	".reg .b64 %rd<3>; .reg .b32 %r<2>;\n"
	"ld.param.u64 %rd1, [p]; ld.param.u32 %r1, [value];\n"
	"st.global.u32 [%rd1], %r1;\nret;\n}\n"
	/* counter += 1 in every thread */
	".visible .entry count()\n{\n"
	".reg .b32 %r<3>;\n"
	"atom.global.add.u32 %r1, [counter], 1;\nret;\n}\n"
	/* waits until %globaltimer is ns later; p[0], p[1]: its start and end */
	".visible .entry spin(.param .u64 p, .param .u64 ns)\n{\n"
	".reg .b64 %rd<8>; .reg .pred %p<2>;\n"
	"ld.param.u64 %rd1, [p]; ld.param.u64 %rd2, [ns];\n"
	"mov.u64 %rd3, %globaltimer; add.u64 %rd4, %rd3, %rd2;\n"
	"again: mov.u64 %rd5, %globaltimer; setp.lt.u64 %p1, %rd5, %rd4; @%p1 bra again;\n"
	"st.global.u64 [%rd1], %rd3; st.global.u64 [%rd1+8], %rd5;\nret;\n}\n"
	/* sleeps n times for a millisecond; p[0], p[1]: its start and end */
	".visible .entry nap(.param .u64 p, .param .u32 n)\n{\n"
	".reg .b64 %rd<8>; .reg .b32 %r<4>; .reg .pred %p<2>;\n"
	"ld.param.u64 %rd1, [p]; ld.param.u32 %r1, [n];\n"
	"mov.u64 %rd3, %globaltimer;\n"
	"again: nanosleep.u32 1000000; sub.u32 %r1, %r1, 1; setp.ne.u32 %p1, %r1, 0;\n"
	"@%p1 bra again;\n"
	"mov.u64 %rd5, %globaltimer;\n"
	"st.global.u64 [%rd1], %rd3; st.global.u64 [%rd1+8], %rd5;\nret;\n}\n"
	/* all blocks meet: each adds to *p and waits until all have */
	".visible .entry meet(.param .u64 p, .param .u32 n)\n{\n"
	".reg .b64 %rd<3>; .reg .b32 %r<5>; .reg .pred %p<2>;\n"
	"ld.param.u64 %rd1, [p]; ld.param.u32 %r1, [n];\n"
	"atom.global.add.u32 %r2, [%rd1], 1;\n"
	"again: ld.volatile.global.u32 %r3, [%rd1]; setp.lt.u32 %p1, %r3, %r1; @%p1 bra again;\n"
	"ret;\n}\n"
	/* never ends, and looks at nothing after its start */
	".visible .entry endless(.param .u64 p)\n{\n"
	".reg .b64 %rd<3>; .reg .b32 %r<2>;\n"
	"ld.param.u64 %rd1, [p]; mov.u64 %rd2, %globaltimer; st.global.u64 [%rd1], %rd2;\n"
	"again: add.u32 %r1, %r1, 1; bra again;\n}\n";

static CUmodule module_of(const char *name)
{
	char dir[4096], path[8192];
	CUmodule module;

	EXPECT(executable_dir(dir, sizeof(dir)) == 0);
	snprintf(path, sizeof(path), "%s/../kernels/%s.ptx", dir, name);
	OK(cuModuleLoad(&module, path));
	return module;
}

static CUfunction kernel_of(const char *name)
{
	CUfunction f;

	OK(cuModuleGetFunction(&f, module_of(name), name));
	return f;
}

static CUfunction tiny(const char *name)
{
	static CUmodule module;
	CUfunction f;

	if (!module)
		OK(cuModuleLoadData(&module, tiny_ptx));
	OK(cuModuleGetFunction(&f, module, name));
	return f;
}

static CUresult launch(CUfunction f, unsigned int blocks, unsigned int threads, size_t shared,
		       void **params)
{
	return cuLaunchKernel(f, blocks, 1, 1, threads, 1, 1, (unsigned int)shared, NULL, params,
			      NULL);
}

static CUdeviceptr upload(const void *data, size_t bytes)
{
	CUdeviceptr p;

	OK(cuMemAlloc_v2(&p, bytes));
	OK(cuMemcpyHtoD_v2(p, data, bytes));
	return p;
}

static void check_vector_add(int argc, char **argv)
{
	enum { N = 10007 };
	static float a[N], b[N], c[N];
	int n = N;

	check_context();
	for (int i = 0; i < N; i++) {
		a[i] = (float)i * 0.3f;
		b[i] = (float)(N - i) / 7.0f;
	}
	CUdeviceptr da = upload(a, sizeof(a)), db = upload(b, sizeof(b)), dc = upload(c, sizeof(c));
	void *params[] = {&da, &db, &dc, &n};
	OK(launch(kernel_of("vector_add"), (N + 255) / 256, 256, 0, params));
	OK(cuMemcpyDtoH_v2(c, dc, sizeof(c)));
	for (int i = 0; i < N; i++)
		EXPECT(c[i] == a[i] + b[i]);
}

static void check_matmul(int argc, char **argv)
{
	enum { N = 64 };
	static float a[N * N], b[N * N], c[N * N];
	int n = N;

	check_context();
	for (int i = 0; i < N * N; i++) {
		a[i] = (float)((i * 37) % 101) / 9.0f;
		b[i] = (float)((i * 53) % 97) / 11.0f;
	}
	CUdeviceptr da = upload(a, sizeof(a)), db = upload(b, sizeof(b)), dc = upload(c, sizeof(c));
	void *params[] = {&da, &db, &dc, &n};
	OK(cuLaunchKernel(kernel_of("matmul"), N / 16, N / 16, 1, 16, 16, 1, 0, NULL, params,
			  NULL));
	OK(cuMemcpyDtoH_v2(c, dc, sizeof(c)));
	for (int row = 0; row < N; row++) {
		for (int column = 0; column < N; column++) {
			float sum = 0;

			for (int k = 0; k < N; k++)
				sum = fmaf(a[row * N + k], b[k * N + column], sum);
			EXPECT(c[row * N + column] == sum);
		}
	}
}

static void check_integers(int argc, char **argv)
{
	enum { N = 4096 };
	static int data[N], got[N], bins[256], want[256];
	static unsigned char bytes[N];
	int n = N, sum = 0, total = 0;

	check_context();
	for (int i = 0; i < N; i++) {
		data[i] = (i * 7919) % 10007 - 5000;
		bytes[i] = (unsigned char)(data[i] * 31);
		sum += data[i];
		want[bytes[i]]++;
	}
	CUdeviceptr d = upload(data, sizeof(data)), out = upload(&total, sizeof(total));
	void *reduce[] = {&d, &n, &out};
	OK(launch(kernel_of("reduce"), 7, 160, 0, reduce));
	OK(cuMemcpyDtoH_v2(&total, out, sizeof(total)));
	EXPECT(total == sum);

	CUdeviceptr db = upload(bytes, sizeof(bytes)), dw = upload(bins, sizeof(bins));
	void *histogram[] = {&db, &n, &dw};
	OK(launch(kernel_of("histogram"), 5, 128, 0, histogram));
	OK(cuMemcpyDtoH_v2(bins, dw, sizeof(bins)));
	EXPECT(memcmp(bins, want, sizeof(bins)) == 0);

	CUdeviceptr scanned = upload(got, sizeof(got));
	void *scan[] = {&d, &scanned};
	OK(launch(kernel_of("scan"), N / 512, 512, 0, scan));
	OK(cuMemcpyDtoH_v2(got, scanned, sizeof(got)));
	for (int i = 0, running = 0; i < N; i++) {
		running = i % 512 ? running + data[i] : data[i];
		EXPECT(got[i] == running);
	}

	uint64_t work = 0; /* the dynamic shared memory's start */
	void *sort[] = {&d, &work};
	OK(launch(kernel_of("sort"), 1, 512, 1024 * sizeof(int), sort));
	OK(cuMemcpyDtoH_v2(got, d, 1024 * sizeof(int)));
	for (int i = 1; i < 1024; i++)
		EXPECT(got[i - 1] <= got[i]);
}

static void check_parameters(int argc, char **argv)
{
	CUdeviceptr p;
	uint32_t value = 17, got = 0;
	struct {
		CUdeviceptr p;
		uint32_t value;
	} packed;
	size_t size = sizeof(packed.p) + sizeof(packed.value), offset, bytes;

	check_context();
	p = upload(&got, sizeof(got));
	void *params[] = {&p, &value};
	OK(launch(tiny("store"), 1, 1, 0, params));
	/* The call has taken the parameters: they may change. */
	value = 99;
	OK(cuMemcpyDtoH_v2(&got, p, sizeof(got)));
	EXPECT(got == 17);
	packed.p = p;
	packed.value = 18;
	void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &packed, CU_LAUNCH_PARAM_BUFFER_SIZE,
			 &size, CU_LAUNCH_PARAM_END};
	OK(cuLaunchKernel(tiny("store"), 1, 1, 1, 1, 1, 1, 0, NULL, NULL, extra));
	OK(cuMemcpyDtoH_v2(&got, p, sizeof(got)));
	EXPECT(got == 18);
	OK(cuFuncGetParamInfo(tiny("store"), 1, &offset, &bytes));
	EXPECT(offset == 8 && bytes == 4);
	EXPECT_RESULT(cuFuncGetParamInfo(tiny("store"), 2, &offset, &bytes),
		      CUDA_ERROR_INVALID_VALUE);
	const CUlaunchConfig config = {1, 1, 1, 1, 1, 1, 0, NULL, NULL, 0};
	OK(cuLaunchKernelEx(&config, tiny("store"), params, NULL));
	OK(cuMemcpyDtoH_v2(&got, p, sizeof(got)));
	EXPECT(got == 99);
}

static void check_globals(int argc, char **argv)
{
	CUmodule module;
	CUdeviceptr counter;
	CUfunction f;
	uint32_t value;
	size_t size;

	check_context();
	OK(cuModuleLoadData(&module, tiny_ptx));
	OK(cuModuleGetGlobal_v2(&counter, &size, module, "counter"));
	EXPECT(size == 4);
	CUdeviceptr own;
	OK(cuModuleGetGlobal_v2(&own, &size, module, "own"));
	OK(cuMemcpyDtoH_v2(&value, own, sizeof(value)));
	EXPECT(size == 4 && value == 7);
	OK(cuModuleGetFunction(&f, module, "count"));
	OK(launch(f, 10, 100, 0, NULL));
	OK(cuMemcpyDtoH_v2(&value, counter, sizeof(value)));
	EXPECT(value == 1005);
	EXPECT_RESULT(cuModuleGetFunction(&f, module, "nothing"), CUDA_ERROR_NOT_FOUND);
	EXPECT_RESULT(cuModuleGetGlobal_v2(&counter, &size, module, "nothing"),
		      CUDA_ERROR_NOT_FOUND);
	OK(cuModuleUnload(module));
	EXPECT_RESULT(cuModuleUnload(module), CUDA_ERROR_INVALID_HANDLE);
	EXPECT_RESULT(launch(f, 1, 1, 0, NULL), CUDA_ERROR_INVALID_HANDLE);
}

static void check_shapes(int argc, char **argv)
{
	CUfunction f;
	int blocks, grid, block, value;

	check_context();
	f = tiny("count");
	EXPECT_RESULT(launch(f, 1, 1025, 0, NULL), CUDA_ERROR_INVALID_VALUE);
	EXPECT_RESULT(launch(f, 0, 1, 0, NULL), CUDA_ERROR_INVALID_VALUE);
	EXPECT_RESULT(cuLaunchKernel(f, 1, 65536, 1, 1, 1, 1, 0, NULL, NULL, NULL),
		      CUDA_ERROR_INVALID_VALUE);
	EXPECT_RESULT(cuLaunchKernel(f, 1, 1, 1, 1, 1, 65, 0, NULL, NULL, NULL),
		      CUDA_ERROR_INVALID_VALUE);
	EXPECT_RESULT(launch(f, 1, 32, 49153, NULL), CUDA_ERROR_INVALID_VALUE);
	OK(cuFuncSetAttribute(f, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 60000));
	OK(launch(f, 1, 32, 60000, NULL));
	EXPECT_RESULT(launch(f, 1, 32, 60001, NULL), CUDA_ERROR_INVALID_VALUE);
	OK(cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, f));
	EXPECT(value == 1024);
	OK(cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, f, 1024, 0));
	EXPECT(blocks == 2);
	OK(cuOccupancyMaxPotentialBlockSize(&grid, &block, f, NULL, 0, 0));
	EXPECT(block == 1024 && grid == 2 * 132);
}

static void check_cooperative(int argc, char **argv)
{
	uint32_t zero = 0, n = 40;

	check_context();
	CUdeviceptr p = upload(&zero, sizeof(zero));
	void *params[] = {&p, &n};
	OK(cuLaunchCooperativeKernel(tiny("meet"), 40, 1, 1, 1, 1, 1, 0, NULL, params));
	OK(cuCtxSynchronize());
	EXPECT_RESULT(
		cuLaunchCooperativeKernel(tiny("meet"), 10000, 1, 1, 1024, 1, 1, 0, NULL, params),
		CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE);
}

static void check_illegal_address(int argc, char **argv)
{
	CUdeviceptr wrong = 0x1000, p;
	uint32_t value = 1;
	void *params[] = {&wrong, &value};

	CUcontext ctx = check_context();
	CUfunction store = tiny("store");
	OK(cuMemAlloc_v2(&p, 100));
	OK(launch(store, 1, 1, 0, params));
	/* It sticks to the context, and to that one alone. */
	EXPECT_RESULT(cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
	EXPECT_RESULT(cuMemFree_v2(p), CUDA_ERROR_ILLEGAL_ADDRESS);
	EXPECT_RESULT(launch(store, 1, 1, 0, params), CUDA_ERROR_ILLEGAL_ADDRESS);
	CUcontext other;
	OK(cuCtxCreate_v2(&other, 0, 0));
	OK(cuMemAlloc_v2(&p, 100));
	OK(cuCtxDestroy_v2(ctx));
	OK(cuMemFree_v2(p));
}

static void check_bad_ptx(int argc, char **argv)
{
	static const char bad[] = ".version 6.4\n.target sm_70\n.address_size 64\n"
				  ".visible .entry k()\n{\nfrobnicate.u32 %r1;\nret;\n}\n";
	static const char elf[] = "\177ELF\2\1\1\0\0\0\0\0\0\0\0\0";
	char log[500] = "";
	CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
	void *values[] = {log, (void *)(uintptr_t)sizeof(log)};
	CUmodule module;

	check_context();
	EXPECT_RESULT(cuModuleLoadDataEx(&module, bad, 2, options, values), CUDA_ERROR_INVALID_PTX);
	EXPECT(strstr(log, "frobnicate"));
	EXPECT((size_t)(uintptr_t)values[1] == strlen(log));
	EXPECT_RESULT(cuModuleLoadData(&module, elf), CUDA_ERROR_NO_BINARY_FOR_GPU);
	EXPECT_RESULT(cuModuleLoad(&module, "/nonexistent"), CUDA_ERROR_FILE_NOT_FOUND);
}

static void check_library(int argc, char **argv)
{
	CUlibrary library;
	CUkernel kernel;
	CUfunction f;
	CUdeviceptr counter;
	const char *name;
	unsigned int count;
	uint32_t value;
	size_t size;

	check_context();
	OK(cuLibraryLoadData(&library, tiny_ptx, NULL, NULL, 0, NULL, NULL, 0));
	OK(cuLibraryGetKernelCount(&count, library));
	EXPECT(count == 6);
	OK(cuLibraryGetKernel(&kernel, library, "count"));
	OK(cuKernelGetName(&name, kernel));
	EXPECT(strcmp(name, "count") == 0);
	/* Both the kernel's handle and its function's can be launched. */
	OK(launch((CUfunction)kernel, 1, 3, 0, NULL));
	OK(cuKernelGetFunction(&f, kernel));
	OK(launch(f, 1, 4, 0, NULL));
	OK(cuLibraryGetGlobal(&counter, &size, library, "counter"));
	OK(cuMemcpyDtoH_v2(&value, counter, sizeof(value)));
	EXPECT(value == 12);
	OK(cuLibraryUnload(library));
	EXPECT_RESULT(launch((CUfunction)kernel, 1, 1, 0, NULL), CUDA_ERROR_INVALID_HANDLE);
}

static void check_link(int argc, char **argv)
{
	static char caller[] = ".version 6.4\n.target sm_70\n.address_size 64\n"
			       ".extern .func (.param .b32 r) twice(.param .b32 x);\n"
			       ".visible .entry main(.param .u64 p)\n{\n"
			       ".reg .b64 %rd<2>; .reg .b32 %r<3>;\n"
			       "ld.param.u64 %rd1, [p]; ld.global.u32 %r1, [%rd1];\n"
			       "{ .param .b32 a; .param .b32 b; st.param.b32 [a], %r1;\n"
			       "call (b), twice, (a); ld.param.b32 %r2, [b]; }\n"
			       "st.global.u32 [%rd1], %r2;\nret;\n}\n";
	static char callee[] = ".version 6.4\n.target sm_70\n.address_size 64\n"
			       ".visible .func (.param .b32 r) twice(.param .b32 x)\n{\n"
			       ".reg .b32 %r<3>; ld.param.b32 %r1, [x]; add.u32 %r2, %r1, %r1;\n"
			       "st.param.b32 [r], %r2;\nret;\n}\n";
	char log[500] = "";
	CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
	void *values[] = {log, (void *)(uintptr_t)sizeof(log)}, *image;
	CUlinkState link;
	CUmodule module;
	CUfunction f;
	uint32_t value = 21;
	size_t size;

	check_context();
	OK(cuLinkCreate_v2(2, options, values, &link));
	OK(cuLinkAddData_v2(link, CU_JIT_INPUT_PTX, caller, sizeof(caller), "caller", 0, NULL,
			    NULL));
	EXPECT(cuLinkComplete(link, &image, &size) != CUDA_SUCCESS);
	EXPECT(strstr(log, "twice"));
	OK(cuLinkAddData_v2(link, CU_JIT_INPUT_PTX, callee, strlen(callee), "callee", 0, NULL,
			    NULL));
	OK(cuLinkComplete(link, &image, &size));
	OK(cuModuleLoadData(&module, image));
	OK(cuLinkDestroy(link));
	OK(cuModuleGetFunction(&f, module, "main"));
	CUdeviceptr p = upload(&value, sizeof(value));
	void *params[] = {&p};
	OK(launch(f, 1, 1, 0, params));
	OK(cuMemcpyDtoH_v2(&value, p, sizeof(value)));
	EXPECT(value == 42);
}

static void check_old_launch(int argc, char **argv)
{
	uint32_t value = 0;
	CUfunction f;

	check_context();
	f = tiny("store");
	CUdeviceptr p = upload(&value, sizeof(value));
	OK(cuFuncSetBlockShape(f, 1, 1, 1));
	OK(cuParamSetv(f, 0, &p, sizeof(p)));
	OK(cuParamSeti(f, 8, 31));
	OK(cuParamSetSize(f, 12));
	OK(cuLaunchGrid(f, 1, 1));
	OK(cuMemcpyDtoH_v2(&value, p, sizeof(value)));
	EXPECT(value == 31);
}

/* Each thread takes a piece, writes to it, reads it back, and gives it back or not. */
static void check_malloc(int argc, char **argv)
{
	static const char text[] =
		".version 6.4\n.target sm_70\n.address_size 64\n"
		".extern .func (.param .b64 r) malloc(.param .b64 size);\n"
		".extern .func free(.param .b64 p);\n"
		".visible .entry take(.param .u64 sum, .param .u64 size, .param .u32 keep)\n{\n"
		".reg .b64 %rd<5>; .reg .b32 %r<5>; .reg .pred %p<3>;\n"
		"ld.param.u64 %rd1, [sum]; ld.param.u64 %rd2, [size]; ld.param.u32 %r3, [keep];\n"
		"{ .param .b64 a; .param .b64 b; st.param.b64 [a], %rd2;\n"
		"call (b), malloc, (a); ld.param.b64 %rd3, [b]; }\n"
		"setp.eq.u64 %p1, %rd3, 0; @%p1 bra end;\n"
		"mov.u32 %r1, %tid.x; st.u32 [%rd3], %r1; ld.u32 %r2, [%rd3];\n"
		"atom.global.add.u32 %r4, [%rd1], %r2;\n"
		"setp.ne.u32 %p2, %r3, 0; @%p2 bra end;\n"
		"{ .param .b64 a; st.param.b64 [a], %rd3; call free, (a); }\n"
		"end: ret;\n}\n";
	uint32_t sum = 0, keep = 0;
	uint64_t size = 1000;
	CUmodule module;
	CUfunction f;

	check_context();
	OK(cuModuleLoadData(&module, text));
	OK(cuModuleGetFunction(&f, module, "take"));
	CUdeviceptr p = upload(&sum, sizeof(sum));
	void *params[] = {&p, &size, &keep};
	/* Far more than the heap holds at once would not fit if it were not given back. */
	for (int i = 0; i < 100; i++)
		OK(launch(f, 1, 256, 0, params));
	OK(cuMemcpyDtoH_v2(&sum, p, sizeof(sum)));
	EXPECT(sum == 100 * 255 * 128);
	/* 8 MiB hold eight times a little less than 1 MiB. */
	OK(cuMemsetD32_v2(p, 0, 1));
	size = 1000000;
	keep = 1;
	for (int i = 0; i < 20; i++)
		OK(launch(f, 1, 2, 0, params));
	OK(cuMemcpyDtoH_v2(&sum, p, sizeof(sum)));
	EXPECT(sum == 4);
}

static void check_asynchronous(int argc, char **argv)
{
	uint64_t times[4] = {0}, ns = 200000000;
	CUstream a, b;

	check_context();
	CUdeviceptr p = upload(times, sizeof(times)), q = p + 16;
	CUfunction f = tiny("spin");
	OK(cuStreamCreate(&a, CU_STREAM_NON_BLOCKING));
	OK(cuStreamCreate(&b, CU_STREAM_NON_BLOCKING));
	void *first[] = {&p, &ns}, *second[] = {&q, &ns};
	double start = check_seconds();
	OK(cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, a, first, NULL));
	OK(cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, b, second, NULL));
	EXPECT_RESULT(cuStreamQuery(b), CUDA_ERROR_NOT_READY);
	OK(cuCtxSynchronize());
	EXPECT(check_seconds() - start > 0.2);
	/* They ran at the same time, each as long as it was told to. */
	OK(cuMemcpyDtoH_v2(times, p, sizeof(times)));
	EXPECT(times[1] - times[0] >= ns && times[3] - times[2] >= ns);
	EXPECT(times[0] < times[3] && times[2] < times[1]);
	EXPECT((times[1] > times[3] ? times[1] : times[3]) -
		       (times[0] < times[2] ? times[0] : times[2]) <
	       ns + ns / 2);
}

/* argv: how many milliseconds of GPU time to use, in kernels of 5 ms. Prints how long it took. */
static void check_work(int argc, char **argv)
{
	uint64_t times[2] = {0};
	uint32_t n = 5;

	check_context();
	CUdeviceptr p = upload(times, sizeof(times));
	CUfunction f = tiny("nap");
	void *params[] = {&p, &n};
	OK(launch(f, 1, 1, 0, params));
	OK(cuCtxSynchronize());
	puts("ready");
	fflush(stdout);
	if (argc > 1)
		getchar();
	double start = check_seconds();
	for (int i = 0; i < atoi(argv[0]) / 5; i++)
		OK(launch(f, 1, 1, 0, params));
	OK(cuCtxSynchronize());
	printf("%f\n", check_seconds() - start);
}

/* argv: what is in a kernel that would take years, or else what is waited for as long. Prints the
 * error that ends it. */
static void check_years(int argc, char **argv)
{
	uint64_t words[2] = {0}, ns = UINT64_C(1) << 60;
	uint32_t n = strcmp(argv[0], "value") ? 1u << 20 : 1;
	CUresult result;

	check_context();
	CUdeviceptr p = upload(words, sizeof(words)), q = upload(words, sizeof(words));
	void *until[] = {&p, &ns}, *times[] = {&p, &n};
	if (!strcmp(argv[0], "clock"))
		OK(launch(tiny("spin"), 1, 1, 0, until));
	else if (!strcmp(argv[0], "memory"))
		OK(launch(tiny("meet"), 1, 1, 0, times));
	else if (!strcmp(argv[0], "steps"))
		OK(launch(tiny("endless"), 1, 1, 0, until));
	else
		OK(launch(tiny("nap"), 1, 1, 0, times));
	if (!strcmp(argv[0], "value"))
		OK(cuStreamWaitValue32_v2(NULL, q, 1, CU_STREAM_WAIT_VALUE_EQ));
	puts("ready");
	fflush(stdout);
	do {
		result = strcmp(argv[0], "query") ? cuCtxSynchronize() : cuStreamQuery(NULL);
	} while (result == CUDA_ERROR_NOT_READY);
	printf("%d\n", result);
}

int main(int argc, char **argv)
{
	static const struct check checks[] = {
		{"vector-add", check_vector_add},
		{"matmul", check_matmul},
		{"integers", check_integers},
		{"parameters", check_parameters},
		{"globals", check_globals},
		{"shapes", check_shapes},
		{"cooperative", check_cooperative},
		{"illegal-address", check_illegal_address},
		{"bad-ptx", check_bad_ptx},
		{"library", check_library},
		{"link", check_link},
		{"old-launch", check_old_launch},
		{"malloc", check_malloc},
		{"asynchronous", check_asynchronous},
		{"work", check_work},
		{"years", check_years},
	};

	return checks_main(argc, argv, checks, ARRAY_SIZE(checks));
}
