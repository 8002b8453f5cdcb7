/* The part of the NVML ABI that carve, its front and the simulated driver use, declared from NVML's
 * public API reference: names, numbers and layouts as of API 13, which older drivers share. Names
 * are NVML's own, so that code reads like any NVML client's. Unlike in the vendor's header, no name
 * is a macro for a newer one: nvmlDeviceGetCount is the first version's symbol and
 * nvmlDeviceGetCount_v2 the second's.
 *
 * The functions stand in base/nvml_functions.h.
 *
 * Units, unless said otherwise: memory in bytes, MHz, milliwatts, degrees Celsius, microseconds for
 * time stamps and sampling periods, per cent for utilizations. */
#pragma once

#include <stddef.h>

typedef enum {
	NVML_SUCCESS = 0,
	NVML_ERROR_UNINITIALIZED = 1,
	NVML_ERROR_INVALID_ARGUMENT = 2,
	NVML_ERROR_NOT_SUPPORTED = 3,
	NVML_ERROR_NO_PERMISSION = 4,
	NVML_ERROR_ALREADY_INITIALIZED = 5,
	NVML_ERROR_NOT_FOUND = 6,
	NVML_ERROR_INSUFFICIENT_SIZE = 7,
	NVML_ERROR_INSUFFICIENT_POWER = 8,
	NVML_ERROR_DRIVER_NOT_LOADED = 9,
	NVML_ERROR_TIMEOUT = 10,
	NVML_ERROR_IRQ_ISSUE = 11,
	NVML_ERROR_LIBRARY_NOT_FOUND = 12,
	NVML_ERROR_FUNCTION_NOT_FOUND = 13,
	NVML_ERROR_CORRUPTED_INFOROM = 14,
	NVML_ERROR_GPU_IS_LOST = 15,
	NVML_ERROR_RESET_REQUIRED = 16,
	NVML_ERROR_OPERATING_SYSTEM = 17,
	NVML_ERROR_LIB_RM_VERSION_MISMATCH = 18,
	NVML_ERROR_IN_USE = 19,
	NVML_ERROR_MEMORY = 20,
	NVML_ERROR_NO_DATA = 21,
	NVML_ERROR_VGPU_ECC_NOT_SUPPORTED = 22,
	NVML_ERROR_INSUFFICIENT_RESOURCES = 23,
	NVML_ERROR_FREQ_NOT_SUPPORTED = 24,
	NVML_ERROR_ARGUMENT_VERSION_MISMATCH = 25,
	NVML_ERROR_DEPRECATED = 26,
	NVML_ERROR_NOT_READY = 27,
	NVML_ERROR_GPU_NOT_FOUND = 28,
	NVML_ERROR_INVALID_STATE = 29,
	NVML_ERROR_RESET_TYPE_NOT_SUPPORTED = 30,
	NVML_ERROR_UNKNOWN = 999,
} nvmlReturn_t;

/* Opaque; a MIG device's handle has the same type as a GPU's. Valid until the last nvmlShutdown. */
typedef struct nvmlDevice_st *nvmlDevice_t;
typedef struct nvmlGpuInstance_st *nvmlGpuInstance_t;
typedef struct nvmlComputeInstance_st *nvmlComputeInstance_t;
typedef struct nvmlEventSet_st *nvmlEventSet_t;
/* Memory of NVML's, of nvmlGpmSampleAlloc; valid until nvmlGpmSampleFree. */
typedef struct nvmlGpmSample_st *nvmlGpmSample_t;

/* A versioned structure's first word: its size and, in the top byte, its version. */
#define NVML_STRUCT_VERSION_OF(type, number) ((unsigned int)(sizeof(type) | ((number) << 24U)))

/* A 64-bit figure that the driver cannot give (process memory on some systems). */
#define NVML_VALUE_NOT_AVAILABLE (-1)
/* Instance numbers of a process or event outside MIG. */
#define NVML_NO_INSTANCE 0xFFFFFFFFu

