/* The part of the NVML ABI that carve, its front and the simulated driver use. It is declared from
 * NVML's public API reference: names, numbers and layouts as of API 13, which older drivers share.
 * Names are NVML's own, so that code reads like any NVML client's. Unlike in the vendor's header,
 * no name is a macro for a newer one: nvmlDeviceGetCount is the first version's symbol and
 * nvmlDeviceGetCount_v2 the second's.
 *
 * The functions stand in base/nvml_functions.h, constants and handles in base/nvml_enums.h, and MIG
 * in base/nvml_mig.h.
 *
 * Units, unless said otherwise: memory in bytes, MHz, milliwatts, degrees Celsius, microseconds for
 * time stamps and sampling periods, per cent for utilizations. */
#pragma once

#include <stddef.h>

#include "base/nvml_enums.h"
#include "base/nvml_mig.h"

typedef struct {
	unsigned long long total;
	unsigned long long free;
	unsigned long long used; /* includes what the driver reserves */
} nvmlMemory_t;

typedef struct {
	unsigned int version; /* NVML_MEMORY_V2 */
	unsigned long long total;
	unsigned long long reserved;
	unsigned long long free;
	unsigned long long used; /* without `reserved` */
} nvmlMemory_v2_t;
#define NVML_MEMORY_V2 NVML_STRUCT_VERSION_OF(nvmlMemory_v2_t, 2)

/* The limits of a cgroup, which is named by the path of its directory; none: soft 0, hard
 * NVML_DEVICE_MEMORY_LIMIT_MAX. */
#define NVML_DEVICE_MEMORY_LIMIT_MAX 0xffffffffffffffffULL
typedef struct {
	const char *nameSpace;
	unsigned long long softLimit;
	unsigned long long hardLimit;
} nvmlSetMemoryLimits_v1_t;

typedef struct {
	const char *nameSpace; /* in */
	unsigned long long softLimit;
	unsigned long long hardLimit;
	unsigned long long currentUsed;
} nvmlGetMemoryLimits_v1_t;

typedef struct {
	unsigned long long bar1Total;
	unsigned long long bar1Free;
	unsigned long long bar1Used;
} nvmlBAR1Memory_t;

typedef struct {
	unsigned int gpu;
	unsigned int memory;
} nvmlUtilization_t;

/* Version 3 of the process-list calls uses the second layout too. */
typedef struct {
	unsigned int pid;
	unsigned long long usedGpuMemory;
} nvmlProcessInfo_v1_t;

typedef struct {
	unsigned int pid;
	unsigned long long usedGpuMemory;
	unsigned int gpuInstanceId; /* NVML_NO_INSTANCE outside MIG */
	unsigned int computeInstanceId;
} nvmlProcessInfo_v2_t;
typedef nvmlProcessInfo_v2_t nvmlProcessInfo_t;

typedef struct {
	unsigned int pid;
	unsigned long long usedGpuMemory;
	unsigned int gpuInstanceId;
	unsigned int computeInstanceId;
	unsigned long long usedGpuCcProtectedMemory;
} nvmlProcessDetail_v1_t;

typedef struct {
	unsigned int version; /* NVML_PROCESS_DETAIL_LIST_V1 */
	unsigned int mode;    /* 0 compute, 1 graphics, 2 MPS */
	unsigned int numProcArrayEntries;
	nvmlProcessDetail_v1_t *procArray;
} nvmlProcessDetailList_t;
#define NVML_PROCESS_DETAIL_LIST_V1 NVML_STRUCT_VERSION_OF(nvmlProcessDetailList_t, 1)

typedef struct {
	unsigned int pid;
	unsigned long long timeStamp;
	unsigned int smUtil;
	unsigned int memUtil;
	unsigned int encUtil;
	unsigned int decUtil;
} nvmlProcessUtilizationSample_t;

typedef struct {
	unsigned long long timeStamp;
	unsigned int pid;
	unsigned int smUtil;
	unsigned int memUtil;
	unsigned int encUtil;
	unsigned int decUtil;
	unsigned int jpgUtil;
	unsigned int ofaUtil;
} nvmlProcessUtilizationInfo_v1_t;

typedef struct {
	unsigned int version; /* NVML_PROCESSES_UTILIZATION_INFO_V1 */
	unsigned int processSamplesCount;
	unsigned long long lastSeenTimeStamp;
	nvmlProcessUtilizationInfo_v1_t *procUtilArray;
} nvmlProcessesUtilizationInfo_t;
#define NVML_PROCESSES_UTILIZATION_INFO_V1 NVML_STRUCT_VERSION_OF(nvmlProcessesUtilizationInfo_t, 1)

