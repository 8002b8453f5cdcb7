"""NVML's private lists of processes; with an argument, beside a context of this process."""

import ctypes
import json
import sys
import uuid

nvml, table, device = ctypes.CDLL("libnvidia-ml.so.1"), ctypes.c_void_p(), ctypes.c_void_p()
assert nvml.nvmlInit_v2() == nvml.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(device)) == 0
guid = uuid.UUID("6c3efec4-8fc9-4e6c-a327-ee696e12f7c4").bytes_le
assert nvml.nvmlInternalGetExportTable(ctypes.byref(table), bytes(16)) != 0
assert nvml.nvmlInternalGetExportTable(ctypes.byref(table), guid) == 0
slots = ctypes.cast(table, ctypes.POINTER(ctypes.c_void_p))
lists = []
if sys.argv[1:]:
    cuda = ctypes.CDLL("libcuda.so.1")
    assert cuda.cuInit(0) == cuda.cuCtxCreate_v2(ctypes.byref(ctypes.c_void_p()), 0, 0) == 0
for slot in (213, 214, 215):
    call = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)(slots[slot])
    count, entries = ctypes.c_uint(250), ctypes.create_string_buffer(250 * 4128)
    assert call(device, ctypes.addressof(count), ctypes.addressof(entries)) == 0
    lists.append([[int.from_bytes(entries[i:i + 4], "little"), int.from_bytes(entries[i + 8:i + 16], "little") >> 20,
                   ctypes.string_at(ctypes.addressof(entries) + i + 32).decode()]
                  for i in range(0, count.value * 4128, 4128)])
print(json.dumps(lists))