/* Buffer sizes, in bytes with the NUL. */
enum {
	NVML_DEVICE_PCI_BUS_ID_BUFFER_SIZE = 32,
	NVML_DEVICE_PCI_BUS_ID_BUFFER_V2_SIZE = 16,
	NVML_DEVICE_INFOROM_VERSION_BUFFER_SIZE = 16,
	NVML_DEVICE_UUID_BUFFER_SIZE = 80,
	NVML_DEVICE_UUID_V2_BUFFER_SIZE = 96,
	NVML_DEVICE_PART_NUMBER_BUFFER_SIZE = 80,
	NVML_SYSTEM_DRIVER_VERSION_BUFFER_SIZE = 80,
	NVML_SYSTEM_NVML_VERSION_BUFFER_SIZE = 80,
	NVML_DEVICE_NAME_BUFFER_SIZE = 64,
	NVML_DEVICE_NAME_V2_BUFFER_SIZE = 96,
	NVML_DEVICE_SERIAL_BUFFER_SIZE = 30,
	NVML_DEVICE_VBIOS_VERSION_BUFFER_SIZE = 32,
	NVML_GSP_FIRMWARE_VERSION_BUF_SIZE = 64,
	NVML_GPU_FABRIC_UUID_LEN = 16,
	NVML_MAX_PHYSICAL_BRIDGE = 128,
	NVML_GRID_LICENSE_BUFFER_SIZE = 128,
	NVML_GRID_LICENSE_FEATURE_MAX_COUNT = 3,
};

/* nvmlInitWithFlags */
enum {
	NVML_INIT_FLAG_NO_GPUS = 1,
	NVML_INIT_FLAG_NO_ATTACH = 2,
};

typedef enum {
	NVML_FEATURE_DISABLED = 0,
	NVML_FEATURE_ENABLED = 1,
} nvmlEnableState_t;

typedef enum {
	NVML_BRAND_UNKNOWN = 0,
	NVML_BRAND_QUADRO = 1,
	NVML_BRAND_TESLA = 2,
	NVML_BRAND_NVS = 3,
	NVML_BRAND_GRID = 4,
	NVML_BRAND_GEFORCE = 5,
	NVML_BRAND_TITAN = 6,
	NVML_BRAND_QUADRO_RTX = 12,
	NVML_BRAND_NVIDIA_RTX = 13,
	NVML_BRAND_NVIDIA = 14,
	NVML_BRAND_GEFORCE_RTX = 15,
} nvmlBrandType_t;

/* nvmlDeviceGetArchitecture */
typedef unsigned int nvmlDeviceArchitecture_t;
enum {
	NVML_DEVICE_ARCH_VOLTA = 5,
	NVML_DEVICE_ARCH_TURING = 6,
	NVML_DEVICE_ARCH_AMPERE = 7,
	NVML_DEVICE_ARCH_ADA = 8,
	NVML_DEVICE_ARCH_HOPPER = 9,
	NVML_DEVICE_ARCH_BLACKWELL = 10,
};

typedef enum {
	NVML_COMPUTEMODE_DEFAULT = 0,
	NVML_COMPUTEMODE_EXCLUSIVE_THREAD = 1,
	NVML_COMPUTEMODE_PROHIBITED = 2,
	NVML_COMPUTEMODE_EXCLUSIVE_PROCESS = 3,
	NVML_COMPUTEMODE_COUNT,
} nvmlComputeMode_t;

typedef enum {
	NVML_CLOCK_GRAPHICS = 0,
	NVML_CLOCK_SM = 1,
	NVML_CLOCK_MEM = 2,
	NVML_CLOCK_VIDEO = 3,
	NVML_CLOCK_COUNT,
} nvmlClockType_t;