typedef struct {
	unsigned int gpuUtilization;
	unsigned int memoryUtilization;
	unsigned long long maxMemoryUsage;
	unsigned long long time; /* milliseconds */
	unsigned long long startTime;
	unsigned int isRunning;
	unsigned int reserved[5];
} nvmlAccountingStats_t;

/* nvmlDeviceGetPciInfo_v3 */
typedef struct {
	char busIdLegacy[NVML_DEVICE_PCI_BUS_ID_BUFFER_V2_SIZE]; /* 0000:41:00.0 */
	unsigned int domain;
	unsigned int bus;
	unsigned int device;
	unsigned int pciDeviceId;                       /* device << 16 | vendor */
	unsigned int pciSubSystemId;                    /* likewise */
	char busId[NVML_DEVICE_PCI_BUS_ID_BUFFER_SIZE]; /* 00000000:41:00.0 */
} nvmlPciInfo_t;

/* nvmlDeviceGetPciInfo_v2; the first version ends after pciDeviceId. */
typedef struct {
	char busId[NVML_DEVICE_PCI_BUS_ID_BUFFER_V2_SIZE];
	unsigned int domain;
	unsigned int bus;
	unsigned int device;
	unsigned int pciDeviceId;
	unsigned int pciSubSystemId;
	unsigned int reserved[4];
} nvmlPciInfo_v2_t;

typedef struct {
	unsigned int version; /* NVML_PCI_INFO_EXT_V1 */
	unsigned int domain;
	unsigned int bus;
	unsigned int device;
	unsigned int pciDeviceId;
	unsigned int pciSubSystemId;
	unsigned int baseClass;
	unsigned int subClass;
	char busId[NVML_DEVICE_PCI_BUS_ID_BUFFER_SIZE];
} nvmlPciInfoExt_t;
#define NVML_PCI_INFO_EXT_V1 NVML_STRUCT_VERSION_OF(nvmlPciInfoExt_t, 1)

typedef struct {
	unsigned long long l1Cache;
	unsigned long long l2Cache;
	unsigned long long deviceMemory;
	unsigned long long registerFile;
} nvmlEccErrorCounts_t;

typedef struct {
	unsigned int version; /* NVML_ECC_SRAM_ERROR_STATUS_V1 */
	unsigned long long aggregateUncParity;
	unsigned long long aggregateUncSecDed;
	unsigned long long aggregateCor;
	unsigned long long volatileUncParity;
	unsigned long long volatileUncSecDed;
	unsigned long long volatileCor;
	unsigned long long aggregateUncBucketL2;
	unsigned long long aggregateUncBucketSm;
	unsigned long long aggregateUncBucketPcie;
	unsigned long long aggregateUncBucketMcu;
	unsigned long long aggregateUncBucketOther;
	unsigned int bThresholdExceeded;
} nvmlEccSramErrorStatus_t;
#define NVML_ECC_SRAM_ERROR_STATUS_V1 NVML_STRUCT_VERSION_OF(nvmlEccSramErrorStatus_t, 1)

typedef struct {
	unsigned int max;
	unsigned int high;
	unsigned int partial;
	unsigned int low;
	unsigned int none;
} nvmlRowRemapperHistogramValues_t;

typedef struct {
	int type;
	unsigned int fwVersion;
} nvmlBridgeChipInfo_t;

typedef struct {
	unsigned char bridgeCount;
	nvmlBridgeChipInfo_t bridgeChipInfo[NVML_MAX_PHYSICAL_BRIDGE];
} nvmlBridgeChipHierarchy_t;

typedef struct {
	unsigned int isC2cEnabled;
} nvmlC2cModeInfo_v1_t;

typedef struct {
	unsigned int sessionsCount;
	unsigned int averageFPS;
	unsigned int averageLatency;
} nvmlFBCStats_t;

/* An encoder session; the codec is an enumeration. */
typedef struct {
	unsigned int sessionId;
	unsigned int pid;
	unsigned int vgpuInstance;
	unsigned int codecType;
	unsigned int hResolution, vResolution;
	unsigned int averageFps;
	unsigned int averageLatency; /* microseconds */
} nvmlEncoderSessionInfo_t;

/* A session of frame-buffer capture; its type is an enumeration. */
typedef struct {
	unsigned int sessionId;
	unsigned int pid;
	unsigned int vgpuInstance;
	unsigned int displayOrdinal;
	unsigned int sessionType;
	unsigned int sessionFlags;
	unsigned int hMaxResolution, vMaxResolution;
	unsigned int hResolution, vResolution;
	unsigned int averageFPS;
	unsigned int averageLatency; /* microseconds */
} nvmlFBCSessionInfo_t;

