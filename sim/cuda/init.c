/* Beginning: cuInit, versions, names of errors, what every entry point checks first. */
#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "cuda/context.h"
#include "cuda/driver.h"
#include "cuda/unsupported.h"

struct driver driver = {.lock = PTHREAD_MUTEX_INITIALIZER};

CUresult result_from_errno(int error)
{
	switch (error < 0 ? -error : error) {
	case 0:
		return CUDA_SUCCESS;
	case ENOMEM:
		return CUDA_ERROR_OUT_OF_MEMORY;
	case ENODEV:
		return CUDA_ERROR_INVALID_DEVICE;
	case EIO:
		return CUDA_ERROR_DEVICE_UNAVAILABLE;
	case ECHILD:
		return CUDA_ERROR_NOT_INITIALIZED;
	case EMFILE:
		return CUDA_ERROR_OUT_OF_MEMORY;
	case EINVAL:
	case ENOENT:
		return CUDA_ERROR_INVALID_VALUE;
	case ENOTCONN:
		return CUDA_ERROR_SYSTEM_NOT_READY;
	default:
		return CUDA_ERROR_UNKNOWN;
	}
}

CUresult cuInit(unsigned int flags)
{
	CUresult result = CUDA_SUCCESS;

	if (flags)
		return CUDA_ERROR_INVALID_VALUE;
	/* In a forked child, whose parent may have been holding the lock. */
	if (driver.client && client_check(driver.client) == -ECHILD)
		return CUDA_ERROR_NOT_INITIALIZED;
	pthread_mutex_lock(&driver.lock);
	if (!driver.client) {
		struct client *client;
		int status = client_connect(WIRE_ROLE_CUDA, &client);

		if (status == 0) {
			driver.host = client_host(client);
			driver.client = client;
			devices_enumerate();
		}
		result = status == -ENODEV || status == -EACCES ? CUDA_ERROR_NO_DEVICE
								: result_from_errno(status);
	}
	if (result == CUDA_SUCCESS && driver.device_count == 0)
		result = CUDA_ERROR_NO_DEVICE;
	pthread_mutex_unlock(&driver.lock);
	return result;
}

/* The API call that this thread is in. */
static __thread struct {
	const char *name;
	bool allocation_asked;
	bool forbidden; /* it runs a function of the program's for a stream */
} call = {.name = ""};

void api_forbid(bool forbidden)
{
	call.forbidden = forbidden;
}

CUresult api_allocation_fault(const struct device *device)
{
	int error = 0;

	if (call.allocation_asked)
		return CUDA_SUCCESS;
	call.allocation_asked = true;
	if (!client_fault(driver.client, WIRE_FAULT_ALLOC, device->wire, call.name, &error))
		return CUDA_SUCCESS;
	return error < 0 ? result_from_errno(error) : (CUresult)error;
}

/* The GPU that the calling thread uses; the first where it uses none yet. */
static wire_device calling_device(void)
{
	CUcontext ctx = context_current();

	/* Nobody wants to know but where a fault is armed. */
	if (!ctx || !atomic_load(&driver.host->faults) || !context_is_alive(ctx))
		return driver.device_count ? driver.devices[0].wire : 0;
	return ctx->device->wire;
}

CUresult api_begin(const char *name)
{
	int error = 0;

	call.name = name;
	call.allocation_asked = false;
	if (!driver.client)
		return CUDA_ERROR_NOT_INITIALIZED;
	if (call.forbidden)
		return CUDA_ERROR_NOT_PERMITTED;
	int status = client_check(driver.client);
	if (status < 0)
		return result_from_errno(status);
	if (client_fault(driver.client, WIRE_FAULT_HANG, calling_device(), name, &error) && error)
		return (CUresult)error;
	return CUDA_SUCCESS;
}

CUresult api_begin_context(const char *name, CUcontext *ret_ctx)
{
	CUresult result = api_begin(name);

	if (result != CUDA_SUCCESS)
		return result;
	CUcontext ctx = context_current();
	if (!ctx)
		return CUDA_ERROR_INVALID_CONTEXT;
	if (!context_is_alive(ctx))
		return CUDA_ERROR_CONTEXT_IS_DESTROYED;
	result = context_health(ctx);
	if (result == CUDA_SUCCESS)
		*ret_ctx = ctx;
	return result;
}

int unsupported(const char *name)
{
	if (!driver.client)
		return CUDA_ERROR_NOT_INITIALIZED;
	client_unsupported(driver.client, name);
	return CUDA_ERROR_NOT_SUPPORTED;
}

int older_api(const char *name)
{
	CUcontext ctx;
	CUresult result = api_begin_context(name, &ctx);

	return (int)(result == CUDA_SUCCESS ? CUDA_ERROR_INVALID_CONTEXT : result);
}