typedef enum {
	NVML_CLOCK_ID_CURRENT = 0,
	NVML_CLOCK_ID_APP_CLOCK_TARGET = 1,
	NVML_CLOCK_ID_APP_CLOCK_DEFAULT = 2,
	NVML_CLOCK_ID_CUSTOMER_BOOST_MAX = 3,
	NVML_CLOCK_ID_COUNT,
} nvmlClockId_t;

typedef enum {
	NVML_TEMPERATURE_GPU = 0,
	NVML_TEMPERATURE_COUNT,
} nvmlTemperatureSensors_t;

typedef struct {
	unsigned int version; /* NVML_TEMPERATURE_V1 */
	nvmlTemperatureSensors_t sensorType;
	int temperature; /* degrees Celsius */
} nvmlTemperature_v1_t;
#define NVML_TEMPERATURE_V1 NVML_STRUCT_VERSION_OF(nvmlTemperature_v1_t, 1)

typedef enum {
	NVML_TEMPERATURE_THRESHOLD_SHUTDOWN = 0,
	NVML_TEMPERATURE_THRESHOLD_SLOWDOWN = 1,
	NVML_TEMPERATURE_THRESHOLD_MEM_MAX = 2,
	NVML_TEMPERATURE_THRESHOLD_GPU_MAX = 3,
	NVML_TEMPERATURE_THRESHOLD_ACOUSTIC_MIN = 4,
	NVML_TEMPERATURE_THRESHOLD_ACOUSTIC_CURR = 5,
	NVML_TEMPERATURE_THRESHOLD_ACOUSTIC_MAX = 6,
	NVML_TEMPERATURE_THRESHOLD_GPS_CURR = 7,
	NVML_TEMPERATURE_THRESHOLD_COUNT,
} nvmlTemperatureThresholds_t;

typedef enum {
	NVML_PSTATE_0 = 0,
	NVML_PSTATE_8 = 8,
	NVML_PSTATE_15 = 15,
	NVML_PSTATE_UNKNOWN = 32,
} nvmlPstates_t;

typedef enum {
	NVML_MEMORY_ERROR_TYPE_CORRECTED = 0,
	NVML_MEMORY_ERROR_TYPE_UNCORRECTED = 1,
	NVML_MEMORY_ERROR_TYPE_COUNT,
} nvmlMemoryErrorType_t;

typedef enum {
	NVML_VOLATILE_ECC = 0,
	NVML_AGGREGATE_ECC = 1,
	NVML_ECC_COUNTER_TYPE_COUNT,
} nvmlEccCounterType_t;

typedef enum {
	NVML_MEMORY_LOCATION_L1_CACHE = 0,
	NVML_MEMORY_LOCATION_L2_CACHE = 1,
	NVML_MEMORY_LOCATION_DRAM = 2,
	NVML_MEMORY_LOCATION_REGISTER_FILE = 3,
	NVML_MEMORY_LOCATION_TEXTURE_MEMORY = 4,
	NVML_MEMORY_LOCATION_TEXTURE_SHM = 5,
	NVML_MEMORY_LOCATION_CBU = 6,
	NVML_MEMORY_LOCATION_SRAM = 7,
	NVML_MEMORY_LOCATION_COUNT,
} nvmlMemoryLocation_t;

typedef enum {
	NVML_PAGE_RETIREMENT_CAUSE_MULTIPLE_SINGLE_BIT_ECC_ERRORS = 0,
	NVML_PAGE_RETIREMENT_CAUSE_DOUBLE_BIT_ECC_ERROR = 1,
	NVML_PAGE_RETIREMENT_CAUSE_COUNT,
} nvmlPageRetirementCause_t;

typedef enum {
	NVML_PCIE_UTIL_TX_BYTES = 0,
	NVML_PCIE_UTIL_RX_BYTES = 1,
	NVML_PCIE_UTIL_COUNT,
} nvmlPcieUtilCounter_t;

typedef enum {
	NVML_INFOROM_OEM = 0,
	NVML_INFOROM_ECC = 1,
	NVML_INFOROM_POWER = 2,
	NVML_INFOROM_DEN = 3,
	NVML_INFOROM_COUNT,
} nvmlInforomObject_t;