/* A chassis of several GPUs. */
typedef struct nvmlUnit_st *nvmlUnit_t;

typedef struct {
	unsigned char clusterUuid[NVML_GPU_FABRIC_UUID_LEN];
	nvmlReturn_t status;
	unsigned int cliqueId;
	unsigned char state; /* NVML_GPU_FABRIC_STATE_* */
} nvmlGpuFabricInfo_t;

typedef struct {
	unsigned int version; /* NVML_GPU_FABRIC_INFO_V2 */
	unsigned char clusterUuid[NVML_GPU_FABRIC_UUID_LEN];
	nvmlReturn_t status;
	unsigned int cliqueId;
	unsigned char state;
	unsigned int healthMask;
} nvmlGpuFabricInfo_v2_t;
#define NVML_GPU_FABRIC_INFO_V2 NVML_STRUCT_VERSION_OF(nvmlGpuFabricInfo_v2_t, 2)

typedef struct {
	unsigned int year;
	unsigned short month;
	unsigned short day;
	unsigned short hour;
	unsigned short min;
	unsigned short sec;
	unsigned char status;
} nvmlGridLicenseExpiry_t;

typedef struct {
	int featureCode;
	unsigned int featureState;
	char licenseInfo[NVML_GRID_LICENSE_BUFFER_SIZE];
	char productName[NVML_GRID_LICENSE_BUFFER_SIZE];
	unsigned int featureEnabled;
	nvmlGridLicenseExpiry_t licenseExpiry;
} nvmlGridLicensableFeature_t;

typedef struct {
	int isGridLicenseSupported;
	unsigned int licensableFeaturesCount;
	nvmlGridLicensableFeature_t gridLicensableFeatures[NVML_GRID_LICENSE_FEATURE_MAX_COUNT];
} nvmlGridLicensableFeatures_t;

typedef union {
	double dVal;
	int siVal;
	unsigned int uiVal;
	unsigned long ulVal;
	unsigned long long ullVal;
	signed long long sllVal;
	unsigned short usVal;
} nvmlValue_t;

typedef struct {
	unsigned long long timeStamp;
	nvmlValue_t sampleValue;
} nvmlSample_t;

typedef struct {
	unsigned int fieldId; /* NVML_FI_* */
	unsigned int scopeId;
	long long timestamp;
	long long latencyUsec;
	nvmlValueType_t valueType;
	nvmlReturn_t nvmlReturn;
	nvmlValue_t value;
} nvmlFieldValue_t;

/* Fields of nvmlDeviceGetFieldValues that clients here ask for. */
enum {
	NVML_FI_DEV_ECC_CURRENT = 1,
	NVML_FI_DEV_ECC_PENDING = 2,
	NVML_FI_DEV_MEMORY_TEMP = 82,
	NVML_FI_DEV_TOTAL_ENERGY_CONSUMPTION = 83,
	NVML_FI_DEV_NVLINK_LINK_COUNT = 91,
	NVML_FI_DEV_PCIE_REPLAY_COUNTER = 94,
	NVML_FI_DEV_PCIE_REPLAY_ROLLOVER_COUNTER = 95,
	NVML_FI_DEV_REMAPPED_COR = 142,
	NVML_FI_DEV_REMAPPED_UNC = 143,
	NVML_FI_DEV_REMAPPED_PENDING = 144,
	NVML_FI_DEV_REMAPPED_FAILURE = 145,
	NVML_FI_DEV_C2C_LINK_COUNT = 170,
	NVML_FI_DEV_IS_RESETLESS_MIG_SUPPORTED = 184,
	NVML_FI_DEV_POWER_AVERAGE = 185,
	NVML_FI_DEV_POWER_INSTANT = 186,
	NVML_FI_DEV_POWER_MIN_LIMIT = 187,
	NVML_FI_DEV_POWER_MAX_LIMIT = 188,
	NVML_FI_DEV_POWER_DEFAULT_LIMIT = 189,
	NVML_FI_DEV_POWER_CURRENT_LIMIT = 190,
	NVML_FI_DEV_ENERGY = 191,
	NVML_FI_DEV_POWER_REQUESTED_LIMIT = 192,
	NVML_FI_DEV_TEMPERATURE_SHUTDOWN_TLIMIT = 193,
	NVML_FI_DEV_TEMPERATURE_SLOWDOWN_TLIMIT = 194,
	NVML_FI_DEV_TEMPERATURE_MEM_MAX_TLIMIT = 195,
	NVML_FI_DEV_TEMPERATURE_GPU_MAX_TLIMIT = 196,
	NVML_FI_DEV_IS_MIG_MODE_INDEPENDENT_MIG_QUERY_CAPABLE = 199,
	NVML_FI_DEV_RESET_STATUS = 226,
	NVML_FI_DEV_DRAIN_AND_RESET_STATUS = 227,
	NVML_FI_DEV_GET_GPU_RECOVERY_ACTION = 230,
};

