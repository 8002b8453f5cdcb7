/* Which devices there are and what they are: nothing here changes while a host lives, but for MIG
 * devices, which answer for name, UUID and the like too. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/macros.h"
#include "nvml/library.h"
#include "nvml/mig.h"

nvmlReturn_t nvmlDeviceGetCount_v2(unsigned int *count)
{
	struct client *c;
	nvmlReturn_t r = library_enter(__func__, count, &c);

	if (r == NVML_SUCCESS)
		*count = client_host(c)->gpu_count;
	return r;
}

nvmlReturn_t nvmlDeviceGetCount(unsigned int *count)
{
	return nvmlDeviceGetCount_v2(count);
}

nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvmlDevice_t *device)
{
	struct client *c;
	nvmlReturn_t r = library_open(device, &c);

	if (r != NVML_SUCCESS)
		return r;
	bool is_there = index < client_host(c)->gpu_count;
	if ((r = library_fault(c, is_there ? index : WIRE_NO_DEVICE, __func__)) != NVML_SUCCESS)
		return r;
	if (!is_there)
		return NVML_ERROR_INVALID_ARGUMENT;
	if (!client_may_open(client_host(c)->gpu[index].minor))
		return NVML_ERROR_NO_PERMISSION;
	*device = handle_of_device(index);
	return client_host(c)->gpu[index].flags & WIRE_GPU_LOST ? NVML_ERROR_GPU_IS_LOST
								: NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetHandleByIndex(unsigned int index, nvmlDevice_t *device)
{
	return nvmlDeviceGetHandleByIndex_v2(index, device);
}

/* The handle of the GPU for which `is_it(gpu, what)` says so. */
static nvmlReturn_t find_gpu(struct client *c, const char *call, const void *what,
			     nvmlDevice_t *device,
			     bool (*is_it)(const struct wire_gpu *, const void *))
{
	const struct wire_host *host = client_host(c);
	nvmlReturn_t r;

	for (uint32_t i = 0; i < host->gpu_count; i++) {
		if (!is_it(&host->gpu[i], what))
			continue;
		r = library_fault(c, i, call);
		if (r == NVML_SUCCESS && !client_may_open(host->gpu[i].minor))
			r = NVML_ERROR_NO_PERMISSION;
		if (r == NVML_SUCCESS)
			*device = handle_of_device(i);
		return r;
	}
	r = library_fault(c, WIRE_NO_DEVICE, call);
	return r == NVML_SUCCESS ? NVML_ERROR_NOT_FOUND : r;
}

static bool has_uuid(const struct wire_gpu *gpu, const void *what)
{
	return !strcasecmp(gpu->uuid_text, what);
}

static bool has_serial(const struct wire_gpu *gpu, const void *what)
{
	return !strcmp(gpu->serial, what);
}

struct bus_id {
	unsigned int domain, bus, device;
};

static bool has_bus_id(const struct wire_gpu *gpu, const void *what)
{
	const struct bus_id *id = what;

	return gpu->pci_domain == id->domain && gpu->pci_bus == id->bus &&
	       gpu->pci_device == id->device;
}

nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *device)
{
	struct client *c;
	nvmlReturn_t r = library_open(uuid && device ? uuid : NULL, &c);

	if (r != NVML_SUCCESS)
		return r;
	if (!strncasecmp(uuid, "MIG-", 4))
		return mig_find_uuid(c, __func__, uuid, device);
	return find_gpu(c, __func__, uuid, device, has_uuid);
}

nvmlReturn_t nvmlDeviceGetHandleBySerial(const char *serial, nvmlDevice_t *device)
{
	struct client *c;
	nvmlReturn_t r = library_open(serial && device ? serial : NULL, &c);

	return r == NVML_SUCCESS ? find_gpu(c, __func__, serial, device, has_serial) : r;
}

/* [[domain:]bus:device[.function]], hexadecimal, each part as long as it likes. */
static bool parse_bus_id(const char *text, struct bus_id *ret)
{
	unsigned long part[3] = {0};
	size_t n = 0;
	char *end;

	for (; n < ARRAY_SIZE(part); n++) {
		part[n] = strtoul(text, &end, 16);
		if (end == text || (*end != ':' && *end != '.' && *end != '\0'))
			return false;
		text = end + 1;
		if (*end != ':')
			break;
	}
	if (n == 1)
		*ret = (struct bus_id){.bus = (unsigned int)part[0],
				       .device = (unsigned int)part[1]};
	else if (n == 2)
		*ret = (struct bus_id){(unsigned int)part[0], (unsigned int)part[1],
				       (unsigned int)part[2]};
	else
		return false;
	return true;
}

nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char *bus_id, nvmlDevice_t *device)
{
	struct client *c;
	nvmlReturn_t r = library_open(bus_id && device ? bus_id : NULL, &c);
	struct bus_id id;

	if (r != NVML_SUCCESS)
		return r;
	if (!parse_bus_id(bus_id, &id))
		return NVML_ERROR_INVALID_ARGUMENT;
	return find_gpu(c, __func__, &id, device, has_bus_id);
}

nvmlReturn_t nvmlDeviceGetHandleByPciBusId(const char *bus_id, nvmlDevice_t *device)
{
	return nvmlDeviceGetHandleByPciBusId_v2(bus_id, device);
}

/* A MIG device's index is that for nvmlDeviceGetMigDeviceHandleByIndex. */
nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t device, unsigned int *index)
{
	struct device d;
	nvmlReturn_t r = device_enter(device, __func__, index, &d);

	if (r == NVML_SUCCESS)
		*index = device_is_mig(&d) ? mig_device_index(&d) : d.index;
	return r;
}

nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char *name, unsigned int length)
{
	struct device d;
	struct mig_device mig;
	nvmlReturn_t r = device_enter(device, __func__, name, &d);
	char text[NVML_DEVICE_NAME_V2_BUFFER_SIZE];

	if (r != NVML_SUCCESS)
		return r;
	if (!device_is_mig(&d))
		return library_text(d.model->name, name, length);
	if (!mig_device_get(&d, &mig))
		return NVML_ERROR_NOT_FOUND;
	snprintf(text, sizeof(text), "%s MIG %s", d.model->name, mig.profile);
	return library_text(text, name, length);
}

nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char *uuid, unsigned int length)
{
	struct device d;
	struct mig_device mig;
	nvmlReturn_t r = device_enter(device, __func__, uuid, &d);

	if (r != NVML_SUCCESS)
		return r;
	if (!device_is_mig(&d))
		return library_text(d.gpu->uuid_text, uuid, length);
	if (!mig_device_get(&d, &mig))
		return NVML_ERROR_NOT_FOUND;
	return library_text(mig.uuid, uuid, length);
}

nvmlReturn_t nvmlDeviceGetSerial(nvmlDevice_t device, char *serial, unsigned int length)
{
	struct device d;
	nvmlReturn_t r = gpu_enter(device, __func__, serial, &d);

	if (r != NVML_SUCCESS)
		return r;
	/* Consumer boards have none. */
	return d.model->ecc ? library_text(d.gpu->serial, serial, length)
			    : NVML_ERROR_NOT_SUPPORTED;
}

nvmlReturn_t nvmlDeviceGetMinorNumber(nvmlDevice_t device, unsigned int *minor)
{
	struct device d;
	nvmlReturn_t r = gpu_enter(device, __func__, minor, &d);

	if (r == NVML_SUCCESS)
		*minor = d.gpu->minor;
	return r;
}

nvmlReturn_t nvmlDeviceGetModuleId(nvmlDevice_t device, unsigned int *id)
{
	struct device d;
	nvmlReturn_t r = gpu_enter(device, __func__, id, &d);

	if (r == NVML_SUCCESS)
		*id = d.index + 1;
	return r;
}

