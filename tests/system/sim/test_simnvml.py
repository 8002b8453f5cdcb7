"""The simulated libnvidia-ml, called by ctypes in the test's own process on a simulated host."""
import ctypes
import json
import os
import pathlib
import signal
import subprocess
import time

import pytest

from conftest import BUILD, ON_GPU, PATIENCE, ROOT, run, wait_until
from nvml_host import *  # noqa: F403
from nvml_host import nvml  # noqa: F401: fixture
from programs import SOURCES

pytestmark = pytest.mark.skipif(ON_GPU, reason="tests the simulated driver")


class Utilization(ctypes.Structure):
    _fields_ = [("gpu", ctypes.c_uint), ("memory", ctypes.c_uint)]


class ProcessSample(ctypes.Structure):
    _fields_ = [("pid", ctypes.c_uint), ("timeStamp", ctypes.c_ulonglong)] + [
        (n, ctypes.c_uint) for n in ("smUtil", "memUtil", "encUtil", "decUtil")]


def test_before_init_nothing_works(monkeypatch):
    monkeypatch.delenv("SIMGPU_HOST", raising=False)
    lib, count = Nvml(), ctypes.c_uint()
    assert lib.DeviceGetCount_v2(ctypes.byref(count)) == UNINITIALIZED
    assert lib.Shutdown() == UNINITIALIZED
    assert lib.Init_v2() == DRIVER_NOT_LOADED
    lib.library.nvmlErrorString.restype = ctypes.c_char_p
    texts = {lib.ErrorString(code) for code in [*range(31), 999]}
    assert len(texts) == 32
    assert lib.ErrorString(DRIVER_NOT_LOADED) == b"Driver Not Loaded"


def test_init_counts(nvml):
    lib, count = nvml(), ctypes.c_uint()
    assert lib.InitWithFlags(1) == SUCCESS
    assert lib.InitWithFlags(64) == INVALID_ARGUMENT
    assert lib.Shutdown() == SUCCESS
    assert lib.DeviceGetCount_v2(ctypes.byref(count)) == SUCCESS
    assert lib.Shutdown() == SUCCESS
    assert lib.DeviceGetCount_v2(ctypes.byref(count)) == UNINITIALIZED
    assert lib.Init_v2() == SUCCESS


@pytest.mark.parametrize("driver, cuda", [("535", 12020), ("550", 12040), ("580", 13000)])
def test_versions(nvml, driver, cuda):
    lib = nvml(driver=driver)
    version = lib.text("SystemGetDriverVersion")
    assert version.startswith(driver + ".")
    assert lib.text("SystemGetNVMLVersion") == f"{cuda // 1000}.{version}"
    assert lib.number("SystemGetCudaDriverVersion_v2") == cuda
    assert lib.SystemGetDriverVersion(ctypes.create_string_buffer(3), 3) == INSUFFICIENT_SIZE


def test_devices_by_every_name(nvml):
    lib = nvml("h100-80gb:2,a100-40gb,t4")
    assert lib.number("DeviceGetCount_v2") == lib.number("DeviceGetCount") == 4
    names = [lib.text("DeviceGetName", lib.handle(i)) for i in range(4)]
    assert names == ["NVIDIA H100 80GB HBM3"] * 2 + ["NVIDIA A100-SXM4-40GB", "Tesla T4"]
    found = ctypes.c_void_p()
    for i in range(4):
        device = lib.handle(i)
        uuid = lib.text("DeviceGetUUID", device)
        serial = lib.text("DeviceGetSerial", device, size=30)
        assert lib.number("DeviceGetIndex", device) == i
        for call, name in (("DeviceGetHandleByUUID", uuid), ("DeviceGetHandleBySerial", serial),
                           ("DeviceGetHandleByPciBusId_v2", f"{1 + 3 * i:02x}:00.0"),
                           ("DeviceGetHandleByPciBusId_v2", f"00000000:{1 + 3 * i:02X}:00.0")):
            assert getattr(lib, call)(name.encode(), ctypes.byref(found)) == SUCCESS, (call, name)
            assert found.value == device.value
    assert lib.DeviceGetHandleByUUID(b"GPU-none", ctypes.byref(found)) == NOT_FOUND
    assert lib.DeviceGetHandleByPciBusId_v2(b"zz", ctypes.byref(found)) == INVALID_ARGUMENT
    assert lib.DeviceGetHandleByIndex_v2(4, ctypes.byref(found)) == INVALID_ARGUMENT
    assert lib.DeviceGetName(None, ctypes.create_string_buffer(96), 96) == INVALID_ARGUMENT
    assert lib.DeviceGetName(ctypes.c_void_p(0x1234), ctypes.create_string_buffer(96), 96) == INVALID_ARGUMENT
    assert lib.DeviceGetName(lib.handle(0), None, 96) == INVALID_ARGUMENT


