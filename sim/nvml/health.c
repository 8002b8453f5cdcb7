/* Modes, errors and fields of a GPU. Modes that the host does not play can be read, and set to what
 * they are. */
#include <unistd.h>

#include "base/macros.h"
#include "nvml/library.h"
#include "nvml/mig.h"

static nvmlReturn_t constant_mode(nvmlDevice_t device, const char *call, nvmlEnableState_t state,
				  nvmlEnableState_t *mode)
{
	struct device d;
	nvmlReturn_t r = gpu_enter(device, call, mode, &d);

	if (r == NVML_SUCCESS)
		*mode = state;
	return r;
}

static nvmlReturn_t set_constant_mode(nvmlDevice_t device, const char *call, int state, int mode)
{
	struct device d;
	nvmlReturn_t r = gpu_enter(device, call, call, &d);

	if (r != NVML_SUCCESS)
		return r;
	if (geteuid() != 0)
		return NVML_ERROR_NO_PERMISSION;
	return mode == state ? NVML_SUCCESS : NVML_ERROR_NOT_SUPPORTED;
}

nvmlReturn_t nvmlDeviceGetComputeMode(nvmlDevice_t device, nvmlComputeMode_t *mode)
{
	struct device d;
	nvmlReturn_t r = gpu_enter(device, __func__, mode, &d);

	if (r == NVML_SUCCESS)
		*mode = NVML_COMPUTEMODE_DEFAULT;
	return r;
}

nvmlReturn_t nvmlDeviceSetComputeMode(nvmlDevice_t device, nvmlComputeMode_t mode)
{
	return set_constant_mode(device, __func__, NVML_COMPUTEMODE_DEFAULT, mode);
}

nvmlReturn_t nvmlDeviceGetPersistenceMode(nvmlDevice_t device, nvmlEnableState_t *mode)
{
	return constant_mode(device, __func__, NVML_FEATURE_ENABLED, mode);
}

nvmlReturn_t nvmlDeviceSetPersistenceMode(nvmlDevice_t device, nvmlEnableState_t mode)
{
	return set_constant_mode(device, __func__, NVML_FEATURE_ENABLED, mode);
}

nvmlReturn_t nvmlDeviceSetAccountingMode(nvmlDevice_t device, nvmlEnableState_t mode)
{
	return set_constant_mode(device, __func__, NVML_FEATURE_DISABLED, mode);
}

nvmlReturn_t nvmlDeviceGetDisplayMode(nvmlDevice_t device, nvmlEnableState_t *mode)
{
	return constant_mode(device, __func__, NVML_FEATURE_DISABLED, mode);
}

nvmlReturn_t nvmlDeviceGetDisplayActive(nvmlDevice_t device, nvmlEnableState_t *is_active)
{
	return constant_mode(device, __func__, NVML_FEATURE_DISABLED, is_active);
}

nvmlReturn_t nvmlDeviceGetVirtualizationMode(nvmlDevice_t device, nvmlGpuVirtualizationMode_t *mode)
{
	struct device d;
	nvmlReturn_t r = gpu_enter(device, __func__, mode, &d);

	if (r == NVML_SUCCESS)
		*mode = NVML_GPU_VIRTUALIZATION_MODE_NONE;
	return r;
}

nvmlReturn_t nvmlDeviceGetGridLicensableFeatures_v4(nvmlDevice_t device,
						    nvmlGridLicensableFeatures_t *features)
{
	struct device d;
	nvmlReturn_t r = gpu_enter(device, __func__, features, &d);

	if (r == NVML_SUCCESS)
		*features = (nvmlGridLicensableFeatures_t){0};
	return r;
}

/* ECC. Boards with it have it on. The host's faults count uncorrectable errors of device memory. */
static nvmlReturn_t ecc_enter(nvmlDevice_t device, const char *call, const void *out,
			      struct device *d)
{
	nvmlReturn_t r = gpu_enter(device, call, out, d);

	return r == NVML_SUCCESS && !d->model->ecc ? NVML_ERROR_NOT_SUPPORTED : r;
}

nvmlReturn_t nvmlDeviceGetEccMode(nvmlDevice_t device, nvmlEnableState_t *current,
				  nvmlEnableState_t *pending)
{
	struct device d;
	nvmlReturn_t r = ecc_enter(device, __func__, current && pending ? current : NULL, &d);

	if (r == NVML_SUCCESS)
		*current = *pending = NVML_FEATURE_ENABLED;
	return r;
}