typedef enum {
	NVML_TOPOLOGY_INTERNAL = 0,
	NVML_TOPOLOGY_SINGLE = 10,
	NVML_TOPOLOGY_MULTIPLE = 20,
	NVML_TOPOLOGY_HOSTBRIDGE = 30,
	NVML_TOPOLOGY_NODE = 40,
	NVML_TOPOLOGY_SYSTEM = 50,
} nvmlGpuTopologyLevel_t;

typedef enum {
	NVML_P2P_CAPS_INDEX_READ = 0,
	NVML_P2P_CAPS_INDEX_WRITE = 1,
	NVML_P2P_CAPS_INDEX_NVLINK = 2,
	NVML_P2P_CAPS_INDEX_ATOMICS = 3,
	NVML_P2P_CAPS_INDEX_PCI = 4,
	NVML_P2P_CAPS_INDEX_UNKNOWN = 5,
} nvmlGpuP2PCapsIndex_t;

typedef enum {
	NVML_P2P_STATUS_OK = 0,
	NVML_P2P_STATUS_NOT_SUPPORTED = 5,
	NVML_P2P_STATUS_UNKNOWN = 6,
} nvmlGpuP2PStatus_t;

typedef enum {
	NVML_GPU_VIRTUALIZATION_MODE_NONE = 0,
	NVML_GPU_VIRTUALIZATION_MODE_PASSTHROUGH = 1,
	NVML_GPU_VIRTUALIZATION_MODE_VGPU = 2,
} nvmlGpuVirtualizationMode_t;

typedef enum {
	NVML_RESTRICTED_API_SET_APPLICATION_CLOCKS = 0,
	NVML_RESTRICTED_API_SET_AUTO_BOOSTED_CLOCKS = 1,
	NVML_RESTRICTED_API_COUNT,
} nvmlRestrictedAPI_t;

enum {
	NVML_BUS_TYPE_PCIE = 2,
	NVML_POWER_SOURCE_AC = 0,
	NVML_POWER_SCOPE_GPU = 0,
	NVML_AFFINITY_SCOPE_NODE = 0,
	NVML_AFFINITY_SCOPE_SOCKET = 1,
	NVML_GPU_FABRIC_STATE_NOT_SUPPORTED = 0,
};

/* Bits of nvmlDeviceGetCurrentClocksThrottleReasons (EventReasons is the newer name). */
#define NVML_CLOCKS_EVENT_REASON_NONE 0x0000ULL
#define NVML_CLOCKS_EVENT_REASON_GPU_IDLE 0x0001ULL
#define NVML_CLOCKS_EVENT_REASON_SW_POWER_CAP 0x0004ULL
#define NVML_CLOCKS_EVENT_REASON_ALL 0x01ffULL

/* Bits of nvmlDeviceRegisterEvents. */
#define NVML_EVENT_TYPE_DOUBLE_BIT_ECC_ERROR 0x0002ULL
#define NVML_EVENT_TYPE_XID_CRITICAL_ERROR 0x0008ULL
#define NVML_EVENT_TYPE_MIG_CONFIG_CHANGE 0x0100ULL

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

/* Of a cgroup, by the path of its directory; none: soft 0, hard NVML_DEVICE_MEMORY_LIMIT_MAX. */
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

typedef enum {
	NVML_VALUE_TYPE_DOUBLE = 0,
	NVML_VALUE_TYPE_UNSIGNED_INT = 1,
	NVML_VALUE_TYPE_UNSIGNED_LONG = 2,
	NVML_VALUE_TYPE_UNSIGNED_LONG_LONG = 3,
	NVML_VALUE_TYPE_SIGNED_LONG_LONG = 4,
	NVML_VALUE_TYPE_SIGNED_INT = 5,
} nvmlValueType_t;

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

