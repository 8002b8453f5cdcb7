"""The driver's limits of cgroups, through NVML: `set PATH SOFT HARD`, `get PATH`. Prints [result, soft, hard, used]."""
import ctypes
import json
import sys


class Limits(ctypes.Structure):
    _fields_ = [("path", ctypes.c_char_p), ("soft", ctypes.c_ulonglong), ("hard", ctypes.c_ulonglong),
                ("used", ctypes.c_ulonglong)]


nvml, device = ctypes.CDLL("libnvidia-ml.so.1"), ctypes.c_void_p()
assert nvml.nvmlInit_v2() == nvml.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(device)) == 0
what, path, *numbers = sys.argv[1:]
limits = Limits(path.encode(), *map(int, numbers))
call = nvml.nvmlDeviceSetMemoryLimits_v1 if what == "set" else nvml.nvmlDeviceGetMemoryLimits_v1
print(json.dumps([call(device, ctypes.byref(limits)), limits.soft, limits.hard, limits.used]))
