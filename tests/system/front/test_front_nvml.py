"""What NVML shows inside a slice, over the simulated driver's NVML."""
import json
import sys

import pytest

from conftest import wait_until

MIB = 1 << 20
GIB = 1 << 30

# Asks NVML what a test wants to know, with nothing between but ctypes.
LOOK = r"""
import ctypes as c, json
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
foreign = [nvml.nvmlDeviceGetHandleByUUID(u.encode(), c.byref(c.c_void_p())) for u in FOREIGN]
print(json.dumps({"count": count.value, "devices": devices, "beyond": beyond, "foreign": foreign}))
"""


def look(host, *run, foreign=(), env=None):
    code = f"FOREIGN = {list(foreign)!r}\n{LOOK}"
    argv = [sys.executable, "-c", code]
    done = host.run(argv, env=env or {}) if not run else host.carve("run", *run, "--", *argv)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture
def pair(make_host):
    return make_host("h100-80gb,a100-40gb")


def test_the_slice_is_the_gpu(pair):
    all_gpus = look(pair)
    assert all_gpus["count"] == 2
    uuids = [d["uuid"] for d in all_gpus["devices"]]
    seen = look(pair, "--vram", "3", "--gpu-ids", "1", foreign=uuids)
    assert seen["count"] == 1
    device = seen["devices"][0]
    assert device["uuid"] == uuids[1] and device["index"] == 0
    assert device["memory"] == {"total": 3 * GIB, "free": 3 * GIB, "used": 0}
    assert device["memory2"] == {"total": 3 * GIB, "reserved": 0, "free": 3 * GIB, "used": 0}
    assert seen["beyond"] == 2  # NVML_ERROR_INVALID_ARGUMENT
    assert seen["foreign"] == [6, 0]  # NVML_ERROR_NOT_FOUND


def test_decimal_sizes_show_exactly(pair):
    seen = look(pair, "--gpu-memory", "4G", "--gpu-ids", "0")
    assert seen["devices"][0]["memory"]["total"] == 4_000_000_000


def test_several_gpus_are_numbered_by_the_slice(pair):
    uuids = [d["uuid"] for d in look(pair)["devices"]]
    seen = look(pair, "--vram", "2", "--gpus", "2")
    assert [d["uuid"] for d in seen["devices"]] == uuids
    assert [d["index"] for d in seen["devices"]] == [0, 1]
    assert {d["memory"]["total"] for d in seen["devices"]} == {2 * GIB}


def test_without_a_session_there_is_no_gpu(pair, build):
    seen = look(pair, env={"LD_PRELOAD": str(build / "src/front/libnvidia-ml.so.1")})
    assert seen["count"] == 0 and seen["beyond"] == 2


BUSY = r"""
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
"""


# Keeps the GPU busy, 100 ms a kernel, until it is killed.
WORK = r'''
import ctypes as c
cuda = c.CDLL("libcuda.so.1")
text = b"""
.version 6.0
.target sm_50
.address_size 64
.visible .entry spin(.param .u64 length)
{
	.reg .u64 %rd<4>;
	.reg .pred %p;
	ld.param.u64 %rd1, [length];
	mov.u64 %rd2, %globaltimer;
	add.u64 %rd1, %rd1, %rd2;
again:
	mov.u64 %rd3, %globaltimer;
	setp.lt.u64 %p, %rd3, %rd1;
	@%p bra again;
	ret;
}
"""
module, function, length = c.c_void_p(), c.c_void_p(), c.c_ulonglong(100_000_000)
assert cuda.cuInit(0) == 0 and cuda.cuCtxCreate_v2(c.byref(c.c_void_p()), 0, 0) == 0
assert cuda.cuModuleLoadData(c.byref(module), text) == 0
assert cuda.cuModuleGetFunction(c.byref(function), module, b"spin") == 0
params = (c.c_void_p * 1)(c.addressof(length))
while True:
    assert cuda.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, None, params, None) == 0
    assert cuda.cuCtxSynchronize() == 0
'''


def test_utilization_is_the_slices(host, build):
    argv = [sys.executable, "-c", BUSY]
    session = host.carve_json("session", "request", "--vram", "2")["id"]
    work = host.popen([build / "carve", "run", "--session", session, "--", sys.executable, "-c", WORK])
    wait_until(lambda: int(host.run(argv).stdout) > 50 or work.poll() is not None)
    assert work.poll() is None
    seen = [int(host.carve("run", "--session", session, "--", *argv).stdout),
            int(host.carve("run", "--ephemeral", "--vram", "2", "--", *argv).stdout)]
    work.terminate()
    work.communicate(timeout=60)
    assert seen[0] > 50, "its own work shows"
    assert seen[1] == 0, "the neighbour's does not"
