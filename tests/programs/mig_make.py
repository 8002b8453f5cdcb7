"""Two instances on GPU 1, which has MIG switched on; prints the UUIDs of their devices, and the GPU's."""

import ctypes as c, json
nvml = c.CDLL("libnvidia-ml.so.1")
gpu, made = c.c_void_p(), c.c_void_p()
def uuid(device):
    text = c.create_string_buffer(96)
    assert nvml.nvmlDeviceGetUUID(device, text, 96) == 0
    return text.value.decode()
assert nvml.nvmlInit_v2() == nvml.nvmlDeviceGetHandleByIndex_v2(1, c.byref(gpu)) == 0
for profile in (19, 19):
    assert nvml.nvmlDeviceCreateGpuInstance(gpu, profile, c.byref(made)) == 0
    assert nvml.nvmlGpuInstanceCreateComputeInstance(made, 0, c.byref(c.c_void_p())) == 0
devices = []
for i in range(2):
    device = c.c_void_p()
    assert nvml.nvmlDeviceGetMigDeviceHandleByIndex(gpu, i, c.byref(device)) == 0
    devices.append(uuid(device))
print(json.dumps([uuid(gpu), *devices]))
