"""A context on each CUDA device, then what NVML says is used of each MIG device, and by this process: {UUID: [bytes, bytes]}."""
from cuda import *

nvml = c.CDLL("libnvidia-ml.so.1")
count, seen = c.c_int(), {}
assert cuda.cuInit(0) == cuda.cuDeviceGetCount(c.byref(count)) == 0
for i in range(count.value):
    assert cuda.cuCtxCreate_v2(c.byref(c.c_void_p()), 0, i) == 0
assert nvml.nvmlInit_v2() == nvml.nvmlDeviceGetCount_v2(c.byref(count)) == 0
for i in range(count.value):
    gpu, mig, index = c.c_void_p(), c.c_void_p(), 0
    assert nvml.nvmlDeviceGetHandleByIndex_v2(i, c.byref(gpu)) == 0
    while nvml.nvmlDeviceGetMigDeviceHandleByIndex(gpu, index, c.byref(mig)) == 0:
        uuid, sizes = c.create_string_buffer(96), (c.c_ulonglong * 3)()
        listed, entries = c.c_uint(16), (c.c_ulonglong * 64)()
        assert nvml.nvmlDeviceGetUUID(mig, uuid, 96) == nvml.nvmlDeviceGetMemoryInfo(mig, sizes) == 0
        assert nvml.nvmlDeviceGetComputeRunningProcesses_v3(mig, c.byref(listed), entries) == 0
        seen[uuid.value.decode()] = [sizes[2], sum(entries[3 * k + 1] for k in range(listed.value))]
        index += 1
print(json.dumps(seen))
