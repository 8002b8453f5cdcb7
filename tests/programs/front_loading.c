/* Every way to reach the driver's library and its functions, tried from inside a process. The
 * arguments name a check and what it needs; prints nothing and exits 0 if it holds. The null driver
 * (bench/null_driver) stands for the real one. */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/cuda_abi.h"
#include "base/macros.h"

/* Exported by the front; the null driver has none. */
extern CUresult cuLogsCurrent(void *iterator, unsigned int flags) __attribute__((weak));

#define CHECK(e)                                                                \
	do {                                                                    \
		if (!(e)) {                                                     \
			fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #e); \
			return 1;                                               \
		}                                                               \
	} while (0)

static const char *object_of(void *address)
{
	Dl_info info;

	return address && dladdr(address, &info) ? info.dli_fname : "nowhere";
}

static int in_front(void *address)
{
	return strstr(object_of(address), "src/front/libcuda.so.1") != NULL;
}

static int in_driver(void *address)
{
	return strstr(object_of(address), "null_driver") != NULL;
}

static int driver_is_loaded(void)
{
	char line[512];
	FILE *maps = fopen("/proc/self/maps", "re");
	int found = 0;

	while (maps && fgets(line, sizeof(line), maps))
		found |= strstr(line, "null_driver") != NULL;
	if (maps)
		fclose(maps);
	return found;
}

/* The handle is the front, which answers for the driver. */
static int check_open(char **names)
{
	for (; *names; names++) {
		void *handle = dlopen(*names, RTLD_NOW);

		CHECK(handle);
		CHECK(in_front(dlsym(handle, "cuGetProcAddress_v2")));
		CHECK(in_driver(dlsym(handle, "cuNullOnly")));
		CHECK(!dlsym(handle, "cuLogsCurrent"));
		CHECK(strstr(dlerror(), "cuLogsCurrent"));
		CHECK(!dlerror());
	}
	return 0;
}

static int check_dlmopen(char **names)
{
	void *handle = dlmopen(LM_ID_NEWLM, names[0], RTLD_NOW);

	CHECK(handle);
	CHECK(in_front(dlsym(handle, "cuInit")));
	return 0;
}

static int check_symbols(char **unused)
{
	CHECK(in_front(dlsym(RTLD_DEFAULT, "cuGetProcAddress_v2")));
	CHECK(in_front(dlsym(RTLD_NEXT, "cuGetProcAddress_v2")));
	CHECK(in_driver(dlsym(RTLD_DEFAULT, "cuParamSetf")));
	CHECK(!dlsym(RTLD_DEFAULT, "cuLogsCurrent"));
	CHECK(dlerror());
	CHECK(!dlsym(RTLD_NEXT, "cuLogsCurrent"));
	void *malloc_next = dlsym(RTLD_NEXT, "malloc");
	CHECK(malloc_next && malloc_next == dlsym(RTLD_NEXT, "malloc"));
	CHECK(dlvsym(RTLD_NEXT, "malloc", "GLIBC_2.2.5") == malloc_next);
	CHECK(in_driver(dlsym(dlopen(NULL, RTLD_NOW), "cuParamSetf")));
	return 0;
}

/* Names that only look like the driver's load nothing. */
static int check_unrelated(char **unused)
{
	static const char *const names[] = {"curl_easy_init",  "cu",      "cuFoo",
					    "cublasCreate_v2", "nvmlFoo", "cuInitialise",
					    "strlen"};

	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		dlsym(RTLD_DEFAULT, names[i]);
	CHECK(!dlopen("libcudart-of-nobody.so.1", RTLD_NOW));
	CHECK(!driver_is_loaded());
	return 0;
}

static int check_forwarding(char **unused)
{
	CHECK(!driver_is_loaded());
	/* The first call finds the driver: nothing may be lost on that way. */
	CHECK(cuParamSetf(NULL, 40, 2.0f) == 42);
	CHECK(driver_is_loaded());
	for (int i = 0; i < 2; i++) {
		int expected =
			1 + 2 * 2 + 3 * 3 + 4 * 4 + 5 * 5 + 6 * 6 + 7 * 7 + 100 + 200 + 300 + 400;

		CHECK((int)cuLaunchKernel((CUfunction)100, 1, 2, 3, 4, 5, 6, 7, (CUstream)200,
					  (void **)300, (void **)400) == expected);
	}
	CHECK(cuLogsCurrent && cuLogsCurrent(NULL, 0) == CUDA_ERROR_NOT_SUPPORTED);
	return 0;
}

static int check_stack_arguments(char **unused)
{
	CHECK((int)cuLaunchKernel((CUfunction)100, 1, 2, 3, 4, 5, 6, 7, (CUstream)200, (void **)300,
				  (void **)400) == 1140);
	return 0;
}

static int check_proc_address(char **unused)
{
	CUdriverProcAddressQueryResult status;
	void *found = NULL, *again = NULL;

	CHECK(cuGetProcAddress_v2("cuLaunchKernel", &found, 12000, 0, &status) == CUDA_SUCCESS);
	CHECK(in_front(found));
	CHECK(cuGetProcAddress_v2("cuNullOnly", &found, 13000, 0, &status) == CUDA_SUCCESS);
	CHECK(in_driver(found));
	/* Version 11030 is answered with the other ABI. */
	CHECK(cuGetProcAddress_v2("cuGetProcAddress", &found, 12000, 0, &status) == CUDA_SUCCESS);
	CHECK(cuGetProcAddress_v2("cuGetProcAddress", &again, 11030, 0, &status) == CUDA_SUCCESS);
	CHECK(found == dlsym(RTLD_DEFAULT, "cuGetProcAddress_v2") && in_front(found));
	CHECK(again == dlsym(RTLD_DEFAULT, "cuGetProcAddress") && in_front(again));
	CHECK(cuGetProcAddress_v2("cuNothing", &found, 12000, 0, &status) == CUDA_SUCCESS);
	CHECK(!found && status == CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
	CHECK(cuGetProcAddress("cuNullOnly", &found, 12000, 0) == CUDA_ERROR_NOT_FOUND);
	return 0;
}

static int check_origin(char **paths)
{
	void *handle = dlopen(paths[0], RTLD_NOW);

	CHECK(handle);
	int (*opens)(void) = (int (*)(void))dlsym(handle, "front_origin_opens");
	CHECK(opens && opens());
	return 0;
}

static int check_absent(char **names)
{
	for (; *names; names++) {
		CHECK(!dlopen(*names, RTLD_NOW));
		CHECK(dlerror());
	}
	return 0;
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		int (*check)(char **);
	} checks[] = {
		{"open", check_open},
		{"dlmopen", check_dlmopen},
		{"symbols", check_symbols},
		{"unrelated", check_unrelated},
		{"forwarding", check_forwarding},
		{"stack-arguments", check_stack_arguments},
		{"proc-address", check_proc_address},
		{"origin", check_origin},
		{"absent", check_absent},
	};

	for (size_t i = 0; argc > 1 && i < ARRAY_SIZE(checks); i++)
		if (strcmp(argv[1], checks[i].name) == 0)
			return checks[i].check(argv + 2);
	fprintf(stderr, "which check?\n");
	return 2;
}