typedef enum {
	NVML_TOTAL_POWER_SAMPLES = 0,
	NVML_GPU_UTILIZATION_SAMPLES = 1,
	NVML_MEMORY_UTILIZATION_SAMPLES = 2,
	NVML_ENC_UTILIZATION_SAMPLES = 3,
	NVML_DEC_UTILIZATION_SAMPLES = 4,
	NVML_PROCESSOR_CLK_SAMPLES = 5,
	NVML_MEMORY_CLK_SAMPLES = 6,
} nvmlSamplingType_t;

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

/* MIG. The profile *enum* (NVML_GPU_INSTANCE_PROFILE_*) asks for a profile's information; every
 * other call takes the profile *id* found there. */
enum {
	NVML_DEVICE_MIG_DISABLE = 0,
	NVML_DEVICE_MIG_ENABLE = 1,
};

enum {
	NVML_GPU_INSTANCE_PROFILE_1_SLICE = 0x00,
	NVML_GPU_INSTANCE_PROFILE_2_SLICE = 0x01,
	NVML_GPU_INSTANCE_PROFILE_3_SLICE = 0x02,
	NVML_GPU_INSTANCE_PROFILE_4_SLICE = 0x03,
	NVML_GPU_INSTANCE_PROFILE_7_SLICE = 0x04,
	NVML_GPU_INSTANCE_PROFILE_8_SLICE = 0x05,
	NVML_GPU_INSTANCE_PROFILE_6_SLICE = 0x06,
	NVML_GPU_INSTANCE_PROFILE_1_SLICE_REV1 = 0x07,
	NVML_GPU_INSTANCE_PROFILE_2_SLICE_REV1 = 0x08,
	NVML_GPU_INSTANCE_PROFILE_1_SLICE_REV2 = 0x09,
	NVML_GPU_INSTANCE_PROFILE_1_SLICE_GFX = 0x0a,
	NVML_GPU_INSTANCE_PROFILE_2_SLICE_GFX = 0x0b,
	NVML_GPU_INSTANCE_PROFILE_4_SLICE_GFX = 0x0c,
	NVML_GPU_INSTANCE_PROFILE_1_SLICE_NO_ME = 0x0d,
	NVML_GPU_INSTANCE_PROFILE_2_SLICE_NO_ME = 0x0e,
	NVML_GPU_INSTANCE_PROFILE_1_SLICE_ALL_ME = 0x0f,
	NVML_GPU_INSTANCE_PROFILE_2_SLICE_ALL_ME = 0x10,
	NVML_GPU_INSTANCE_PROFILE_3_SLICE_GFX = 0x11,
	NVML_GPU_INSTANCE_PROFILE_COUNT = 0x12,
	NVML_GPU_INSTANCE_PROFILE_CAPS_P2P = 0x1, /* capabilities of profile info v3 */
	NVML_GPU_INSTANCE_PROFILE_CAPS_GFX = 0x2,
};

enum {
	NVML_COMPUTE_INSTANCE_PROFILE_1_SLICE = 0,
	NVML_COMPUTE_INSTANCE_PROFILE_2_SLICE = 1,
	NVML_COMPUTE_INSTANCE_PROFILE_3_SLICE = 2,
	NVML_COMPUTE_INSTANCE_PROFILE_4_SLICE = 3,
	NVML_COMPUTE_INSTANCE_PROFILE_7_SLICE = 4,
	NVML_COMPUTE_INSTANCE_PROFILE_8_SLICE = 5,
	NVML_COMPUTE_INSTANCE_PROFILE_6_SLICE = 6,
	NVML_COMPUTE_INSTANCE_PROFILE_1_SLICE_REV1 = 7,
	NVML_COMPUTE_INSTANCE_PROFILE_COUNT = 8,
	NVML_COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED = 0,
	NVML_COMPUTE_INSTANCE_ENGINE_PROFILE_COUNT = 1,
};

