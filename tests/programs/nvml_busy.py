"""How busy NVML says that GPU 0 is, in percent; and that its samples say the same."""

import ctypes as c
nvml = c.CDLL("libnvidia-ml.so.1")
device, rates = c.c_void_p(), (c.c_uint * 2)()
assert nvml.nvmlInit_v2() == 0
assert nvml.nvmlDeviceGetHandleByIndex_v2(0, c.byref(device)) == 0
assert nvml.nvmlDeviceGetUtilizationRates(device, rates) == 0
class Sample(c.Structure): _fields_ = [("at", c.c_ulonglong), ("value", c.c_ulonglong)]
samples, count, kind = (Sample * 256)(), c.c_uint(256), c.c_int()
assert nvml.nvmlDeviceGetSamples(device, 1, c.c_ulonglong(0), c.byref(kind), c.byref(count), samples) == 0
assert all(s.value & 0xffffffff <= max(rates[0], 1) + 20 for s in samples[:count.value])
print(rates[0])