nvmlReturn_t nvmlDeviceGetBrand(nvmlDevice_t device, nvmlBrandType_t *brand)
{
	struct device d;
	nvmlReturn_t r = gpu_enter(device, __func__, brand, &d);

	if (r != NVML_SUCCESS)
		return r;
	if (strstr(d.model->name, "GeForce"))
		*brand = NVML_BRAND_GEFORCE;
	else if (strstr(d.model->name, "RTX"))
		*brand = NVML_BRAND_NVIDIA_RTX;
	else
		*brand = NVML_BRAND_NVIDIA;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetArchitecture(nvmlDevice_t device, nvmlDeviceArchitecture_t *arch)
{
	struct device d;
	nvmlReturn_t r = device_enter(device, __func__, arch, &d);

	if (r == NVML_SUCCESS)
		*arch = d.model->arch;
	return r;
}

nvmlReturn_t nvmlDeviceGetCudaComputeCapability(nvmlDevice_t device, int *major, int *minor)
{
	struct device d;
	nvmlReturn_t r = device_enter(device, __func__, major && minor ? major : NULL, &d);

	if (r != NVML_SUCCESS)
		return r;
	*major = d.model->cc_major;
	*minor = d.model->cc_minor;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetNumGpuCores(nvmlDevice_t device, unsigned int *cores)
{
	struct device d;
	nvmlReturn_t r = gpu_enter(device, __func__, cores, &d);
	unsigned int per_sm;

	if (r != NVML_SUCCESS)
		return r;
	/* Data-centre chips up to A100 have 64 of them in an SM, all others of today 128. */
	per_sm = d.model->cc_major < 8 || (d.model->cc_major == 8 && d.model->cc_minor == 0) ? 64
											     : 128;
	*cores = d.model->sm_count * per_sm;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMemoryBusWidth(nvmlDevice_t device, unsigned int *bits)
{
	struct device d;
	nvmlReturn_t r = gpu_enter(device, __func__, bits, &d);

	if (r == NVML_SUCCESS)
		*bits = d.model->bus_width;
	return r;
}

/* One GPU a board: its ID is where it sits on the bus. */
nvmlReturn_t nvmlDeviceGetBoardId(nvmlDevice_t device, unsigned int *id)
{
	struct device d;
	nvmlReturn_t r = gpu_enter(device, __func__, id, &d);

	if (r == NVML_SUCCESS)
		*id = d.gpu->pci_domain << 16 | d.gpu->pci_bus << 8 | d.gpu->pci_device;
	return r;
}

nvmlReturn_t nvmlDeviceGetMultiGpuBoard(nvmlDevice_t device, unsigned int *multi)
{
	struct device d;
	nvmlReturn_t r = gpu_enter(device, __func__, multi, &d);

	if (r == NVML_SUCCESS)
		*multi = 0;
	return r;
}

/* Versions that say what they are of: a simulated board. */
static nvmlReturn_t board_text(nvmlDevice_t device, const char *call, const char *text, char *buf,
			       unsigned int length)
{
	struct device d;
	nvmlReturn_t r = gpu_enter(device, call, buf, &d);

	return r == NVML_SUCCESS ? library_text(text, buf, length) : r;
}

nvmlReturn_t nvmlDeviceGetVbiosVersion(nvmlDevice_t device, char *version, unsigned int length)
{
	return board_text(device, __func__, "00.00.00.00.00", version, length);
}

nvmlReturn_t nvmlDeviceGetBoardPartNumber(nvmlDevice_t device, char *number, unsigned int length)
{
	return board_text(device, __func__, "SIM-00000-0000-000", number, length);
}

nvmlReturn_t nvmlDeviceGetInforomImageVersion(nvmlDevice_t device, char *version,
					      unsigned int length)
{
	return board_text(device, __func__, "SIM.0000.00.01", version, length);
}

nvmlReturn_t nvmlDeviceGetInforomVersion(nvmlDevice_t device, nvmlInforomObject_t object,
					 char *version, unsigned int length)
{
	static const char *const versions[] = {
		[NVML_INFOROM_OEM] = "2.1",
		[NVML_INFOROM_ECC] = "7.16",
		[NVML_INFOROM_POWER] = NULL,
	};
	struct device d;
	nvmlReturn_t r = gpu_enter(device, __func__, version, &d);

	if (r != NVML_SUCCESS)
		return r;
	if ((unsigned int)object >= NVML_INFOROM_COUNT)
		return NVML_ERROR_INVALID_ARGUMENT;
	if (object >= ARRAY_SIZE(versions) || !versions[object] ||
	    (object == NVML_INFOROM_ECC && !d.model->ecc))
		return NVML_ERROR_NOT_SUPPORTED;
	return library_text(versions[object], version, length);
}

nvmlReturn_t nvmlDeviceGetInforomConfigurationChecksum(nvmlDevice_t device, unsigned int *sum)
{
	struct device d;
	nvmlReturn_t r = gpu_enter(device, __func__, sum, &d);

	if (r == NVML_SUCCESS)
		*sum = d.model->pci_device_id ^ d.model->pci_subsystem_id;
	return r;
}

nvmlReturn_t nvmlDeviceValidateInforom(nvmlDevice_t device)
{
	struct device d;

	return gpu_enter(device, __func__, __func__, &d);
}

/* The GPU's own firmware runs on data-centre boards from Turing on; it has the driver's version. */
nvmlReturn_t nvmlDeviceGetGspFirmwareVersion(nvmlDevice_t device, char *version)
{
	struct device d;
	nvmlReturn_t r = gpu_enter(device, __func__, version, &d);

	if (r != NVML_SUCCESS)
		return r;
	if (d.model->arch < SIM_ARCH_TURING || !d.model->ecc)
		return NVML_ERROR_NOT_SUPPORTED;
	return library_text(client_host(d.client)->driver_version, version,
			    NVML_GSP_FIRMWARE_VERSION_BUF_SIZE);
}

nvmlReturn_t nvmlDeviceGetGspFirmwareMode(nvmlDevice_t device, unsigned int *is_enabled,
					  unsigned int *default_mode)
{
	struct device d;
	nvmlReturn_t r =
		gpu_enter(device, __func__, is_enabled && default_mode ? is_enabled : NULL, &d);

	if (r != NVML_SUCCESS)
		return r;
	*is_enabled = *default_mode = d.model->arch >= SIM_ARCH_TURING && d.model->ecc;
	return NVML_SUCCESS;
}
