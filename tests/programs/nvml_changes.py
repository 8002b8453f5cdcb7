"""Calls functions of NVML that change a GPU, by the names it is given; prints what each answered before NVML was initialised and
after, of those that the driver has."""
import ctypes as c
import json
import sys

nvml = c.CDLL("libnvidia-ml.so.1")
names = [name for name in sys.argv[1:] if hasattr(nvml, name)]
device, more = c.c_void_p(), [c.byref(c.create_string_buffer(256)) for _ in range(3)]


def answers():
    return {name: getattr(nvml, name)(device, *more) for name in names}


before = answers()
assert nvml.nvmlInit_v2() == 0 and nvml.nvmlDeviceGetHandleByIndex_v2(0, c.byref(device)) == 0
print(json.dumps([before, answers()]))