nvmlReturn_t nvmlDeviceGetDefaultEccMode(nvmlDevice_t device, nvmlEnableState_t *mode)
{
	struct device d;
	nvmlReturn_t r = ecc_enter(device, __func__, mode, &d);

	if (r == NVML_SUCCESS)
		*mode = NVML_FEATURE_ENABLED;
	return r;
}

nvmlReturn_t nvmlDeviceGetTotalEccErrors(nvmlDevice_t device, nvmlMemoryErrorType_t type,
					 nvmlEccCounterType_t counter, unsigned long long *count)
{
	struct device d;
	nvmlReturn_t r = device_enter(device, __func__, count, &d);

	if (r != NVML_SUCCESS)
		return r;
	if (!d.model->ecc)
		return NVML_ERROR_NOT_SUPPORTED;
	if ((unsigned int)type >= NVML_MEMORY_ERROR_TYPE_COUNT ||
	    (unsigned int)counter >= NVML_ECC_COUNTER_TYPE_COUNT)
		return NVML_ERROR_INVALID_ARGUMENT;
	*count = type == NVML_MEMORY_ERROR_TYPE_UNCORRECTED ? d.gpu->ecc_errors : 0;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMemoryErrorCounter(nvmlDevice_t device, nvmlMemoryErrorType_t type,
					     nvmlEccCounterType_t counter,
					     nvmlMemoryLocation_t location,
					     unsigned long long *count)
{
	unsigned long long total;
	nvmlReturn_t r = nvmlDeviceGetTotalEccErrors(device, type, counter, count ? &total : NULL);

	if (r != NVML_SUCCESS)
		return r;
	switch (location) {
	case NVML_MEMORY_LOCATION_DRAM:
		*count = total;
		return NVML_SUCCESS;
	case NVML_MEMORY_LOCATION_SRAM:
		*count = 0;
		return NVML_SUCCESS;
	default:
		/* The finer places are those of chips before Ampere. */
		return (unsigned int)location < NVML_MEMORY_LOCATION_COUNT
			       ? NVML_ERROR_NOT_SUPPORTED
			       : NVML_ERROR_INVALID_ARGUMENT;
	}
}

nvmlReturn_t nvmlDeviceGetSramEccErrorStatus(nvmlDevice_t device, nvmlEccSramErrorStatus_t *status)
{
	struct device d;
	nvmlReturn_t r = ecc_enter(device, __func__, status, &d);

	if (r != NVML_SUCCESS)
		return r;
	if (status->version != NVML_ECC_SRAM_ERROR_STATUS_V1)
		return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
	*status = (nvmlEccSramErrorStatus_t){.version = NVML_ECC_SRAM_ERROR_STATUS_V1};
	return NVML_SUCCESS;
}

/* Pages are retired up to Turing, rows remapped from Ampere on. */
nvmlReturn_t nvmlDeviceGetRetiredPages(nvmlDevice_t device, nvmlPageRetirementCause_t cause,
				       unsigned int *count, unsigned long long *addresses)
{
	struct device d;
	nvmlReturn_t r = ecc_enter(device, __func__, count, &d);

	if (r != NVML_SUCCESS)
		return r;
	if (d.model->arch >= SIM_ARCH_AMPERE)
		return NVML_ERROR_NOT_SUPPORTED;
	if ((unsigned int)cause >= NVML_PAGE_RETIREMENT_CAUSE_COUNT)
		return NVML_ERROR_INVALID_ARGUMENT;
	*count = 0;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetRetiredPagesPendingStatus(nvmlDevice_t device,
						    nvmlEnableState_t *is_pending)
{
	struct device d;
	nvmlReturn_t r = ecc_enter(device, __func__, is_pending, &d);

	if (r != NVML_SUCCESS)
		return r;
	if (d.model->arch >= SIM_ARCH_AMPERE)
		return NVML_ERROR_NOT_SUPPORTED;
	*is_pending = NVML_FEATURE_DISABLED;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetRemappedRows(nvmlDevice_t device, unsigned int *corrected,
				       unsigned int *uncorrected, unsigned int *is_pending,
				       unsigned int *failed)
{
	struct device d;
	bool all = corrected && uncorrected && is_pending && failed;
	nvmlReturn_t r = ecc_enter(device, __func__, all ? corrected : NULL, &d);

	if (r != NVML_SUCCESS)
		return r;
	if (d.model->arch < SIM_ARCH_AMPERE)
		return NVML_ERROR_NOT_SUPPORTED;
	*corrected = *uncorrected = *is_pending = *failed = 0;
	return NVML_SUCCESS;
}

/* One bank for each 32 MiB, each with all its spare rows. */
nvmlReturn_t nvmlDeviceGetRowRemapperHistogram(nvmlDevice_t device,
					       nvmlRowRemapperHistogramValues_t *values)
{
	struct device d;
	nvmlReturn_t r = ecc_enter(device, __func__, values, &d);

	if (r != NVML_SUCCESS)
		return r;
	if (d.model->arch < SIM_ARCH_AMPERE)
		return NVML_ERROR_NOT_SUPPORTED;
	*values = (nvmlRowRemapperHistogramValues_t){
		.max = (unsigned int)ALIGN_UP(d.model->memory_total / MIB(32), 64),
	};
	return NVML_SUCCESS;
}

/* Fields: the value of one, by the call that gives the same. */
static nvmlReturn_t field_u32(nvmlDevice_t device, nvmlFieldValue_t *field,
			      nvmlReturn_t (*get)(nvmlDevice_t, unsigned int *))
{
	field->valueType = NVML_VALUE_TYPE_UNSIGNED_INT;
	return get(device, &field->value.uiVal);
}

static nvmlReturn_t field_constant(nvmlFieldValue_t *field, unsigned int value)
{
	field->valueType = NVML_VALUE_TYPE_UNSIGNED_INT;
	field->value.uiVal = value;
	return NVML_SUCCESS;
}

static nvmlReturn_t power_min(nvmlDevice_t device, unsigned int *mw)
{
	unsigned int max;

	return nvmlDeviceGetPowerManagementLimitConstraints(device, mw, &max);
}

static nvmlReturn_t ecc_current(nvmlDevice_t device, unsigned int *is_on)
{
	nvmlEnableState_t current, pending;
	nvmlReturn_t r = nvmlDeviceGetEccMode(device, &current, &pending);

	if (r == NVML_SUCCESS)
		*is_on = current;
	return r;
}

static nvmlReturn_t field_value(nvmlDevice_t handle, const struct device *d,
				nvmlFieldValue_t *field)
{
	/* Scopes other than the GPU itself are those of boards with a CPU. */
	if (field->scopeId != 0)
		return NVML_ERROR_NOT_SUPPORTED;
	switch (field->fieldId) {
	case NVML_FI_DEV_ECC_CURRENT:
	case NVML_FI_DEV_ECC_PENDING:
		return field_u32(handle, field, ecc_current);
	case NVML_FI_DEV_TOTAL_ENERGY_CONSUMPTION:
	case NVML_FI_DEV_ENERGY:
		field->valueType = NVML_VALUE_TYPE_UNSIGNED_LONG_LONG;
		return nvmlDeviceGetTotalEnergyConsumption(handle, &field->value.ullVal);
	case NVML_FI_DEV_POWER_AVERAGE:
	case NVML_FI_DEV_POWER_INSTANT:
		return field_u32(handle, field, nvmlDeviceGetPowerUsage);
	case NVML_FI_DEV_POWER_MIN_LIMIT:
		return field_u32(handle, field, power_min);
	case NVML_FI_DEV_POWER_MAX_LIMIT:
	case NVML_FI_DEV_POWER_DEFAULT_LIMIT:
	case NVML_FI_DEV_POWER_CURRENT_LIMIT:
	case NVML_FI_DEV_POWER_REQUESTED_LIMIT:
		return field_u32(handle, field, nvmlDeviceGetPowerManagementLimit);
	case NVML_FI_DEV_PCIE_REPLAY_COUNTER:
	case NVML_FI_DEV_PCIE_REPLAY_ROLLOVER_COUNTER:
	case NVML_FI_DEV_NVLINK_LINK_COUNT:
	case NVML_FI_DEV_C2C_LINK_COUNT:
		return field_constant(field, 0);
	case NVML_FI_DEV_IS_RESETLESS_MIG_SUPPORTED:
		return field_constant(field, d->model->arch >= SIM_ARCH_HOPPER);
	case NVML_FI_DEV_IS_MIG_MODE_INDEPENDENT_MIG_QUERY_CAPABLE:
		return field_constant(field, d->model->mig_class != NULL);
	default:
		return NVML_ERROR_NOT_SUPPORTED;
	}
}

nvmlReturn_t nvmlDeviceGetFieldValues(nvmlDevice_t device, int count, nvmlFieldValue_t *values)
{
	struct device d;
	nvmlReturn_t r = gpu_enter(device, __func__, values, &d);
	long long now = (long long)library_timestamp_us();

	if (r != NVML_SUCCESS)
		return r;
	if (count <= 0)
		return NVML_ERROR_INVALID_ARGUMENT;
	for (int i = 0; i < count; i++) {
		values[i].timestamp = now;
		values[i].latencyUsec = 0;
		values[i].nvmlReturn = field_value(device, &d, &values[i]);
	}
	return NVML_SUCCESS;
}
