"""What NVML tells beside its lists of processes: devices and processes that some calls name, as JSON."""

import ctypes as c
import json
import os

nvml = c.CDLL("libnvidia-ml.so.1")
c.CDLL("libcuda.so.1").cuInit(0)  # from here on this process is one of the slice's


class Encoder(c.Structure):
    _fields_ = [(name, c.c_uint) for name in ("id", "pid", "vgpu", "codec", "h", "v", "fps", "latency")]


class Capture(c.Structure):
    _fields_ = [(name, c.c_uint) for name in ("id", "pid", "vgpu", "display", "type", "flags", "hmax", "vmax", "h", "v",
                                              "fps", "latency")]


class Event(c.Structure):
    _fields_ = [("device", c.c_void_p), ("type", c.c_ulonglong), ("data", c.c_ulonglong), ("gi", c.c_uint), ("ci", c.c_uint)]


def uuid(device):
    text = c.create_string_buffer(96)
    assert nvml.nvmlDeviceGetUUID(c.c_void_p(device), text, 96) == 0
    return text.value.decode()


def devices(call, *args):
    """By the two calls that programs make: how many, then which."""
    count, found = c.c_uint(0), (c.c_void_p * 8)()
    assert call(*args, c.byref(count), None) in (0, 7)
    told = count.value
    if told:
        assert call(*args, c.byref(count), found) == 0
    assert count.value == told
    return [uuid(d) for d in found[:told]]


def whose(pids):
    return ["own" if pid == os.getpid() else "other" for pid in pids]


def sessions(call, entry):
    count, found = c.c_uint(0), (entry * 8)()
    assert call(device, c.byref(count), None) == 0
    told, count.value = count.value, 8
    assert call(device, c.byref(count), found) == 0 and count.value == told
    return whose(s.pid for s in found[:told])


assert nvml.nvmlInit_v2() == 0
device, excluded = c.c_void_p(), c.c_uint(99)
assert nvml.nvmlDeviceGetHandleByIndex_v2(0, c.byref(device)) == 0
told = {
    "nearest": devices(nvml.nvmlDeviceGetTopologyNearestGpus, device, 40),
    "of_processor": devices(nvml.nvmlSystemGetTopologyGpuSet, 0),
    "of_unit": devices(nvml.nvmlUnitGetDevices, None),
    "encoder": sessions(nvml.nvmlDeviceGetEncoderSessions, Encoder),
    "capture": sessions(nvml.nvmlDeviceGetFBCSessions, Capture),
}
assert nvml.nvmlGetExcludedDeviceCount(c.byref(excluded)) == 0
told["excluded"] = excluded.value
count, pids = c.c_uint(8), (c.c_uint * 8)()
assert nvml.nvmlDeviceGetAccountingPids(device, c.byref(count), pids) == 0
told["accounted"] = whose(pids[:count.value])
stats = c.create_string_buffer(256)
told["account"] = {who: nvml.nvmlDeviceGetAccountingStats(device, pid, stats) for who, pid in (("own", os.getpid()), ("other", 1))}
told["clear"] = nvml.nvmlDeviceClearAccountingPids(device)
numbers = (c.c_uint * 3)()
at = [c.byref(numbers, 4 * i) for i in range(3)]
assert nvml.nvmlDeviceGetEncoderStats(device, *at) == 0
told["encoder_stats"] = list(numbers)
assert nvml.nvmlDeviceGetFBCStats(device, numbers) == 0
told["capture_stats"] = list(numbers)
protected = (c.c_ulonglong * 3)()
assert nvml.nvmlDeviceGetConfComputeProtectedMemoryUsage(device, protected) == 0
told["protected"] = protected[0]
event, told["events"] = Event(), []
while nvml.nvmlEventSetWait_v2(None, c.byref(event), 10) == 0:
    told["events"].append(uuid(event.device))
print(json.dumps(told))
