/* MIG in NVML's public ABI; see nvml_abi.h. */
#pragma once

#include "base/nvml_enums.h"

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
