/* cuGetProcAddress: the name's newest function that is no newer than the version asked for. */
#include "cuda/procaddr.h"

#include <stdbool.h>
#include <string.h>

#include "cuda/driver.h"

/* Whether the driver that is played has it at all. */
static bool is_there(const struct procaddr *row)
{
	return row->version <= driver_played_version();
}

/* If a name has variants on the thread's own stream, only those count where they are asked for. */
static bool has_thread_variant(const char *symbol)
{
	for (size_t i = 0; i < procaddr_count; i++) {
		const struct procaddr *row = &procaddr_table[i];

		if (row->thread_function && strcmp(row->name, symbol) == 0 && is_there(row))
			return true;
	}
	return false;
}

static void *look_up(const char *symbol, unsigned version, bool per_thread,
		     CUdriverProcAddressQueryResult *status)
{
	void *best = NULL;
	unsigned best_version = 0;

	*status = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
	per_thread = per_thread && has_thread_variant(symbol);
	for (size_t i = 0; i < procaddr_count; i++) {
		const struct procaddr *row = &procaddr_table[i];
		unsigned since = (unsigned)(per_thread ? row->thread_version : row->version);
		void *function = per_thread ? row->thread_function : row->function;

		if (!function || strcmp(row->name, symbol) != 0 || !is_there(row))
			continue;
		if (since > version) {
			if (!best)
				*status = CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT;
		} else if (since >= best_version) {
			best = function;
			best_version = since;
			*status = CU_GET_PROC_ADDRESS_SUCCESS;
		}
	}
	return best;
}

/* Answers as the vendor's driver does, also where that is odd. The version counts as unsigned, the
 * thread's own stream wins over the legacy one, and not finding anything is a success. */
CUresult cuGetProcAddress_v2(const char *symbol, void **function, int version, cuuint64_t flags,
			     CUdriverProcAddressQueryResult *status)
{
	const cuuint64_t known =
		CU_GET_PROC_ADDRESS_LEGACY_STREAM | CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
	CUdriverProcAddressQueryResult unread;

	if (!symbol || !function || flags & ~known)
		return CUDA_ERROR_INVALID_VALUE;
	*function = look_up(symbol, (unsigned)version,
			    flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM,
			    status ? status : &unread);
	return CUDA_SUCCESS;
}

/* The older one has no place to say why, so its result must; and then it writes no address. */
CUresult cuGetProcAddress(const char *symbol, void **function, int version, cuuint64_t flags)
{
	void *found = NULL;
	CUresult result =
		cuGetProcAddress_v2(symbol, function ? &found : NULL, version, flags, NULL);

	if (result != CUDA_SUCCESS)
		return result;
	if (!found)
		return CUDA_ERROR_NOT_FOUND;
	*function = found;
	return CUDA_SUCCESS;
}
