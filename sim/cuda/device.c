/* Devices: enumeration, names, identities, sizes. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/macros.h"
#include "cuda/driver.h"

struct device *device_find(CUdevice ordinal)
{
	return ordinal >= 0 && ordinal < driver.device_count ? &driver.devices[ordinal] : NULL;
}

/* NOLINTBEGIN(bugprone-macro-parentheses): a name that is declared */
#define DEVICE_OR_RETURN(variable, ordinal)               \
	struct device *variable = device_find(ordinal);   \
	do {                                              \
		if (!variable)                            \
			return CUDA_ERROR_INVALID_DEVICE; \
	} while (0)
/* NOLINTEND(bugprone-macro-parentheses) */

CUresult cuDeviceGetCount(int *count)
{
	API_BEGIN();
	if (!count)
		return CUDA_ERROR_INVALID_VALUE;
	*count = driver.device_count;
	return CUDA_SUCCESS;
}

CUresult cuDeviceGet(CUdevice *device, int ordinal)
{
	API_BEGIN();
	if (!device)
		return CUDA_ERROR_INVALID_VALUE;
	DEVICE_OR_RETURN(d, ordinal);
	*device = d->ordinal;
	return CUDA_SUCCESS;
}

CUresult cuDeviceGetName(char *name, int len, CUdevice dev)
{
	API_BEGIN();
	if (!name || len <= 0)
		return CUDA_ERROR_INVALID_VALUE;
	DEVICE_OR_RETURN(d, dev);
	snprintf(name, (size_t)len, "%s", d->name);
	return CUDA_SUCCESS;
}

CUresult cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice dev)
{
	API_BEGIN();
	if (!uuid)
		return CUDA_ERROR_INVALID_VALUE;
	DEVICE_OR_RETURN(d, dev);
	*uuid = d->uuid;
	return CUDA_SUCCESS;
}

/* The older call names the GPU even where the device is a MIG instance. */
CUresult cuDeviceGetUuid(CUuuid *uuid, CUdevice dev)
{
	API_BEGIN();
	if (!uuid)
		return CUDA_ERROR_INVALID_VALUE;
	DEVICE_OR_RETURN(d, dev);
	memcpy(uuid->bytes, d->gpu->uuid, sizeof(uuid->bytes));
	return CUDA_SUCCESS;
}

CUresult cuDeviceGetLuid(char *luid, unsigned int *mask, CUdevice dev)
{
	API_BEGIN();
	return CUDA_ERROR_NOT_SUPPORTED; /* LUIDs exist on Windows alone */
}

CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice dev)
{
	API_BEGIN();
	if (!bytes)
		return CUDA_ERROR_INVALID_VALUE;
	DEVICE_OR_RETURN(d, dev);
	*bytes = d->memory_total;
	return CUDA_SUCCESS;
}

CUresult cuDeviceTotalMem(unsigned int *bytes, CUdevice dev)
{
	size_t total;

	API_BEGIN();
	CUresult result = bytes ? cuDeviceTotalMem_v2(&total, dev) : CUDA_ERROR_INVALID_VALUE;

	if (result == CUDA_SUCCESS)
		*bytes = (unsigned int)MIN(total, UINT32_MAX);
	return result;
}

CUresult cuDeviceComputeCapability(int *major, int *minor, CUdevice dev)
{
	API_BEGIN();
	if (!major || !minor)
		return CUDA_ERROR_INVALID_VALUE;
	DEVICE_OR_RETURN(d, dev);
	*major = d->model->cc_major;
	*minor = d->model->cc_minor;
	return CUDA_SUCCESS;
}

CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice dev)
{
	API_BEGIN();
	if (!value)
		return CUDA_ERROR_INVALID_VALUE;
	DEVICE_OR_RETURN(d, dev);
	return device_attribute(d, attribute, value);
}

CUresult cuDeviceGetProperties(CUdevprop *prop, CUdevice dev)
{
	API_BEGIN();
	if (!prop)
		return CUDA_ERROR_INVALID_VALUE;
	DEVICE_OR_RETURN(d, dev);
	*prop = (CUdevprop){
		.maxThreadsPerBlock = 1024,
		.maxThreadsDim = {1024, 1024, 64},
		.maxGridSize = {INT32_MAX, 65535, 65535},
		.sharedMemPerBlock = 49152,
		.totalConstantMemory = 65536,
		.SIMDWidth = 32,
		.memPitch = INT32_MAX,
		.regsPerBlock = 65536,
		.clockRate = (int)d->model->clock_sm_mhz * 1000,
		.textureAlign = 512,
	};
	return CUDA_SUCCESS;
}