def test_memory_follows_the_processes(nvml):
    lib = nvml()
    device = lib.handle()
    before = lib.memory(device)
    assert before.total == 81559 * MIB and before.used == 0
    assert before.free == before.total - before.reserved
    holder = lib.hold(600)
    assert lib.memory(device).used == 600 * MIB
    assert lib.memory(device).free == before.free - 600 * MIB
    holder.end()
    wait_until(lambda: lib.memory(device).used == 0)
    wrong = MemoryV2(version=ctypes.sizeof(MemoryV2) | 1 << 24)
    assert lib.DeviceGetMemoryInfo_v2(device, ctypes.byref(wrong)) == VERSION_MISMATCH


def test_process_lists(nvml):
    lib = nvml("h100-80gb:2")
    first, second = lib.hold(600), lib.hold(700)
    device = lib.handle()
    by_pid = {p.pid: p for p in lib.processes(device)}
    assert {pid: p.usedGpuMemory // MIB for pid, p in by_pid.items()} == {first.pid: 600, second.pid: 700}
    assert all(p.gpuInstanceId == p.computeInstanceId == NO_INSTANCE for p in by_pid.values())
    assert lib.processes(lib.handle(1)) == []
    # Too small an array is left alone; the count says what is needed.
    for suffix, kind in (("", ProcessV1), ("_v2", ProcessV2), ("_v3", ProcessV2)):
        call = getattr(lib, "DeviceGetComputeRunningProcesses" + suffix)
        count, one = ctypes.c_uint(1), (kind * 1)()
        assert call(device, ctypes.byref(count), one) == INSUFFICIENT_SIZE
        assert count.value == 2 and one[0].pid == 0
        count = ctypes.c_uint(0)
        assert call(device, ctypes.byref(count), None) == INSUFFICIENT_SIZE
        two = (kind * 2)()
        assert call(device, ctypes.byref(count), two) == SUCCESS
        assert {p.pid for p in two} == set(by_pid)
    count = ctypes.c_uint(5)
    assert lib.DeviceGetGraphicsRunningProcesses_v3(device, ctypes.byref(count), None) == SUCCESS
    assert count.value == 0
    first.end()
    wait_until(lambda: [p.pid for p in lib.processes(device)] == [second.pid])
    name = lib.text("SystemGetProcessName", second.pid, size=1024)
    assert name.endswith("sim_client")
    assert lib.SystemGetProcessName(first.pid, ctypes.create_string_buffer(64), 64) == NOT_FOUND


def test_samples_are_stamped_with_the_time_of_day(nvml):
    """Programs ask for those of the last second by their own clock, in microseconds since 1970."""
    lib = nvml()
    one, count, samples = lib.hold(100), ctypes.c_uint(8), (ProcessSample * 8)()
    before = time.time_ns() // 1000

    def ask(last_seen):
        count.value = 8
        return lib.DeviceGetProcessUtilization(lib.handle(), samples, ctypes.byref(count), ctypes.c_ulonglong(last_seen))

    assert ask(before - 1_000_000) == SUCCESS and (count.value, samples[0].pid) == (1, one.pid)
    assert before <= samples[0].timeStamp <= time.time_ns() // 1000
    assert ask(before + 60_000_000) == NOT_FOUND


def test_works_in_a_forked_child(nvml):
    lib = nvml()
    device = lib.handle()
    pid = os.fork()
    if pid == 0:
        try:
            os._exit(0 if lib.memory(device).total == 81559 * MIB else 1)
        finally:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert lib.memory(device).total == 81559 * MIB


def test_every_name_of_the_real_library_is_there():
    lib = Nvml()
    names = (ROOT / "src" / "front" / "nvml" / "exported-by-550.txt").read_text().split()
    assert len(names) == 350
    for name in names:
        getattr(lib.library, name)
    exported = run(["nm", "-D", "--defined-only", BUILD / "sim" / "libnvidia-ml.so.1"]).stdout.split("\n")
    own = {line.split()[2] for line in exported if line and not line.split()[2].startswith("nvml")}
    assert own == {"simgpuClockLag"}


def test_unsupported_calls_are_counted(nvml):
    lib = nvml()
    count = ctypes.c_uint()
    assert lib.UnitGetCount(ctypes.byref(count)) == NOT_SUPPORTED
    assert lib.DeviceGetPlatformInfo(lib.handle(), ctypes.byref(count)) == FUNCTION_NOT_FOUND
    stat = run([BUILD / "sim" / "simhost", "stat", "--json"], env=lib.host.env)
    assert "nvmlUnitGetCount" in stat.stdout


def test_a_lost_gpu(nvml):
    lib = nvml("h100-80gb:2")
    device = lib.handle()
    assert run([BUILD / "sim" / "simhost", "fault", "lost", "--gpu", "0"], env=lib.host.env).returncode == 0
    assert lib.DeviceGetMemoryInfo(device, ctypes.byref(Memory())) == GPU_IS_LOST
    assert lib.memory(lib.handle(1)).total == 81559 * MIB


@pytest.mark.parametrize("gpu", [0, 1])
def test_a_fault_of_one_gpu_hits_that_gpu_alone(nvml, gpu):
    """Not calls that are about no GPU, and not another GPU, however its handle is asked for."""
    lib = nvml("h100-80gb:2")
    uuids, serials = ([lib.text(call, lib.handle(i)) for i in (0, 1)] for call in ("DeviceGetUUID", "DeviceGetSerial"))
    assert run([BUILD / "sim" / "simhost", "fault", "nvml", "--gpu", str(gpu), "--error", "16"],
               env=lib.host.env).returncode == 0
    count, handle = ctypes.c_uint(), ctypes.c_void_p()
    assert lib.DeviceGetCount_v2(ctypes.byref(count)) == SUCCESS and count.value == 2
    for i in 0, 1:
        expected = RESET_REQUIRED if i == gpu else SUCCESS
        assert lib.DeviceGetHandleByIndex_v2(i, ctypes.byref(handle)) == expected
        assert lib.DeviceGetHandleByUUID(uuids[i].encode(), ctypes.byref(handle)) == expected
        assert lib.DeviceGetHandleBySerial(serials[i].encode(), ctypes.byref(handle)) == expected


def test_a_host_that_ends_and_another(nvml):
    """The library outlives a host, and finds the next one."""
    first = nvml("t4")
    first.host.process.stdin.close()
    first.host.process.wait(60)
    assert first.DeviceGetComputeRunningProcesses_v3(
        first.handle(), ctypes.byref(ctypes.c_uint(0)), None) not in (SUCCESS, INSUFFICIENT_SIZE)
    assert first.Shutdown() == SUCCESS
    second = nvml("h100-80gb")
    assert second.text("DeviceGetName", second.handle()) == "NVIDIA H100 80GB HBM3"
    # For the fixture, which closes it again.
    first.host.process.stdin = open(os.devnull, "wb")


# ---- MIG ----


def test_mig_mode(nvml):
    lib = nvml("h100-80gb,a100-40gb+mig,t4")
    assert [mig_mode(lib, i) for i in range(3)] == [(0, 0), (1, 1), NOT_SUPPORTED]
    assert set_mig_mode(lib, 1) == (SUCCESS, SUCCESS)
    assert mig_mode(lib) == (1, 1)
    assert lib.DeviceGetUtilizationRates(lib.handle(), ctypes.byref(Utilization())) == NOT_SUPPORTED
    gi, ci, _ = create(lib, 19)
    assert set_mig_mode(lib, 0)[0] == IN_USE
    assert lib.GpuInstanceDestroy(gi) == IN_USE
    assert lib.ComputeInstanceDestroy(ci) == SUCCESS
    assert lib.GpuInstanceDestroy(gi) == SUCCESS
    assert lib.GpuInstanceDestroy(gi) == NOT_FOUND
    assert set_mig_mode(lib, 0) == (SUCCESS, SUCCESS)
    assert set_mig_mode(lib, 2)[0] == INVALID_ARGUMENT


def test_mig_mode_is_pending_while_the_gpu_is_used(nvml):
    lib = nvml()
    holder = lib.hold(600)
    assert set_mig_mode(lib, 1) == (SUCCESS, IN_USE)
    assert mig_mode(lib) == (0, 1)
    holder.end()
    wait_until(lambda: set_mig_mode(lib, 1) == (SUCCESS, SUCCESS))
    assert mig_mode(lib) == (1, 1)
    # CUDA has no use for a whole GPU in MIG mode.
    assert Holder(lib.host.env).reserve(600) == ["error", "ENODEV"]


def test_mig_devices(nvml):
    lib = nvml("a100-40gb+mig")
    gpu = lib.handle()
    big, small = create(lib, 9), create(lib, 19)
    assert [gpu_instance_id(lib, i[0]) for i in (big, small)] == [2, 7]
    assert create(lib, 0) == INSUFFICIENT_RESOURCES
    assert create(lib, 19, placement=Placement(4, 1)) == INSUFFICIENT_RESOURCES
    assert create(lib, 19, placement=Placement(7, 1)) == INVALID_ARGUMENT
    devices = []
    for index in range(lib.number("DeviceGetMaxMigDeviceCount", gpu)):
        found = ctypes.c_void_p()
        if lib.DeviceGetMigDeviceHandleByIndex(gpu, index, ctypes.byref(found)) == SUCCESS:
            devices.append(found)
    assert [d.value for d in devices] == [big[2].value, small[2].value]
    assert [lib.text("DeviceGetName", d) for d in devices] == [
        "NVIDIA A100-SXM4-40GB MIG 3g.20gb", "NVIDIA A100-SXM4-40GB MIG 1g.5gb"]
    assert [lib.memory(d).total // MIB for d in devices] == [20224, 4864]  # 20096 at 0
    assert [lib.number("DeviceGetGpuInstanceId", d) for d in devices] == [2, 7]
    assert [lib.number("DeviceGetIndex", d) for d in devices] == [0, 1]
    assert [lib.number("DeviceIsMigDeviceHandle", d) for d in [gpu, *devices]] == [0, 1, 1]
    found = ctypes.c_void_p()
    for d in devices:
        uuid = lib.text("DeviceGetUUID", d)
        assert uuid.startswith("MIG-")
        assert lib.DeviceGetHandleByUUID(uuid.encode(), ctypes.byref(found)) == SUCCESS
        assert found.value == d.value
        assert lib.DeviceGetDeviceHandleFromMigDeviceHandle(d, ctypes.byref(found)) == SUCCESS
        assert found.value == gpu.value
    # Gone, the handle is none any more; made again at the same place, it has its old UUID.
    uuid = lib.text("DeviceGetUUID", small[2])
    assert lib.ComputeInstanceDestroy(small[1]) == SUCCESS
    assert lib.DeviceGetName(small[2], ctypes.create_string_buffer(96), 96) == INVALID_ARGUMENT
    assert lib.GpuInstanceDestroy(small[0]) == SUCCESS
    assert lib.text("DeviceGetUUID", create(lib, 19)[2]) == uuid


def test_mig_memory_is_the_instances_own(nvml):
    lib = nvml("a100-40gb+mig")
    gi, ci, device = create(lib, 19)
    gi_id = gpu_instance_id(lib, gi)
    other = create(lib, 9)[2]
    holder = lib.hold(600, mig_device(0, gi_id))
    assert lib.memory(device).used == 600 * MIB
    assert lib.memory(other).used == 0
    assert lib.memory(lib.handle()).used == 600 * MIB
    assert holder.reserve(4864 - 600, mig_device(0, gi_id)) == ["error", "ENOMEM"]
    for listed in (lib.processes(device), lib.processes(lib.handle())):
        assert [(p.pid, p.gpuInstanceId, p.computeInstanceId) for p in listed] == [(holder.pid, gi_id, 0)]
    assert lib.processes(other) == []
    assert lib.ComputeInstanceDestroy(ci) == IN_USE
    holder.end()
    wait_until(lambda: lib.ComputeInstanceDestroy(ci) == SUCCESS)
    assert lib.GpuInstanceDestroy(gi) == SUCCESS


def test_mig_destroy_is_in_use_for_a_while(nvml):
    """As after a process that is still being cleaned up: what callers must be ready to try again."""
    lib = nvml("a100-40gb+mig")
    gi, ci, _ = create(lib, 19)
    fault = [BUILD / "sim" / "simhost", "fault", "mig-destroy", "--for", "0.3"]
    done = run(fault, env=lib.host.env)
    assert done.returncode == 0, done.stderr
    assert lib.ComputeInstanceDestroy(ci) == IN_USE
    wait_until(lambda: lib.ComputeInstanceDestroy(ci) == SUCCESS)


@pytest.mark.parametrize("model", ["a100-pcie-80gb", "a100-pcie-80gb-mirrored"])
def test_mig_on_both_dies(nvml, model):
    lib = nvml(model + "+mig")
    gpu, count, places = lib.handle(), ctypes.c_uint(8), (Placement * 8)()
    assert lib.DeviceGetGpuInstancePossiblePlacements_v2(gpu, 19, places, ctypes.byref(count)) == SUCCESS
    starts = [p.start for p in places[:count.value]]
    assert starts == ([0, 1, 2, 4, 5, 6, 7] if model.endswith("mirrored") else list(range(7)))
    assert lib.number("DeviceGetGpuInstanceRemainingCapacity", gpu, 19) == 7
    instances = [create(lib, 19) for _ in range(7)]
    assert sorted(gpu_instance_id(lib, i[0]) for i in instances) == [7 + s for s in starts]
    assert create(lib, 19) == INSUFFICIENT_RESOURCES
    assert lib.number("DeviceGetGpuInstanceRemainingCapacity", gpu, 19) == 0


def cuda_devices(lib, visible, *argv):
    """The devices that CUDA sees with CUDA_VISIBLE_DEVICES (None: not set)."""
    env = dict(lib.host.env) if visible is None else dict(lib.host.env, CUDA_VISIBLE_DEVICES=visible)
    done = run(["/usr/bin/python3", SOURCES / "cuda_devices.py", *argv], env=env)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_cuda_sees_mig_devices(nvml):
    lib = nvml("a100-40gb+mig,t4")
    small, big = create(lib, 19), create(lib, 9)
    uuids = [lib.text("DeviceGetUUID", i[2]) for i in (small, big)]
    names = [[f"NVIDIA A100-SXM4-40GB MIG {p}", u[4:].replace("-", ""), m]
             for u, p, m in zip(uuids, ("1g.5gb", "3g.20gb"), (4864 - 12, 20096 - 48))]
    t4 = cuda_devices(lib, None)
    assert [d[0] for d in t4] == ["Tesla T4"]
    assert cuda_devices(lib, uuids[0]) == [names[0]]
    assert cuda_devices(lib, uuids[1][:14]) == [names[1]]
    gpu = lib.text("DeviceGetUUID", lib.handle())
    assert cuda_devices(lib, f"MIG-{gpu}/{gpu_instance_id(lib, small[0])}/0") == [names[0]]
    # Named as a GPU, it stands for the MIG device that NVML lists first; one is all a process gets.
    assert cuda_devices(lib, gpu) == [names[1]]
    assert cuda_devices(lib, ",".join(uuids)) == [names[0]]
    assert cuda_devices(lib, "MIG-11111111-2222-5333-8444-555555555555") == []
    assert lib.ComputeInstanceDestroy(small[1]) == SUCCESS
    assert cuda_devices(lib, uuids[0]) == []


def test_several_mig_devices_with_a_new_driver(nvml):
    lib = nvml("h100-80gb+mig", "580")
    uuids = [lib.text("DeviceGetUUID", create(lib, 19)[2]) for _ in range(2)]
    assert [d[1] for d in cuda_devices(lib, ",".join(uuids))] == [u[4:].replace("-", "") for u in uuids]


def test_cuda_memory_on_a_mig_device(nvml):
    lib = nvml("a100-40gb+mig")
    small, big = create(lib, 19), create(lib, 9)
    lib.hold(600, mig_device(0, gpu_instance_id(lib, big[0])))
    used, refused = cuda_devices(lib, lib.text("DeviceGetUUID", small[2]), "allocate")[-1]
    assert 1024 < used < 2048 and refused == 2


class Event(ctypes.Structure):
    _fields_ = [("device", ctypes.c_void_p), ("eventType", ctypes.c_ulonglong), ("eventData", ctypes.c_ulonglong),
                ("gpuInstanceId", ctypes.c_uint), ("computeInstanceId", ctypes.c_uint)]


def test_events(nvml):
    lib = nvml("t4,h100-80gb+mig")
    events, event, timeout = ctypes.c_void_p(), Event(), 10
    wait = lambda ms: (lib.EventSetWait_v2(events, ctypes.byref(event), ms), event.eventType, event.eventData)
    assert lib.EventSetCreate(ctypes.byref(events)) == SUCCESS
    xid, double_bit, mig = 8, 2, 0x100
    assert lib.DeviceRegisterEvents(lib.handle(0), ctypes.c_ulonglong(mig), events) == NOT_SUPPORTED
    assert lib.DeviceRegisterEvents(lib.handle(0), ctypes.c_ulonglong(xid | double_bit), events) == SUCCESS
    assert lib.DeviceRegisterEvents(lib.handle(1), ctypes.c_ulonglong(xid | mig), events) == SUCCESS
    assert wait(1)[0] == timeout
    create(lib, 19, gpu=1)
    assert wait(1000)[:2] == (SUCCESS, mig) and event.device == lib.handle(1).value
    assert wait(1)[0] == timeout
    assert run([BUILD / "sim" / "simhost", "fault", "lost", "--gpu", "0"], env=lib.host.env).returncode == 0
    assert wait(1000) == (SUCCESS, xid, 79)
    assert wait(1)[0] == timeout
    lib.host.kill()
    assert wait(1000 * PATIENCE)[0] == UNKNOWN
    assert lib.EventSetFree(events) == SUCCESS


def test_topology(nvml):
    lib = nvml("h100-80gb:2,t4")
    first, second, other = [lib.handle(i) for i in range(3)]
    status, level, cpus = ctypes.c_int(), ctypes.c_int(), (ctypes.c_ulong * 16)()
    assert lib.DeviceGetP2PStatus(first, second, 0, ctypes.byref(status)) == SUCCESS and status.value == 0
    assert lib.DeviceGetP2PStatus(first, other, 0, ctypes.byref(status)) == SUCCESS and status.value == 5
    assert lib.DeviceGetTopologyCommonAncestor(first, other, ctypes.byref(level)) == SUCCESS and level.value == 40
    assert lib.DeviceGetCpuAffinity(first, 16, cpus) == SUCCESS
    assert sum(bin(word).count("1") for word in cpus) == os.sysconf("SC_NPROCESSORS_CONF")


class Temperature(ctypes.Structure):
    _fields_ = [("version", ctypes.c_uint), ("sensor", ctypes.c_uint), ("temperature", ctypes.c_int)]


@pytest.mark.parametrize("driver, known", [("550", False), ("580", True)])
def test_temperature_as_newer_clients_ask_for_it(nvml, driver, known):
    """nvitop and nvidia-ml-py of 2025 do so first, and fall back only where the driver does not know the call."""
    lib = nvml("h100-80gb", driver=driver)
    device, asked = lib.handle(0), Temperature(ctypes.sizeof(Temperature) | 1 << 24)
    assert lib.DeviceGetTemperatureV(device, ctypes.byref(asked)) == (SUCCESS if known else 13)
    assert not known or abs(asked.temperature - lib.number("DeviceGetTemperature", device, 0)) <= 2
    if known:
        assert lib.DeviceGetTemperatureV(device, None) == 2
        asked.version = 1
        assert lib.DeviceGetTemperatureV(device, ctypes.byref(asked)) == 25
        asked.version, asked.sensor = ctypes.sizeof(Temperature) | 1 << 24, 9
        assert lib.DeviceGetTemperatureV(device, ctypes.byref(asked)) == 2


def test_clients_survive_every_model(nvml):
    """Each of the models gives an answer to what monitoring asks for."""
    listed = json.loads(run([BUILD / "sim" / "simhost", "list", "--json"]).stdout)
    keys = [m["key"] for m in listed]
    assert len(keys) >= 24
    lib = nvml(",".join(keys))
    for index in range(len(keys)):
        device = lib.handle(index)
        memory = lib.memory(device)
        assert memory.total == memory.reserved + memory.free
        limit = lib.number("DeviceGetEnforcedPowerLimit", device)
        assert 0 < lib.number("DeviceGetPowerUsage", device) < limit
        assert lib.number("DeviceGetTemperature", device, 0) < 60
        assert lib.number("DeviceGetMaxClockInfo", device, 1) >= lib.number("DeviceGetClockInfo", device, 1)
        assert mig_mode(lib, index) in ((0, 0), NOT_SUPPORTED)


def test_private_process_lists(nvml):
    lib = nvml()
    outsider = lib.hold(600)
    compute, *others = json.loads(run(["/usr/bin/python3", SOURCES / "private_lists.py"], env=lib.host.env).stdout)
    assert [(pid, mib) for pid, mib, _ in compute] == [(outsider.pid, 600)] and others == [[], []]
    assert compute[0][2].endswith("sim_client")
    # In a slice, the front keeps them to the slice's processes.
    done = run([BUILD / "carve", "run", "--vram", "4", "--", "/usr/bin/python3", SOURCES / "private_lists.py", "context"],
               env=lib.host.env)
    assert done.returncode == 0, done.stderr
    compute, *others = json.loads(done.stdout)
    assert len(compute) == 1 and compute[0][0] != outsider.pid and others == [[], []]


class ComputeProfile(ctypes.Structure):
    _fields_ = [(n, ctypes.c_uint) for n in ("version", "id", "slices", "instances", "sm", "ce", "dec", "enc", "jpeg",
                                             "ofa")] + [("name", ctypes.c_char * 96)]


class Attributes(ctypes.Structure):
    _fields_ = [(n, ctypes.c_uint) for n in ("sm", "ce", "dec", "enc", "jpeg", "ofa", "gi_slices", "ci_slices")] + [
        ("memory_mib", ctypes.c_ulonglong)]


def whole_compute_profile(lib, gi):
    """The one with most SMs; and as many compute instances of each as there are places."""
    found = []
    for profile_enum in range(8):
        info = ComputeProfile(version=version_of(ComputeProfile, 2))
        if lib.GpuInstanceGetComputeInstanceProfileInfoV(gi, profile_enum, 0, ctypes.byref(info)) == SUCCESS:
            assert lib.number("GpuInstanceGetComputeInstanceRemainingCapacity", gi, info.id) == info.instances
            found.append(info)
    return max(found, key=lambda info: (info.sm, info.slices))


def check_profile(lib, gpu, info):
    """Makes an instance of the profile at each of its places, uses it whole, and takes it away."""
    count, places = ctypes.c_uint(12), (Placement * 12)()
    assert lib.DeviceGetGpuInstancePossiblePlacements_v2(gpu, info.id, places, ctypes.byref(count)) == SUCCESS
    assert info.instances <= count.value
    for place in places[:count.value]:
        gi, ci, compute = ctypes.c_void_p(), ctypes.c_void_p(), ComputeInstanceInfo()
        assert lib.DeviceCreateGpuInstanceWithPlacement(gpu, info.id, ctypes.byref(place),
                                                        ctypes.byref(gi)) == SUCCESS
        whole = whole_compute_profile(lib, gi)
        assert (whole.sm, whole.name) == (info.sm, info.name)
        assert lib.GpuInstanceCreateComputeInstance(gi, whole.id, ctypes.byref(ci)) == SUCCESS
        assert lib.ComputeInstanceGetInfo_v2(ci, ctypes.byref(compute)) == SUCCESS
        device, attributes = ctypes.c_void_p(compute.device), Attributes()
        assert lib.DeviceGetAttributes_v2(device, ctypes.byref(attributes)) == SUCCESS
        assert (attributes.sm, attributes.gi_slices) == (info.sm, info.slices)
        # On some boards an instance has a little more at one place than at the other; with shared memory, all or none.
        assert 0 <= attributes.memory_mib - info.memory_mib <= 128
        assert lib.memory(device).total == (attributes.memory_mib * MIB or lib.memory(gpu).total)
        assert lib.text("DeviceGetName", device).endswith(info.name.decode())
        assert lib.ComputeInstanceDestroy(ci) == lib.GpuInstanceDestroy(gi) == SUCCESS


def test_every_mig_profile_of_every_board(nvml):
    listed = json.loads(run([BUILD / "sim" / "simhost", "list", "--json"]).stdout)
    boards = [m["key"] for m in listed if m["mig"]]
    assert len(boards) >= 15
    lib = nvml(",".join(key + "+mig" for key in boards))
    for index in range(len(boards)):
        profiles = list(gpu_profiles(lib, lib.handle(index)))
        assert len(profiles) >= 5
        for info in profiles:
            check_profile(lib, lib.handle(index), info)
