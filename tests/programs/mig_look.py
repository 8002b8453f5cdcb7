"""What CUDA and NVML show of a MIG device. It asks for more than is free and then for all, or for the sizes in its arguments."""
from cuda import *

nvml = c.CDLL("libnvidia-ml.so.1")
def uuid(device):
    text = c.create_string_buffer(96)
    assert nvml.nvmlDeviceGetUUID(device, text, 96) == 0
    return text.value.decode()
def memory(device):
    sizes = (c.c_ulonglong * 3)()
    assert nvml.nvmlDeviceGetMemoryInfo(device, sizes) == 0
    return list(sizes)
def pids(device):
    count, entries = c.c_uint(16), (c.c_ulonglong * 64)()
    assert nvml.nvmlDeviceGetComputeRunningProcesses_v3(device, c.byref(count), entries) == 0
    return [entries[3 * i] & 0xffffffff for i in range(count.value)]
seen, count, index = {}, c.c_int(), c.c_uint()
assert cuda.cuInit(0) == cuda.cuDeviceGetCount(c.byref(count)) == 0
seen["cuda devices"] = count.value
device, raw, total, free = c.c_int(), c.create_string_buffer(16), c.c_size_t(), c.c_size_t()
assert cuda.cuDeviceGet(c.byref(device), 0) == cuda.cuDeviceGetUuid_v2(raw, device) == 0
seen["cuda uuid"] = raw.raw.hex()
assert cuda.cuDeviceTotalMem_v2(c.byref(total), device) == 0
seen["cuda total"] = total.value
assert cuda.cuCtxCreate_v2(c.byref(c.c_void_p()), 0, device) == 0
assert cuda.cuMemGetInfo_v2(c.byref(free), c.byref(total)) == 0
seen["memory"] = [free.value, total.value]
too_much, all_ = map(int, sys.argv[1:] or (free.value + 1, free.value))
seen["too much"] = cuda.cuMemAlloc_v2(c.byref(c.c_void_p()), c.c_size_t(too_much))
seen["all"] = cuda.cuMemAlloc_v2(c.byref(c.c_void_p()), c.c_size_t(all_))
gpu, mig = c.c_void_p(), c.c_void_p()
assert nvml.nvmlInit_v2() == nvml.nvmlDeviceGetCount_v2(c.byref(index)) == 0
seen["gpus"] = index.value
assert nvml.nvmlDeviceGetHandleByIndex_v2(0, c.byref(gpu)) == 0
seen["gpu uuid"] = uuid(gpu)
assert nvml.nvmlDeviceGetIndex(gpu, c.byref(index)) == 0
seen["gpu index"] = index.value
assert nvml.nvmlDeviceGetMigDeviceHandleByIndex(gpu, 0, c.byref(mig)) == 0
seen["mig uuid"] = uuid(mig)
assert nvml.nvmlDeviceGetIndex(mig, c.byref(index)) == 0
seen["mig index"] = index.value
seen["other mig"] = nvml.nvmlDeviceGetMigDeviceHandleByIndex(gpu, 1, c.byref(c.c_void_p()))
seen["neighbour"] = nvml.nvmlDeviceGetHandleByUUID(os.environ["NEIGHBOUR"].encode(), c.byref(c.c_void_p()))
seen["memory of gpu and mig"] = [memory(gpu), memory(mig)]
seen["processes are own"] = pids(mig) == [os.getpid()]
print(json.dumps(seen))
