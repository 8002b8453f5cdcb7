"""How CUDA numbers devices inside a slice, over the simulated driver, and what the user's own
CUDA_VISIBLE_DEVICES does there."""
import json
import sys

import pytest

GIB = 1 << 30
MIB = 1 << 20

# Devices as CUDA sees them; on each one allocation of (index + 1) * 64 MiB, and what NVML then says is used.
LOOK = r"""
import ctypes as c, json, os
cuda, nvml = c.CDLL("libcuda.so.1"), c.CDLL("libnvidia-ml.so.1")
before = dict(os.environ)
init = cuda.cuInit(0)
count = c.c_int(0)
cuda.cuDeviceGetCount(c.byref(count))
devices, used = [], {}
for i in range(count.value):
    device, uuid, total, context = c.c_int(), c.create_string_buffer(16), c.c_size_t(), c.c_void_p()
    assert cuda.cuDeviceGet(c.byref(device), i) == 0
    assert cuda.cuDeviceGetUuid_v2(uuid, device) == 0
    assert cuda.cuDeviceTotalMem_v2(c.byref(total), device) == 0
    assert cuda.cuCtxCreate_v2(c.byref(context), 0, device) == 0
    free = [c.c_size_t() for _ in "ab"]
    cuda.cuMemGetInfo_v2(c.byref(free[0]), c.byref(total))
    assert cuda.cuMemAlloc_v2(c.byref(c.c_void_p()), c.c_size_t((i + 1) * 64 << 20)) == 0
    cuda.cuMemGetInfo_v2(c.byref(free[1]), c.byref(total))
    h = uuid.raw.hex()
    devices.append({"uuid": "GPU-" + "-".join((h[:8], h[8:12], h[12:16], h[16:20], h[20:])),
                    "total": total.value, "taken": free[0].value - free[1].value})
assert nvml.nvmlInit_v2() == 0
nvml.nvmlDeviceGetCount_v2(c.byref(count))
for i in range(count.value):
    device, name, memory = c.c_void_p(), c.create_string_buffer(96), (c.c_ulonglong * 3)()
    assert nvml.nvmlDeviceGetHandleByIndex_v2(i, c.byref(device)) == 0
    nvml.nvmlDeviceGetUUID(device, name, 96)
    nvml.nvmlDeviceGetMemoryInfo(device, memory)
    used[name.value.decode()] = memory[2]
libc = c.CDLL(None)
libc.getenv.restype = c.c_char_p
now = libc.getenv(b"CUDA_VISIBLE_DEVICES")
assert (now.decode() if now is not None else None) == before.get("CUDA_VISIBLE_DEVICES")
print(json.dumps({"init": init, "devices": devices, "used": used}))
"""


def look(host, *run, visible=None):
    argv = [sys.executable, "-c", LOOK]
    if visible is not None:
        argv = ["env", f"CUDA_VISIBLE_DEVICES={visible}", *argv]
    done = host.carve("run", *run, "--", *argv)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture
def trio(make_host):
    return make_host("h100-80gb:3")


@pytest.fixture
def uuids(trio):
    return [g["uuid"] for g in trio.stat()["gpus"]]


@pytest.mark.parametrize("gpu", [0, 1, 2])
def test_the_slices_gpu_is_device_0(trio, uuids, gpu):
    seen = look(trio, "--vram", "2", "--gpu-ids", str(gpu))
    assert [d["uuid"] for d in seen["devices"]] == [uuids[gpu]]
    assert seen["devices"][0] == {"uuid": uuids[gpu], "total": 2 * GIB, "taken": 64 * MIB}


@pytest.mark.parametrize("visible, order", [
    (None, [1, 2]), ("0,1", [1, 2]), ("1,0", [2, 1]), ("1", [2]), ("0", [1]), ("2", []), ("", []), ("-1", []),
    ("0,7,1", [1]), ("uuid 2,uuid 1", [2, 1]), ("short 2", [2]), ("uuid 0", []),
])
def test_visible_devices_count_within_the_slice(trio, uuids, visible, order):
    if visible:
        visible = ",".join({"uuid": lambda i: uuids[int(i)], "short": lambda i: uuids[int(i)][:14]}.get(
            word.split()[0], lambda i: i)(word.split()[-1]) for word in visible.split(","))
    seen = look(trio, "--vram", "2", "--gpus", "2", "--gpu-ids", "1,2", visible=visible)
    assert [d["uuid"] for d in seen["devices"]] == [uuids[i] for i in order]
    assert seen["init"] == (0 if order else 100)  # CUDA_ERROR_NO_DEVICE
    # Each GPU has a limit of its own, and is charged for what was taken on it.
    for i, device in enumerate(seen["devices"]):
        assert device["total"] == 2 * GIB and device["taken"] == (i + 1) * 64 * MIB
        assert seen["used"][device["uuid"]] == device["taken"] + 520 * MIB
    assert list(seen["used"]) == [uuids[1], uuids[2]], "NVML does not look at CUDA_VISIBLE_DEVICES"


def test_a_whole_gpu_has_its_size(trio, uuids):
    seen = look(trio, "--gpu", "1")
    assert [d["uuid"] for d in seen["devices"]] == [uuids[0]]
    assert 78 * GIB < seen["devices"][0]["total"] < 80 * GIB


# What a library can do to the process that it is loaded into, after it was used.
MANNERS = r"""
import ctypes as c, json, os, re
cuda = c.CDLL("libcuda.so.1")
assert cuda.cuInit(0) == cuda.cuCtxCreate_v2(c.byref(c.c_void_p()), 0, 0) == 0
assert cuda.cuMemAlloc_v2(c.byref(c.c_void_p()), c.c_size_t(64 << 20)) == 0
assert cuda.cuMemAlloc_v2(c.byref(c.c_void_p()), c.c_size_t(1 << 50)) == 2
status = open("/proc/self/status").read()
print(json.dumps({name: re.search(rf"^{name}:\s*(\S+)$", status, re.M)[1]
                  for name in ("Umask", "SigBlk", "SigIgn", "SigCgt", "Threads")} | {"directory": os.getcwd()}))
"""


def test_the_program_is_left_as_it_is(host):
    argv = [sys.executable, "-c", MANNERS]
    alone, inside = host.run(argv), host.carve("run", "--vram", "2", "--", *argv)
    assert alone.returncode == inside.returncode == 0, alone.stderr + inside.stderr
    assert json.loads(inside.stdout) == json.loads(alone.stdout)
    assert inside.stderr == ""
