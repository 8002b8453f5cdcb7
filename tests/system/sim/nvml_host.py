"""NVML of a simulated host, called by ctypes in the test's own process, and what tests of it share."""
import ctypes
import subprocess

import pytest

from conftest import BUILD

MIB = 1 << 20
(SUCCESS, UNINITIALIZED, INVALID_ARGUMENT, NOT_SUPPORTED, NOT_FOUND, INSUFFICIENT_SIZE, DRIVER_NOT_LOADED,
 FUNCTION_NOT_FOUND, GPU_IS_LOST, RESET_REQUIRED, IN_USE, INSUFFICIENT_RESOURCES, VERSION_MISMATCH,
 UNKNOWN) = 0, 1, 2, 3, 6, 7, 9, 13, 15, 16, 19, 23, 25, 999
NO_INSTANCE = 0xFFFFFFFF
CONTEXT = 0


class Memory(ctypes.Structure):
    _fields_ = [(n, ctypes.c_ulonglong) for n in ("total", "free", "used")]


class MemoryV2(ctypes.Structure):
    _fields_ = [("version", ctypes.c_uint)] + [
        (n, ctypes.c_ulonglong) for n in ("total", "reserved", "free", "used")]


class ProcessV1(ctypes.Structure):
    _fields_ = [("pid", ctypes.c_uint), ("usedGpuMemory", ctypes.c_ulonglong)]


class ProcessV2(ctypes.Structure):
    _fields_ = ProcessV1._fields_ + [("gpuInstanceId", ctypes.c_uint), ("computeInstanceId", ctypes.c_uint)]


class Placement(ctypes.Structure):
    _fields_ = [("start", ctypes.c_uint), ("size", ctypes.c_uint)]


class GpuInstanceInfo(ctypes.Structure):
    _fields_ = [("device", ctypes.c_void_p), ("id", ctypes.c_uint), ("profileId", ctypes.c_uint),
                ("placement", Placement)]


class ComputeInstanceInfo(ctypes.Structure):
    _fields_ = [("device", ctypes.c_void_p), ("gpuInstance", ctypes.c_void_p), ("id", ctypes.c_uint),
                ("profileId", ctypes.c_uint), ("placement", Placement)]


class Nvml:
    """Calls by name, with plain numbers for results: nvml.DeviceGetCount_v2(byref(count)) == SUCCESS."""

    def __init__(self):
        self.library = ctypes.CDLL(str(BUILD / "sim" / "libnvidia-ml.so.1"))

    def __getattr__(self, name):
        return getattr(self.library, "nvml" + name)

    def handle(self, index=0):
        device = ctypes.c_void_p()
        assert self.DeviceGetHandleByIndex_v2(index, ctypes.byref(device)) == SUCCESS
        return device

    def text(self, call, *args, size=96):
        buf = ctypes.create_string_buffer(size)
        result = getattr(self, call)(*args, buf, size)
        assert result == SUCCESS, (call, result)
        return buf.value.decode()

    def number(self, call, *args):
        value = ctypes.c_uint()
        result = getattr(self, call)(*args, ctypes.byref(value))
        assert result == SUCCESS, (call, result)
        return value.value

    def memory(self, device):
        v1, v2 = Memory(), MemoryV2(version=ctypes.sizeof(MemoryV2) | 2 << 24)
        assert self.DeviceGetMemoryInfo(device, ctypes.byref(v1)) == SUCCESS
        assert self.DeviceGetMemoryInfo_v2(device, ctypes.byref(v2)) == SUCCESS
        assert (v1.total, v1.free, v1.used) == (v2.total, v2.free, v2.used + v2.reserved)
        return v2

    def processes(self, device):
        count, entries = ctypes.c_uint(64), (ProcessV2 * 64)()
        result = self.DeviceGetComputeRunningProcesses_v3(device, ctypes.byref(count), entries)
        assert result == SUCCESS, result
        return entries[:count.value]