CUresult cuDeviceGetPCIBusId(char *text, int len, CUdevice dev)
{
	API_BEGIN();
	if (!text || len <= 0)
		return CUDA_ERROR_INVALID_VALUE;
	DEVICE_OR_RETURN(d, dev);
	int n = snprintf(text, (size_t)len, "%04x:%02x:%02x.0", d->gpu->pci_domain, d->gpu->pci_bus,
			 d->gpu->pci_device);
	for (char *c = text; *c; c++)
		*c = (char)(*c >= 'a' && *c <= 'f' ? *c - 'a' + 'A' : *c);
	return n < len ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* "[domain:]bus:device[.function]", in hexadecimal. */
static bool pci_parse(const char *text, unsigned long *domain, unsigned long *bus,
		      unsigned long *device)
{
	unsigned long field[3];
	char *end = (char *)text - 1;
	int count = 0;

	do {
		const char *start = end + 1;

		field[count++] = strtoul(start, &end, 16);
		if (end == start)
			return false;
	} while (*end == ':' && count < 3);
	*domain = count == 3 ? field[0] : 0;
	*bus = field[count == 3];
	*device = field[count - 1];
	return count >= 2 && (*end == '\0' || *end == '.');
}

CUresult cuDeviceGetByPCIBusId(CUdevice *dev, const char *text)
{
	unsigned long domain, bus, device;

	API_BEGIN();
	if (!dev || !text || !pci_parse(text, &domain, &bus, &device))
		return CUDA_ERROR_INVALID_VALUE;
	for (int i = 0; i < driver.device_count; i++) {
		const struct wire_gpu *gpu = driver.devices[i].gpu;

		if (gpu->pci_domain != domain || gpu->pci_bus != bus || gpu->pci_device != device)
			continue;
		*dev = i;
		return CUDA_SUCCESS;
	}
	return CUDA_ERROR_INVALID_DEVICE;
}

CUresult cuDeviceGetExecAffinitySupport(int *supported, CUexecAffinityType type, CUdevice dev)
{
	API_BEGIN();
	if (!supported)
		return CUDA_ERROR_INVALID_VALUE;
	DEVICE_OR_RETURN(d, dev);
	*supported = 0; /* MPS clients only */
	return CUDA_SUCCESS;
}

CUresult cuDeviceGetTexture1DLinearMaxWidth(size_t *width, CUarray_format format,
					    unsigned int channels, CUdevice dev)
{
	API_BEGIN();
	if (!width || !channels)
		return CUDA_ERROR_INVALID_VALUE;
	DEVICE_OR_RETURN(d, dev);
	*width = 1u << 28;
	return CUDA_SUCCESS;
}

CUresult cuDeviceCanAccessPeer(int *can, CUdevice dev, CUdevice peer)
{
	API_BEGIN();
	if (!can)
		return CUDA_ERROR_INVALID_VALUE;
	DEVICE_OR_RETURN(a, dev);
	DEVICE_OR_RETURN(b, peer);
	*can = a != b && !a->is_mig && !b->is_mig && a->model == b->model;
	return CUDA_SUCCESS;
}

CUresult cuDeviceGetP2PAttribute(int *value, CUdevice_P2PAttribute attribute, CUdevice dev,
				 CUdevice peer)
{
	int can;
	CUresult result = cuDeviceCanAccessPeer(&can, dev, peer);

	if (result != CUDA_SUCCESS)
		return result;
	if (!value || dev == peer)
		return dev == peer ? CUDA_ERROR_INVALID_DEVICE : CUDA_ERROR_INVALID_VALUE;
	switch (attribute) {
	case CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK:
		*value = 0;
		return CUDA_SUCCESS;
	case CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED:
	case CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED:
	case CU_DEVICE_P2P_ATTRIBUTE_CUDA_ARRAY_ACCESS_SUPPORTED:
		*value = can;
		return CUDA_SUCCESS;
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
}