typedef struct {
	unsigned int start; /* memory units of the GPU; compute slices of the GPU instance */
	unsigned int size;
} nvmlGpuInstancePlacement_t;
typedef nvmlGpuInstancePlacement_t nvmlComputeInstancePlacement_t;

typedef struct {
	unsigned int id;
	unsigned int isP2pSupported;
	unsigned int sliceCount;
	unsigned int instanceCount;
	unsigned int multiprocessorCount;
	unsigned int copyEngineCount;
	unsigned int decoderCount;
	unsigned int encoderCount;
	unsigned int jpegCount;
	unsigned int ofaCount;
	unsigned long long memorySizeMB; /* MiB */
} nvmlGpuInstanceProfileInfo_t;

typedef struct {
	unsigned int version; /* NVML_GPU_INSTANCE_PROFILE_INFO_V2 */
	unsigned int id;
	unsigned int isP2pSupported;
	unsigned int sliceCount;
	unsigned int instanceCount;
	unsigned int multiprocessorCount;
	unsigned int copyEngineCount;
	unsigned int decoderCount;
	unsigned int encoderCount;
	unsigned int jpegCount;
	unsigned int ofaCount;
	unsigned long long memorySizeMB;
	char name[NVML_DEVICE_NAME_V2_BUFFER_SIZE]; /* "MIG 1g.10gb" */
} nvmlGpuInstanceProfileInfo_v2_t;
#define NVML_GPU_INSTANCE_PROFILE_INFO_V2 NVML_STRUCT_VERSION_OF(nvmlGpuInstanceProfileInfo_v2_t, 2)

typedef struct {
	unsigned int version; /* NVML_GPU_INSTANCE_PROFILE_INFO_V3 */
	unsigned int id;
	unsigned int sliceCount;
	unsigned int instanceCount;
	unsigned int multiprocessorCount;
	unsigned int copyEngineCount;
	unsigned int decoderCount;
	unsigned int encoderCount;
	unsigned int jpegCount;
	unsigned int ofaCount;
	unsigned long long memorySizeMB;
	char name[NVML_DEVICE_NAME_V2_BUFFER_SIZE];
	unsigned int capabilities; /* NVML_GPU_INSTANCE_PROFILE_CAPS_* */
} nvmlGpuInstanceProfileInfo_v3_t;
#define NVML_GPU_INSTANCE_PROFILE_INFO_V3 NVML_STRUCT_VERSION_OF(nvmlGpuInstanceProfileInfo_v3_t, 3)

typedef struct {
	nvmlDevice_t device;
	unsigned int id;
	unsigned int profileId;
	nvmlGpuInstancePlacement_t placement;
} nvmlGpuInstanceInfo_t;

typedef struct {
	unsigned int id;
	unsigned int sliceCount;
	unsigned int instanceCount;
	unsigned int multiprocessorCount;
	unsigned int sharedCopyEngineCount;
	unsigned int sharedDecoderCount;
	unsigned int sharedEncoderCount;
	unsigned int sharedJpegCount;
	unsigned int sharedOfaCount;
} nvmlComputeInstanceProfileInfo_t;

typedef struct {
	unsigned int version; /* NVML_COMPUTE_INSTANCE_PROFILE_INFO_V2 */
	unsigned int id;
	unsigned int sliceCount;
	unsigned int instanceCount;
	unsigned int multiprocessorCount;
	unsigned int sharedCopyEngineCount;
	unsigned int sharedDecoderCount;
	unsigned int sharedEncoderCount;
	unsigned int sharedJpegCount;
	unsigned int sharedOfaCount;
	char name[NVML_DEVICE_NAME_V2_BUFFER_SIZE];
} nvmlComputeInstanceProfileInfo_v2_t;
#define NVML_COMPUTE_INSTANCE_PROFILE_INFO_V2 \
	NVML_STRUCT_VERSION_OF(nvmlComputeInstanceProfileInfo_v2_t, 2)