class Holder:
    """A process that holds memory on a device."""

    def __init__(self, env):
        self.process = subprocess.Popen([BUILD / "tests" / "programs" / "sim_client", "cuda"], env=env,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.pid = int(self.process.stdout.readline().split()[1])

    def reserve(self, mib, device=0):
        self.process.stdin.write(f"reserve {device} {CONTEXT} {mib * MIB}\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().split()

    def end(self):
        self.process.kill()
        self.process.wait()


def mig_device(gpu, gi, ci=0):
    """How the host's protocol names a MIG device."""
    return gpu | (gi + 1) << 8 | (ci + 1) << 16


@pytest.fixture
def nvml(make_host, monkeypatch):
    """nvml(spec, driver=None): NVML, initialized on a new host. nvml.host is that, nvml.hold(mib, device) has
    another process hold memory there."""
    started, holders = [], []

    def start(spec="h100-80gb", driver=None):
        host = make_host(spec, driver)
        monkeypatch.setenv("SIMGPU_HOST", host.env["SIMGPU_HOST"])
        lib = Nvml()
        assert lib.Init_v2() == SUCCESS
        started.append(lib)
        lib.host = host

        def hold(mib, device=0):
            holder = Holder(host.env)
            holders.append(holder)
            assert holder.reserve(mib, device)[0] == "ok"
            return holder

        lib.hold = hold
        return lib

    yield start
    for holder in holders:
        holder.end()
    for lib in started:
        lib.Shutdown()


def create(lib, profile, gpu=0, placement=None, compute=None):
    """A GPU instance with a compute instance: their handles, and the MIG device's."""
    device, gi, ci = lib.handle(gpu), ctypes.c_void_p(), ctypes.c_void_p()
    if placement:
        result = lib.DeviceCreateGpuInstanceWithPlacement(device, profile, ctypes.byref(placement),
                                                          ctypes.byref(gi))
    else:
        result = lib.DeviceCreateGpuInstance(device, profile, ctypes.byref(gi))
    if result != SUCCESS:
        return result
    if compute is None:
        compute = {19: 0, 14: 1, 9: 2, 5: 3, 0: 4}[profile]
    assert lib.GpuInstanceCreateComputeInstance(gi, compute, ctypes.byref(ci)) == SUCCESS
    info = ComputeInstanceInfo()
    assert lib.ComputeInstanceGetInfo_v2(ci, ctypes.byref(info)) == SUCCESS
    return gi, ci, ctypes.c_void_p(info.device)


def gpu_instance_id(lib, gi):
    info = GpuInstanceInfo()
    assert lib.GpuInstanceGetInfo(gi, ctypes.byref(info)) == SUCCESS
    return info.id


def mig_mode(lib, gpu=0):
    current, pending = ctypes.c_uint(), ctypes.c_uint()
    result = lib.DeviceGetMigMode(lib.handle(gpu), ctypes.byref(current), ctypes.byref(pending))
    return (current.value, pending.value) if result == SUCCESS else result


def set_mig_mode(lib, mode, gpu=0):
    status = ctypes.c_int(-1)
    return lib.DeviceSetMigMode(lib.handle(gpu), mode, ctypes.byref(status)), status.value


class GpuProfile(ctypes.Structure):
    _fields_ = [(n, ctypes.c_uint) for n in ("version", "id", "p2p", "slices", "instances", "sm", "ce", "dec", "enc",
                                             "jpeg", "ofa")] + [("memory_mib", ctypes.c_ulonglong),
                                                                ("name", ctypes.c_char * 96)]


def version_of(kind, number):
    return ctypes.sizeof(kind) | number << 24


def gpu_profiles(lib, gpu):
    for profile_enum in range(18):
        info = GpuProfile(version=version_of(GpuProfile, 2))
        result = lib.DeviceGetGpuInstanceProfileInfoV(gpu, profile_enum, ctypes.byref(info))
        assert result in (SUCCESS, NOT_SUPPORTED)
        if result == SUCCESS:
            yield info
