"""What a slice on a MIG device looks like from inside. The daemon gives out no MIG devices yet, so one that only
attaches (front_host) stands in for it; driver and MIG devices are the simulated ones."""
import json
import sys

import pytest

from conftest import BUILD
from front_host import FRONTS

GIB = 1 << 30
MIB = 1 << 20
SLICE = 3 * GIB

# Two instances on GPU 1, which has MIG switched on; prints the UUIDs of their devices, and the GPU's.
MAKE = r"""
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
"""

LOOK = r"""
import ctypes as c, json, os
cuda, nvml = c.CDLL("libcuda.so.1"), c.CDLL("libnvidia-ml.so.1")
def uuid(device):
    text = c.create_string_buffer(96)
    assert nvml.nvmlDeviceGetUUID(device, text, 96) == 0
    return text.value.decode()
def memory(device):
    sizes = (c.c_ulonglong * 3)()
    assert nvml.nvmlDeviceGetMemoryInfo(device, sizes) == 0
    return list(sizes)
def pids(device):
    count, entries = c.c_uint(16), (c.c_ulonglong * 64)()
    assert nvml.nvmlDeviceGetComputeRunningProcesses_v3(device, c.byref(count), entries) == 0
    return [entries[3 * i] & 0xffffffff for i in range(count.value)]
seen, count, index = {}, c.c_int(), c.c_uint()
assert cuda.cuInit(0) == cuda.cuDeviceGetCount(c.byref(count)) == 0
seen["cuda devices"] = count.value
device, raw, total, free = c.c_int(), c.create_string_buffer(16), c.c_size_t(), c.c_size_t()
assert cuda.cuDeviceGet(c.byref(device), 0) == cuda.cuDeviceGetUuid_v2(raw, device) == 0
seen["cuda uuid"] = raw.raw.hex()
assert cuda.cuDeviceTotalMem_v2(c.byref(total), device) == 0
seen["cuda total"] = total.value
assert cuda.cuCtxCreate_v2(c.byref(c.c_void_p()), 0, device) == 0
assert cuda.cuMemGetInfo_v2(c.byref(free), c.byref(total)) == 0
seen["memory"] = [free.value, total.value]
seen["too much"] = cuda.cuMemAlloc_v2(c.byref(c.c_void_p()), c.c_size_t(free.value + 1))
seen["all"] = cuda.cuMemAlloc_v2(c.byref(c.c_void_p()), c.c_size_t(free.value))
gpu, mig = c.c_void_p(), c.c_void_p()
assert nvml.nvmlInit_v2() == nvml.nvmlDeviceGetCount_v2(c.byref(index)) == 0
seen["gpus"] = index.value
assert nvml.nvmlDeviceGetHandleByIndex_v2(0, c.byref(gpu)) == 0
seen["gpu uuid"] = uuid(gpu)
assert nvml.nvmlDeviceGetIndex(gpu, c.byref(index)) == 0
seen["gpu index"] = index.value
assert nvml.nvmlDeviceGetMigDeviceHandleByIndex(gpu, 0, c.byref(mig)) == 0
seen["mig uuid"] = uuid(mig)
seen["other mig"] = nvml.nvmlDeviceGetMigDeviceHandleByIndex(gpu, 1, c.byref(c.c_void_p()))
seen["neighbour"] = nvml.nvmlDeviceGetHandleByUUID(os.environ["NEIGHBOUR"].encode(), c.byref(c.c_void_p()))
seen["memory of gpu and mig"] = [memory(gpu), memory(mig)]
seen["processes are own"] = pids(mig) == [os.getpid()]
print(json.dumps(seen))
"""


@pytest.fixture
def mig(make_host):
    host = make_host("t4,a100-40gb+mig")
    done = host.run([sys.executable, "-c", MAKE])
    assert done.returncode == 0, done.stderr
    host.gpu_uuid, host.uuid, host.neighbour = json.loads(done.stdout)
    return host


def in_slice(host, *argv, limit=SLICE):
    drivers = {"CARVE_DRIVER_CUDA": str(BUILD / "sim/libcuda.so.1"),
               "CARVE_DRIVER_NVML": str(BUILD / "sim/libnvidia-ml.so.1"), "NEIGHBOUR": host.neighbour}
    done = host.run([BUILD / "tests/programs/front_host", "--uuid", host.uuid, "--limit", str(limit), "--context",
                     str(200 * MIB), "--preload", ":".join(map(str, FRONTS)), "--", *argv], env=drivers)
    assert done.returncode == 0, done.stderr
    return done.stdout, json.loads(done.stderr.splitlines()[-1])


def test_the_mig_device_is_the_slice_is_the_gpu(mig):
    out, books = in_slice(mig, sys.executable, "-c", LOOK)
    seen = json.loads(out)
    free = SLICE - 200 * MIB
    assert seen.pop("cuda uuid") == mig.uuid.removeprefix("MIG-").replace("-", "")
    assert seen == {
        "cuda devices": 1, "cuda total": SLICE, "memory": [free, SLICE], "too much": 2, "all": 0,
        "gpus": 1, "gpu index": 0, "gpu uuid": mig.gpu_uuid, "mig uuid": mig.uuid,
        "other mig": 6, "neighbour": 6,  # NVML_ERROR_NOT_FOUND
        "memory of gpu and mig": [[SLICE, 0, SLICE]] * 2, "processes are own": True}
    assert books["peak"] == SLICE and books["refused"] == 1


def test_a_slice_larger_than_the_device_shows_the_device(mig):
    out, _ = in_slice(mig, sys.executable, "-c", LOOK.replace("free.value + 1", "1 << 40").replace(
        "c.c_size_t(free.value))", "c.c_size_t(1 << 30))"), limit=30 * GIB)
    seen = json.loads(out)
    assert 4 * GIB < seen["cuda total"] < 5 * GIB and seen["memory"][1] == seen["cuda total"]
    assert seen["memory"][0] < seen["memory"][1]


def test_a_gpu_in_mig_mode_is_shown_as_one_that_gives_no_slices(make_host):
    host = make_host("a100-40gb+mig,h100-80gb")
    assert host.carve("gpu", "list").stdout.endswith("GPU 0 is in MIG mode: no slices of it are granted\n")
    first, second = json.loads(host.carve("check", "--json").stdout)["gpus"]
    for what in ("memory", "compute"):
        assert first[what]["enforced_by"] == "nothing" and "MIG mode" in first[what]["strength"]
        assert "MIG" not in second[what]["strength"]
    assert "in MIG mode" in host.carve("explain", "--vram", "4").stdout
