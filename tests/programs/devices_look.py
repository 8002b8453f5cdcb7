"""Devices as CUDA sees them; on each one allocation of (index + 1) * 64 MiB, and what NVML then says is used."""
from cuda import *

nvml = c.CDLL("libnvidia-ml.so.1")

before = dict(os.environ)
init = cuda.cuInit(0)
count = c.c_int(0)
cuda.cuDeviceGetCount(c.byref(count))
devices, used = [], {}
for i in range(count.value):
    device, uuid, total, context = c.c_int(), c.create_string_buffer(16), c.c_size_t(), c.c_void_p()
    assert cuda.cuDeviceGet(c.byref(device), i) == 0
    assert cuda.cuDeviceGetUuid_v2(uuid, device) == 0
    assert cuda.cuDeviceTotalMem_v2(c.byref(total), device) == 0
    assert cuda.cuCtxCreate_v2(c.byref(context), 0, device) == 0
    free = [c.c_size_t() for _ in "ab"]
    cuda.cuMemGetInfo_v2(c.byref(free[0]), c.byref(total))
    assert cuda.cuMemAlloc_v2(c.byref(c.c_void_p()), c.c_size_t((i + 1) * 64 << 20)) == 0
    cuda.cuMemGetInfo_v2(c.byref(free[1]), c.byref(total))
    h = uuid.raw.hex()
    devices.append({"uuid": "GPU-" + "-".join((h[:8], h[8:12], h[12:16], h[16:20], h[20:])),
                    "total": total.value, "taken": free[0].value - free[1].value})
assert nvml.nvmlInit_v2() == 0
nvml.nvmlDeviceGetCount_v2(c.byref(count))
for i in range(count.value):
    device, name, memory = c.c_void_p(), c.create_string_buffer(96), (c.c_ulonglong * 3)()
    assert nvml.nvmlDeviceGetHandleByIndex_v2(i, c.byref(device)) == 0
    nvml.nvmlDeviceGetUUID(device, name, 96)
    nvml.nvmlDeviceGetMemoryInfo(device, memory)
    used[name.value.decode()] = memory[2]
libc = c.CDLL(None)
libc.getenv.restype = c.c_char_p
now = libc.getenv(b"CUDA_VISIBLE_DEVICES")
assert (now.decode() if now is not None else None) == before.get("CUDA_VISIBLE_DEVICES")
print(json.dumps({"init": init, "devices": devices, "used": used}))