typedef struct {
	nvmlDevice_t device;
	unsigned long long eventType;
	unsigned long long eventData;
	unsigned int gpuInstanceId;
	unsigned int computeInstanceId;
} nvmlEventData_t;

/* GPU performance monitoring (GPM): figures from two samples of a GPU's counters. */
typedef struct {
	unsigned int version;
	unsigned int isSupportedDevice;
} nvmlGpmSupport_t;
#define NVML_GPM_SUPPORT_VERSION 1u

typedef struct {
	unsigned int metricId;
	nvmlReturn_t nvmlReturn; /* the result for this figure */
	double value;
	struct {
		char *shortName;
		char *longName;
		char *unit;
	} metricInfo;
} nvmlGpmMetric_t;

/* The length of metrics[] grew from header to header; NVML reads and writes numMetrics of them. */
#define NVML_GPM_METRIC_MAX 98
typedef struct {
	unsigned int version;
	unsigned int numMetrics;
	nvmlGpmSample_t sample1; /* the older one */
	nvmlGpmSample_t sample2;
	nvmlGpmMetric_t metrics[NVML_GPM_METRIC_MAX];
} nvmlGpmMetricsGet_t;
#define NVML_GPM_METRICS_GET_VERSION 1u

NVML_ABI_SIZE(nvmlReturn_t, 4);
NVML_ABI_SIZE(nvmlMemory_t, 24);
NVML_ABI_SIZE(nvmlMemory_v2_t, 40);
NVML_ABI_SIZE(nvmlSetMemoryLimits_v1_t, 24);
NVML_ABI_SIZE(nvmlGetMemoryLimits_v1_t, 32);
NVML_ABI_SIZE(nvmlBAR1Memory_t, 24);
NVML_ABI_SIZE(nvmlUtilization_t, 8);
NVML_ABI_SIZE(nvmlProcessInfo_v1_t, 16);
NVML_ABI_SIZE(nvmlProcessInfo_v2_t, 24);
NVML_ABI_SIZE(nvmlProcessDetail_v1_t, 32);
NVML_ABI_SIZE(nvmlProcessDetailList_t, 24);
NVML_ABI_SIZE(nvmlProcessUtilizationSample_t, 32);
NVML_ABI_SIZE(nvmlProcessUtilizationInfo_v1_t, 40);
NVML_ABI_SIZE(nvmlProcessesUtilizationInfo_t, 24);
NVML_ABI_SIZE(nvmlAccountingStats_t, 56);
NVML_ABI_SIZE(nvmlPciInfo_t, 68);
NVML_ABI_SIZE(nvmlPciInfo_v2_t, 52);
NVML_ABI_SIZE(nvmlPciInfoExt_t, 64);
NVML_ABI_SIZE(nvmlEccErrorCounts_t, 32);
NVML_ABI_SIZE(nvmlEccSramErrorStatus_t, 104);
NVML_ABI_SIZE(nvmlRowRemapperHistogramValues_t, 20);
NVML_ABI_SIZE(nvmlBridgeChipHierarchy_t, 1028);
NVML_ABI_SIZE(nvmlFBCStats_t, 12);
NVML_ABI_SIZE(nvmlEncoderSessionInfo_t, 32);
NVML_ABI_SIZE(nvmlFBCSessionInfo_t, 48);
NVML_ABI_SIZE(nvmlGpuFabricInfo_t, 28);
NVML_ABI_SIZE(nvmlGpuFabricInfo_v2_t, 36);
NVML_ABI_SIZE(nvmlGridLicensableFeature_t, 284);
NVML_ABI_SIZE(nvmlGridLicensableFeatures_t, 860);
NVML_ABI_SIZE(nvmlSample_t, 16);
NVML_ABI_SIZE(nvmlFieldValue_t, 40);
NVML_ABI_SIZE(nvmlEventData_t, 32);
NVML_ABI_SIZE(nvmlGpmSupport_t, 8);
NVML_ABI_SIZE(nvmlGpmMetric_t, 40);
_Static_assert(offsetof(nvmlGpmMetricsGet_t, metrics) == 24, "nvmlGpmMetricsGet_t.metrics");
_Static_assert(NVML_MEMORY_V2 == 0x02000028, "the version word that clients send");
_Static_assert(offsetof(nvmlPciInfo_t, busId) == 36, "nvmlPciInfo_t.busId");
_Static_assert(offsetof(nvmlFieldValue_t, value) == 32, "nvmlFieldValue_t.value");
