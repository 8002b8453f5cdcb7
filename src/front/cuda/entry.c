#include <stdio.h>
#include <string.h>

#include "front/cuda/gate/gate.h"
#include "front/cuda/hooks.h"
#include "front/cuda/visible.h"
#include "front/driver.h"
#include "front/environment.h"
#include "front/process.h"

/* Writes what the driver's environment shall say, unless a thread in cuInit has the driver read it.
 */
static void visible_entry(struct process *p, char *entry, size_t size)
{
	char list[VISIBLE_SIZE];

	lock_acquire(&p->attaching);
	if (!atomic_load(&p->environment.inside)) {
		visible_list(p->attachment.ledger.limits, environment_get(VISIBLE_NAME), list);
		if (strcmp(entry + sizeof(VISIBLE_NAME), list) != 0 || !entry[0])
			snprintf(entry, size, VISIBLE_NAME "=%s", list);
	}
	lock_release(&p->attaching);
}

/* The driver reads the environment once, here: it is shown the slice's GPUs, by their UUIDs. */
CUresult hook_cuInit(unsigned int flags)
{
	static char entry[sizeof(VISIBLE_NAME "=") + VISIBLE_SIZE];
	struct process *p = process_get();

	/* Without a session the driver would tell of GPUs that are others'. */
	if (!p)
		return CUDA_ERROR_NO_DEVICE;
	gate_bind(p);
	visible_entry(p, entry, sizeof(entry));
	if (environment_swap_begin(&p->environment, entry) < 0)
		return CUDA_ERROR_OUT_OF_MEMORY;
	CUresult result = real_cuInit(flags);
	environment_swap_end(&p->environment);
	return result;
}

/* Programs get most entry points here. The driver chooses by name, version and flags; what it chose
 * is replaced where it is a function that the front hooks, whatever it was asked for. */
CUresult hook_cuGetProcAddress(const char *symbol, void **pfn, int version, cuuint64_t flags)
{
	CUresult result = real_cuGetProcAddress(symbol, pfn, version, flags);

	if (result == CUDA_SUCCESS && pfn && *pfn)
		*pfn = driver_hook_for(*pfn);
	return result;
}

CUresult hook_cuGetProcAddress_v2(const char *symbol, void **pfn, int version, cuuint64_t flags,
				  CUdriverProcAddressQueryResult *status)
{
	CUresult result = real_cuGetProcAddress_v2(symbol, pfn, version, flags, status);

	if (result == CUDA_SUCCESS && pfn && *pfn)
		*pfn = driver_hook_for(*pfn);
	return result;
}
