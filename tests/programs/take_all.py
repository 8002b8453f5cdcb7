"""Takes GPU memory by 256 MiB until there is no more, and prints what the driver said of it before, how much was had
in MiB, and how much of managed memory after that."""
from cuda import MIB, c, cuda, json, ok, take


def info():
    free, total = c.c_size_t(), c.c_size_t()
    ok(cuda.cuMemGetInfo_v2(c.byref(free), c.byref(total)))
    return [free.value // MIB, total.value // MIB]


device, context = c.c_int(), c.c_void_p()
ok(cuda.cuInit(0))
ok(cuda.cuDeviceGet(c.byref(device), 0))
result = cuda.cuCtxCreate_v2(c.byref(context), 0, device)
before, taken, managed = (None if result else info()), 0, 0
while result == 0 and take(256 * MIB)[0] == 0:
    taken += 256
if result == 0:
    managed = cuda.cuMemAllocManaged(c.byref(c.c_uint64()), c.c_size_t(256 * MIB), 1)
print(json.dumps([result, before, taken, managed]), flush=True)
