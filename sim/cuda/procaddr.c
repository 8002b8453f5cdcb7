/* cuGetProcAddress: the name's newest function that is no newer than the version asked for. */
#include "cuda/procaddr.h"

#include <limits.h>
#include <stdbool.h>
#include <string.h>

#include "cuda/driver.h"

/* Whether the driver that is played has it at all. */
static bool is_there(const struct procaddr *row)
{
	int driver_version = driver.host ? driver.host->cuda_driver_version : CUDA_ABI_VERSION;

	return row->version <= driver_version && !(row->only_13 && driver_version < 13000);
}

/* The version since which the row answers such a request; INT_MAX: it does not. Where a name has a
 * variant on the thread's own stream, only variants answer requests for that. */
static int row_version(const struct procaddr *row, bool per_thread, bool has_variant)
{
	if (!per_thread || !has_variant)
		return row->version;
	return row->thread_version ? row->thread_version : INT_MAX;
}

static bool name_has_variant(const char *symbol)
{
	for (size_t i = 0; i < procaddr_count; i++)
		if (procaddr_table[i].thread_version && !strcmp(procaddr_table[i].name, symbol))
			return true;
	return false;
}

static void *look_up(const char *symbol, int version, bool per_thread,
		     CUdriverProcAddressQueryResult *status)
{
	bool has_variant = per_thread && name_has_variant(symbol);
	const struct procaddr *best = NULL;
	int best_version = 0;

	*status = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
	for (size_t i = 0; i < procaddr_count; i++) {
		const struct procaddr *row = &procaddr_table[i];
		int since = row_version(row, per_thread, has_variant);

		if (strcmp(row->name, symbol) != 0 || !is_there(row))
			continue;
		*status = CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT;
		if (since <= version && since > best_version) {
			best = row;
			best_version = since;
		}
	}
	if (!best)
		return NULL;
	*status = CU_GET_PROC_ADDRESS_SUCCESS;
	return has_variant ? best->thread_function : best->function;
}

static CUresult get_proc_address(const char *symbol, void **function, int version, cuuint64_t flags,
				 CUdriverProcAddressQueryResult *status)
{
	const cuuint64_t known =
		CU_GET_PROC_ADDRESS_LEGACY_STREAM | CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;

	if (!symbol || !function || flags & ~known)
		return CUDA_ERROR_INVALID_VALUE;
	*function = look_up(symbol, version, flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM,
			    status);
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