typedef struct {
	unsigned int version; /* NVML_COMPUTE_INSTANCE_PROFILE_INFO_V3 */
	unsigned int id;
	unsigned int sliceCount;
	unsigned int instanceCount;
	unsigned int multiprocessorCount;
	unsigned int sharedCopyEngineCount;
	unsigned int sharedDecoderCount;
	unsigned int sharedEncoderCount;
	unsigned int sharedJpegCount;
	unsigned int sharedOfaCount;
	char name[NVML_DEVICE_NAME_V2_BUFFER_SIZE];
	unsigned int capabilities;
} nvmlComputeInstanceProfileInfo_v3_t;
#define NVML_COMPUTE_INSTANCE_PROFILE_INFO_V3 \
	NVML_STRUCT_VERSION_OF(nvmlComputeInstanceProfileInfo_v3_t, 3)

/* nvmlComputeInstanceGetInfo_v2 gives the MIG device's handle in `device`, the first version the
 * GPU's. */
typedef struct {
	nvmlDevice_t device;
	nvmlGpuInstance_t gpuInstance;
	unsigned int id;
	unsigned int profileId;
	nvmlComputeInstancePlacement_t placement;
} nvmlComputeInstanceInfo_t;

typedef struct {
	unsigned int multiprocessorCount;
	unsigned int sharedCopyEngineCount;
	unsigned int sharedDecoderCount;
	unsigned int sharedEncoderCount;
	unsigned int sharedJpegCount;
	unsigned int sharedOfaCount;
	unsigned int gpuInstanceSliceCount;
	unsigned int computeInstanceSliceCount;
	unsigned long long memorySizeMB;
} nvmlDeviceAttributes_t;

/* GPU performance monitoring (GPM): figures from two samples of a GPU's counters. */
typedef struct {
	unsigned int version;
	unsigned int isSupportedDevice;
} nvmlGpmSupport_t;
#define NVML_GPM_SUPPORT_VERSION 1u

typedef enum {
	NVML_GPM_METRIC_GRAPHICS_UTIL = 1, /* per cent of the time that anything computed or drew */
	NVML_GPM_METRIC_SM_UTIL = 2,
} nvmlGpmMetricId_t;

typedef struct {
	unsigned int metricId;
	nvmlReturn_t nvmlReturn; /* of this figure */
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

#define NVML_ABI_SIZE(type, size) _Static_assert(sizeof(type) == (size), #type)
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
NVML_ABI_SIZE(nvmlGpuInstancePlacement_t, 8);
NVML_ABI_SIZE(nvmlGpuInstanceProfileInfo_t, 48);
NVML_ABI_SIZE(nvmlGpuInstanceProfileInfo_v2_t, 152);
NVML_ABI_SIZE(nvmlGpuInstanceProfileInfo_v3_t, 152);
NVML_ABI_SIZE(nvmlGpuInstanceInfo_t, 24);
NVML_ABI_SIZE(nvmlComputeInstanceProfileInfo_t, 36);
NVML_ABI_SIZE(nvmlComputeInstanceProfileInfo_v2_t, 136);
NVML_ABI_SIZE(nvmlComputeInstanceProfileInfo_v3_t, 140);
NVML_ABI_SIZE(nvmlComputeInstanceInfo_t, 32);
NVML_ABI_SIZE(nvmlDeviceAttributes_t, 40);
NVML_ABI_SIZE(nvmlGpmSupport_t, 8);
NVML_ABI_SIZE(nvmlGpmMetric_t, 40);
_Static_assert(offsetof(nvmlGpmMetricsGet_t, metrics) == 24, "nvmlGpmMetricsGet_t.metrics");
_Static_assert(NVML_MEMORY_V2 == 0x02000028, "the version word that clients send");
_Static_assert(offsetof(nvmlPciInfo_t, busId) == 36, "nvmlPciInfo_t.busId");
_Static_assert(offsetof(nvmlFieldValue_t, value) == 32, "nvmlFieldValue_t.value");
