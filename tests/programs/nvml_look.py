"""What NVML shows of each device, with nothing between but ctypes; and what it says of the UUIDs in its arguments."""

import ctypes as c
import json
import sys

nvml = c.CDLL("libnvidia-ml.so.1")

class Memory2(c.Structure):
    _fields_ = [("version", c.c_uint), ("total", c.c_ulonglong), ("reserved", c.c_ulonglong),
                ("free", c.c_ulonglong), ("used", c.c_ulonglong)]

def text(call, device):
    buffer = c.create_string_buffer(96)
    assert call(device, buffer, 96) == 0
    return buffer.value.decode()

def look(device):
    memory, memory2, index = (c.c_ulonglong * 3)(), Memory2(0x02000028), c.c_uint(99)
    assert nvml.nvmlDeviceGetMemoryInfo(device, memory) == 0
    assert nvml.nvmlDeviceGetMemoryInfo_v2(device, c.byref(memory2)) == 0
    assert nvml.nvmlDeviceGetIndex(device, c.byref(index)) == 0
    found = c.c_void_p()
    uuid = text(nvml.nvmlDeviceGetUUID, device)
    assert nvml.nvmlDeviceGetHandleByUUID(uuid.encode(), c.byref(found)) == 0
    assert found.value == device.value
    return {"uuid": uuid, "index": index.value, "memory": dict(zip(("total", "free", "used"), memory)),
            "memory2": {k: getattr(memory2, k) for k in ("total", "reserved", "free", "used")}}

assert nvml.nvmlInit_v2() == 0
count = c.c_uint(99)
assert nvml.nvmlDeviceGetCount_v2(c.byref(count)) == 0
devices = []
for i in range(count.value):
    device = c.c_void_p()
    assert nvml.nvmlDeviceGetHandleByIndex_v2(i, c.byref(device)) == 0
    devices.append(look(device))
beyond = nvml.nvmlDeviceGetHandleByIndex_v2(count.value, c.byref(c.c_void_p()))
foreign = [nvml.nvmlDeviceGetHandleByUUID(u.encode(), c.byref(c.c_void_p())) for u in sys.argv[1:]]
print(json.dumps({"count": count.value, "devices": devices, "beyond": beyond, "foreign": foreign}))
