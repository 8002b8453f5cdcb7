"""How busy GPU 0 is, and each GPU instance whose number is an argument, by NVML's counters over half a second: per cent, or
"error N" where NVML refuses. "rates" is what nvmlDeviceGetUtilizationRates says, "sm" a figure that not every driver has."""
import ctypes as c
import json
import sys
import time

nvml = c.CDLL("libnvidia-ml.so.1")


class Metric(c.Structure):
    _fields_ = [("id", c.c_uint), ("result", c.c_int), ("value", c.c_double), ("text", c.c_char_p * 3)]


class Get(c.Structure):
    _fields_ = [("version", c.c_uint), ("count", c.c_uint), ("from_", c.c_void_p), ("to", c.c_void_p), ("metrics", Metric * 2)]


def take(number):
    sample = c.c_void_p()
    assert nvml.nvmlGpmSampleAlloc(c.byref(sample)) == 0
    result = nvml.nvmlGpmSampleGet(gpu, sample) if number is None else nvml.nvmlGpmMigSampleGet(gpu, number, sample)
    return f"error {result}" if result else sample


def between(from_, to):
    if isinstance(from_, str):
        return from_
    get = Get(1, 2, from_, to, (Metric * 2)(Metric(1, -1), Metric(2, -1)))
    result = nvml.nvmlGpmMetricsGet(c.byref(get))
    return f"error {result}" if result else [round(m.value) if m.result == 0 else f"error {m.result}" for m in get.metrics]


gpu, support, rates = c.c_void_p(), (c.c_uint * 2)(1), (c.c_uint * 2)()
assert nvml.nvmlInit_v2() == nvml.nvmlDeviceGetHandleByIndex_v2(0, c.byref(gpu)) == 0
assert nvml.nvmlGpmQueryDeviceSupport(gpu, support) == 0
seen = {"support": support[1], "rates": nvml.nvmlDeviceGetUtilizationRates(gpu, rates)}
numbers = [None, *map(int, sys.argv[1:])]
before = [take(n) for n in numbers]
time.sleep(0.5)
figures = [between(a, take(n)) for a, n in zip(before, numbers)]
seen["busy"] = [f if isinstance(f, str) else f[0] for f in figures]
seen["sm"] = [f if isinstance(f, str) else f[1] for f in figures][0]
print(json.dumps(seen))
