/* Gets hold of the driver in one way and says how much memory its GPU has, in bytes. Then, if BYTES
 * are given, it takes them, says "holds" and waits for the end of its input.
 *
 *   reach path LIBRARY [BYTES]       dlopen
 *   reach deepbind LIBRARY [BYTES]   the same with RTLD_DEEPBIND
 *   reach dlmopen LIBRARY [BYTES]    in a namespace of the linker's own
 *   reach plugin PLUGIN [BYTES]      through reach_plugin.so, which is linked with the driver
 *   reach plugin-deepbind PLUGIN [BYTES]
 *   reach plugin-dlmopen PLUGIN [BYTES]
 *   reach plugin-opens PLUGIN LIBRARY [BYTES]
 *                                    through reach_opens.so, RTLD_DEEPBIND, which opens LIBRARY
 *
 * Not linked with the driver itself. Exits 1 where the driver refuses the memory. */
#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cuda_abi.h"
#include "base/macros.h"

enum how { HOW_OPEN, HOW_DEEPBIND, HOW_DLMOPEN };

static const struct {
	const char *name;
	enum how how;
	bool plugin, opens;
} ways[] = {
	{"path", HOW_OPEN, false, false},
	{"deepbind", HOW_DEEPBIND, false, false},
	{"dlmopen", HOW_DLMOPEN, false, false},
	{"plugin", HOW_OPEN, true, false},
	{"plugin-deepbind", HOW_DEEPBIND, true, false},
	{"plugin-dlmopen", HOW_DLMOPEN, true, false},
	{"plugin-opens", HOW_DEEPBIND, true, true},
};

typedef void *find_function(const char *name, const char *library);

static find_function *plugin_find;
static const char *plugin_opens;
static void *library;

static void *function(const char *name)
{
	void *found = plugin_find ? plugin_find(name, plugin_opens) : dlsym(library, name);

	if (found)
		return found;
	fprintf(stderr, "reach: no %s: %s\n", name, dlerror());
	exit(2);
}

static void must(const char *what, CUresult result)
{
	if (!result)
		return;
	fprintf(stderr, "reach: %s gives %d\n", what, (int)result);
	exit(result == CUDA_ERROR_OUT_OF_MEMORY ? 1 : 3);
}

#define CALL(name, ...) must(#name, ((__typeof__(&(name)))function(#name))(__VA_ARGS__))

static void hold(size_t bytes)
{
	CUcontext context;
	CUdeviceptr at;

	CALL(cuDevicePrimaryCtxRetain, &context, 0);
	CALL(cuCtxSetCurrent, context);
	CALL(cuMemAlloc_v2, &at, bytes);
	puts("holds");
	fflush(stdout);
	while (getchar() != EOF)
		;
}

int main(int argc, char **argv)
{
	size_t way = 0, total;

	while (argc > 2 && way < ARRAY_SIZE(ways) && strcmp(argv[1], ways[way].name) != 0)
		way++;
	if (argc < 3 || way == ARRAY_SIZE(ways))
		return 2;
	library = ways[way].how == HOW_DLMOPEN
			  ? dlmopen(LM_ID_NEWLM, argv[2], RTLD_NOW)
			  : dlopen(argv[2],
				   RTLD_NOW | (ways[way].how == HOW_DEEPBIND ? RTLD_DEEPBIND : 0));
	if (!library) {
		fprintf(stderr, "reach: %s\n", dlerror());
		return 2;
	}
	if (ways[way].plugin)
		plugin_find = (find_function *)dlsym(library, "reach_plugin_find");
	if (ways[way].plugin && !plugin_find)
		return 2;
	int bytes = ways[way].opens ? 4 : 3;
	plugin_opens = ways[way].opens ? argv[3] : NULL;
	CALL(cuInit, 0);
	CALL(cuDeviceTotalMem_v2, &total, 0);
	printf("%zu\n", total);
	fflush(stdout);
	if (argc > bytes)
		hold(strtoull(argv[bytes], NULL, 10));
	return 0;
}
