"""What CUDA sees: name, UUID and MiB of each device; with an argument, what 1 GiB takes and whether there are 4 GiB more."""

import ctypes
import json
import sys

cuda = ctypes.CDLL("libcuda.so.1")
count, out = ctypes.c_int(), []
assert cuda.cuInit(0) in (0, 100)
cuda.cuDeviceGetCount(ctypes.byref(count))
for i in range(count.value):
    name, uuid, total = ctypes.create_string_buffer(96), (ctypes.c_ubyte * 16)(), ctypes.c_size_t()
    assert cuda.cuDeviceGetName(name, 96, i) == cuda.cuDeviceGetUuid_v2(uuid, i) == 0
    assert cuda.cuDeviceTotalMem_v2(ctypes.byref(total), i) == 0
    out.append([name.value.decode(), bytes(uuid).hex(), total.value >> 20])
if len(sys.argv) > 1:
    context, free, address = ctypes.c_void_p(), ctypes.c_size_t(), ctypes.c_uint64()
    assert cuda.cuCtxCreate_v2(ctypes.byref(context), 0, 0) == 0
    assert cuda.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(1 << 30)) == 0
    assert cuda.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total)) == 0
    out.append([total.value - free.value >> 20, cuda.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(4 << 30))])
print(json.dumps(out), flush=True)
sys.stdin.read()
