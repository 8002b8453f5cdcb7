/* Where a GPU sits on the bus, and the links from there. */
#include <stdio.h>
#include <string.h>

#include "base/macros.h"
#include "nvml/library.h"

static void format_bus_id(const struct wire_gpu *gpu, char *buf, size_t size)
{
	snprintf(buf, size, "%08X:%02X:%02X.0", gpu->pci_domain, gpu->pci_bus, gpu->pci_device);
}

static void format_bus_id_legacy(const struct wire_gpu *gpu, char *buf, size_t size)
{
	snprintf(buf, size, "%04X:%02X:%02X.0", gpu->pci_domain & 0xffff, gpu->pci_bus,
		 gpu->pci_device);
}

nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, nvmlPciInfo_t *pci)
{
	struct device d;
	nvmlReturn_t r = gpu_enter(device, __func__, pci, &d);

	if (r != NVML_SUCCESS)
		return r;
	*pci = (nvmlPciInfo_t){
		.domain = d.gpu->pci_domain,
		.bus = d.gpu->pci_bus,
		.device = d.gpu->pci_device,
		.pciDeviceId = d.model->pci_device_id,
		.pciSubSystemId = d.model->pci_subsystem_id,
	};
	format_bus_id(d.gpu, pci->busId, sizeof(pci->busId));
	format_bus_id_legacy(d.gpu, pci->busIdLegacy, sizeof(pci->busIdLegacy));
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetPciInfo_v2(nvmlDevice_t device, nvmlPciInfo_v2_t *pci)
{
	nvmlPciInfo_t full;
	nvmlReturn_t r = nvmlDeviceGetPciInfo_v3(device, pci ? &full : NULL);

	if (r != NVML_SUCCESS)
		return r;
	*pci = (nvmlPciInfo_v2_t){
		.domain = full.domain,
		.bus = full.bus,
		.device = full.device,
		.pciDeviceId = full.pciDeviceId,
		.pciSubSystemId = full.pciSubSystemId,
	};
	memcpy(pci->busId, full.busIdLegacy, sizeof(pci->busId));
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetPciInfo(nvmlDevice_t device, nvmlPciInfo_v2_t *pci)
{
	nvmlPciInfo_v2_t full;
	nvmlReturn_t r = nvmlDeviceGetPciInfo_v2(device, pci ? &full : NULL);

	/* The first version's structure is shorter. */
	if (r == NVML_SUCCESS)
		memcpy(pci, &full, offsetof(nvmlPciInfo_v2_t, pciSubSystemId));
	return r;
}

nvmlReturn_t nvmlDeviceGetPciInfoExt(nvmlDevice_t device, nvmlPciInfoExt_t *pci)
{
	struct device d;
	nvmlReturn_t r = gpu_enter(device, __func__, pci, &d);

	if (r != NVML_SUCCESS)
		return r;
	if (pci->version != NVML_PCI_INFO_EXT_V1)
		return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
	*pci = (nvmlPciInfoExt_t){
		.version = NVML_PCI_INFO_EXT_V1,
		.domain = d.gpu->pci_domain,
		.bus = d.gpu->pci_bus,
		.device = d.gpu->pci_device,
		.pciDeviceId = d.model->pci_device_id,
		.pciSubSystemId = d.model->pci_subsystem_id,
		.baseClass = 0x03,                /* display controller ... */
		.subClass = d.model->ecc ? 2 : 0, /* ... 3D, or VGA where it has outputs */
	};
	format_bus_id(d.gpu, pci->busId, sizeof(pci->busId));
	return NVML_SUCCESS;
}

static nvmlReturn_t link_generation(nvmlDevice_t device, const char *call, unsigned int *generation)
{
	struct device d;
	nvmlReturn_t r = gpu_enter(device, call, generation, &d);

	if (r == NVML_SUCCESS)
		*generation = d.model->pcie_gen;
	return r;
}

nvmlReturn_t nvmlDeviceGetMaxPcieLinkGeneration(nvmlDevice_t device, unsigned int *generation)
{
	return link_generation(device, __func__, generation);
}

nvmlReturn_t nvmlDeviceGetGpuMaxPcieLinkGeneration(nvmlDevice_t device, unsigned int *generation)
{
	return link_generation(device, __func__, generation);
}

nvmlReturn_t nvmlDeviceGetCurrPcieLinkGeneration(nvmlDevice_t device, unsigned int *generation)
{
	return link_generation(device, __func__, generation);
}

nvmlReturn_t nvmlDeviceGetMaxPcieLinkWidth(nvmlDevice_t device, unsigned int *width)
{
	struct device d;
	nvmlReturn_t r = gpu_enter(device, __func__, width, &d);

	if (r == NVML_SUCCESS)
		*width = d.model->pcie_width;
	return r;
}

nvmlReturn_t nvmlDeviceGetCurrPcieLinkWidth(nvmlDevice_t device, unsigned int *width)
{
	return nvmlDeviceGetMaxPcieLinkWidth(device, width);
}

/* The bytes that the copy engines moved since the start, as the mean over that time: the host keeps
 * no shorter window. */
nvmlReturn_t nvmlDeviceGetPcieThroughput(nvmlDevice_t device, nvmlPcieUtilCounter_t counter,
					 unsigned int *kib_per_s)
{
	struct device d;
	nvmlReturn_t r = gpu_enter(device, __func__, kib_per_s, &d);
	struct wire_utilization u;
	uint64_t bytes, ms;

	if (r != NVML_SUCCESS)
		return r;
	if ((unsigned int)counter >= NVML_PCIE_UTIL_COUNT)
		return NVML_ERROR_INVALID_ARGUMENT;
	r = library_error(client_utilization(d.client, d.id, &u));
	if (r != NVML_SUCCESS)
		return r;
	bytes = u.copied_bytes[counter == NVML_PCIE_UTIL_TX_BYTES ? WIRE_ENGINE_D2H
								  : WIRE_ENGINE_H2D];
	ms = (client_now() - client_host(d.client)->started) / 1000000 + 1;
	*kib_per_s = (unsigned int)(bytes / 1024 * 1000 / ms);
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetPcieReplayCounter(nvmlDevice_t device, unsigned int *count)
{
	struct device d;
	nvmlReturn_t r = gpu_enter(device, __func__, count, &d);

	if (r == NVML_SUCCESS)
		*count = 0;
	return r;
}

nvmlReturn_t nvmlDeviceGetBusType(nvmlDevice_t device, unsigned int *type)
{
	struct device d;
	nvmlReturn_t r = gpu_enter(device, __func__, type, &d);

	if (r == NVML_SUCCESS)
		*type = NVML_BUS_TYPE_PCIE;
	return r;
}

nvmlReturn_t nvmlDeviceGetBridgeChipInfo(nvmlDevice_t device, nvmlBridgeChipHierarchy_t *chips)
{
	struct device d;
	nvmlReturn_t r = gpu_enter(device, __func__, chips, &d);

	return r == NVML_SUCCESS ? NVML_ERROR_NOT_SUPPORTED : r;
}

nvmlReturn_t nvmlDeviceGetC2cModeInfoV(nvmlDevice_t device, nvmlC2cModeInfo_v1_t *info)
{
	struct device d;
	nvmlReturn_t r = gpu_enter(device, __func__, info, &d);

	if (r == NVML_SUCCESS)
		info->isC2cEnabled = 0;
	return r;
}

/* The host has no NVLink fabric. */
nvmlReturn_t nvmlDeviceGetGpuFabricInfo(nvmlDevice_t device, nvmlGpuFabricInfo_t *info)
{
	struct device d;
	nvmlReturn_t r = gpu_enter(device, __func__, info, &d);

	if (r == NVML_SUCCESS)
		*info = (nvmlGpuFabricInfo_t){.state = NVML_GPU_FABRIC_STATE_NOT_SUPPORTED};
	return r;
}

nvmlReturn_t nvmlDeviceGetGpuFabricInfoV(nvmlDevice_t device, nvmlGpuFabricInfo_v2_t *info)
{
	struct device d;
	nvmlReturn_t r = gpu_enter(device, __func__, info, &d);

	if (r != NVML_SUCCESS)
		return r;
	if (info->version != NVML_GPU_FABRIC_INFO_V2)
		return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
	*info = (nvmlGpuFabricInfo_v2_t){.version = NVML_GPU_FABRIC_INFO_V2,
					 .state = NVML_GPU_FABRIC_STATE_NOT_SUPPORTED};
	return NVML_SUCCESS;
}