CUresult cuDriverGetVersion(int *version)
{
	if (!version)
		return CUDA_ERROR_INVALID_VALUE;
	/* Asked before cuInit too, and then the host is not known yet. */
	if (driver.host) {
		*version = driver.host->cuda_driver_version;
		return CUDA_SUCCESS;
	}
	struct client *client;
	int status = client_connect(WIRE_ROLE_NVML, &client);
	if (status < 0)
		return status == -ENODEV ? CUDA_ERROR_NO_DEVICE : result_from_errno(status);
	*version = client_host(client)->cuda_driver_version;
	client_disconnect(client);
	return CUDA_SUCCESS;
}

int driver_played_version(void)
{
	static _Atomic int kept;
	int version = kept;

	if (driver.host)
		return driver.host->cuda_driver_version;
	if (version == 0) {
		if (cuDriverGetVersion(&version) != CUDA_SUCCESS)
			version = CUDA_ABI_VERSION;
		kept = version;
	}
	return version;
}

static const struct {
	CUresult value;
	const char *name;
} results[] = {
#define RESULT_ROW(name, value) {(CUresult)(value), #name},
	CUDA_RESULTS(RESULT_ROW)};

/* The first of the drivers played that has a name for it, by its version of CUDA. */
static int result_since(CUresult error)
{
	switch (error) {
	case CUDA_ERROR_LOSSY_QUERY:
	case CUDA_ERROR_FUNCTION_NOT_LOADED:
	case CUDA_ERROR_INVALID_RESOURCE_TYPE:
	case CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION:
	case CUDA_ERROR_KEY_ROTATION:
		return 12040;
	case CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER:
	case CUDA_ERROR_CONTAINED:
	case CUDA_ERROR_TENSOR_MEMORY_LEAK:
		return 13000;
	default:
		return 0;
	}
}

CUresult cuGetErrorName(CUresult error, const char **name)
{
	if (!name)
		return CUDA_ERROR_INVALID_VALUE;
	*name = NULL;
	if (result_since(error) > driver_played_version())
		return CUDA_ERROR_INVALID_VALUE;
	for (size_t i = 0; i < sizeof(results) / sizeof(results[0]) && !*name; i++)
		if (results[i].value == error)
			*name = results[i].name;
	return *name ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* In lower case, without the prefix: "out of memory" of CUDA_ERROR_OUT_OF_MEMORY. */
CUresult cuGetErrorString(CUresult error, const char **text)
{
	static char texts[sizeof(results) / sizeof(results[0])][64];
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

	if (!text)
		return CUDA_ERROR_INVALID_VALUE;
	*text = error == CUDA_SUCCESS ? "no error" : NULL;
	if (result_since(error) > driver_played_version())
		return CUDA_ERROR_INVALID_VALUE;
	for (size_t i = 1; i < sizeof(results) / sizeof(results[0]) && !*text; i++) {
		if (results[i].value != error)
			continue;
		const char *from = results[i].name + sizeof("CUDA_ERROR_") - 1;

		pthread_mutex_lock(&lock);
		for (size_t k = 0; from[k] && k + 1 < sizeof(texts[i]); k++)
			texts[i][k] = (char)(from[k] == '_' ? ' ' : from[k] | 0x20);
		pthread_mutex_unlock(&lock);
		*text = texts[i];
	}
	return *text ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* NVRTC and nvJitLink ask for this one, and do without it. */
static const unsigned char compilers_table[16] = {0xda, 0x91, 0x51, 0xd3, 0x3a, 0xe6, 0xcc, 0x41,
						  0xa5, 0xc0, 0x4f, 0x26, 0xd5, 0x33, 0xe3, 0x28};

/* The vendor's runtime wants private tables from here. There are none, and saying so once saves
 * its user a hunt. */
CUresult cuGetExportTable(const void **table, const CUuuid *id)
{
	static bool said;

	if (!table || !id)
		return CUDA_ERROR_INVALID_VALUE;
	*table = NULL;
	if (memcmp(id, compilers_table, sizeof(compilers_table)) != 0 &&
	    !__atomic_exchange_n(&said, true, __ATOMIC_RELAXED))
		fputs("libcuda.so.1 (simulated): this program uses the CUDA runtime (libcudart, "
		      "PyTorch), which needs private tables of the vendor's driver; the simulated "
		      "driver has only the public driver API. Use a real GPU for it.\n",
		      stderr);
	return CUDA_ERROR_INVALID_VALUE;
}

CUresult cuProfilerStart(void)
{
	API_BEGIN();
	return CUDA_SUCCESS;
}

CUresult cuProfilerStop(void)
{
	API_BEGIN();
	return CUDA_SUCCESS;
}
