/* cuGetProcAddress: the name's newest function that is no newer than the version asked for. */
#include "cuda/procaddr.h"

#include <stdbool.h>
#include <string.h>

#include "cuda/driver.h"

/* Whether the driver that is played has it at all. */
static bool is_there(const struct procaddr *row)
{
	int driver_version = driver.host ? driver.host->cuda_driver_version : CUDA_ABI_VERSION;

	return row->version <= driver_version && !(row->only_13 && driver_version < 13000);
}

static void *look_up(const char *symbol, int version, cuuint64_t flags,
		     CUdriverProcAddressQueryResult *status)
{
	const struct procaddr *best = NULL;

	*status = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
	for (size_t i = 0; i < procaddr_count; i++) {
		const struct procaddr *row = &procaddr_table[i];

		if (strcmp(row->name, symbol) != 0 || !is_there(row))
			continue;
		if (row->version > version) {
			if (!best)
				*status = CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT;
			continue;
		}
		if (!best || row->version > best->version)
			best = row;
	}
	if (!best)
		return NULL;
	*status = CU_GET_PROC_ADDRESS_SUCCESS;
	bool per_thread = flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
	return per_thread && best->thread_version && best->thread_version <= version
		       ? best->thread_function
		       : best->function;
}

static CUresult get_proc_address(const char *symbol, void **function, int version, cuuint64_t flags,
				 CUdriverProcAddressQueryResult *status)
{
	const cuuint64_t known =
		CU_GET_PROC_ADDRESS_LEGACY_STREAM | CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;

	if (!symbol || !function || flags & ~known || flags == known)
		return CUDA_ERROR_INVALID_VALUE;
	*function = look_up(symbol, version, flags, status);
	return CUDA_SUCCESS;
}

CUresult cuGetProcAddress_v2(const char *symbol, void **function, int version, cuuint64_t flags,
			     CUdriverProcAddressQueryResult *status)
{
	CUdriverProcAddressQueryResult own;
	CUresult result = get_proc_address(symbol, function, version, flags, &own);

	if (result != CUDA_SUCCESS)
		return result;
	if (status)
		*status = own;
	/* Without a place to say why, the result must. */
	return *function || status ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

CUresult cuGetProcAddress(const char *symbol, void **function, int version, cuuint64_t flags)
{
	return cuGetProcAddress_v2(symbol, function, version, flags, NULL);
}
