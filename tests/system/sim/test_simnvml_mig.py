"""The troubles of MIG for users of real drivers, played by the simulated host: each failure that its faults can make."""
import ctypes
import json
import subprocess
import sys
import time

import pytest

from conftest import BUILD, ON_GPU, PATIENCE, run, wait_until
from nvml_host import (IN_USE, INSUFFICIENT_RESOURCES, NOT_FOUND, NOT_SUPPORTED, SUCCESS, Placement, create,
                       gpu_instance_id, gpu_profiles, mig_device, mig_mode, nvml, set_mig_mode)  # noqa: F401: fixture
from programs import SOURCES, python

pytestmark = pytest.mark.skipif(ON_GPU, reason="tests the simulated driver")

TIMEOUT, RESET_REQUIRED = 10, 16
WHOLE, HALF, QUARTER, SMALL = 0, 9, 14, 19  # profile IDs of an A100 or H100


def fault(lib, *argv):
    done = run([BUILD / "sim" / "simhost", "fault", *map(str, argv)], env=lib.host.env)
    assert done.returncode == 0, done.stderr


def gpu_instances(lib, profile, gpu=0):
    found, count = (ctypes.c_void_p * 8)(), ctypes.c_uint()
    assert lib.DeviceGetGpuInstances(lib.handle(gpu), profile, found, ctypes.byref(count)) == SUCCESS
    return [ctypes.c_void_p(instance) for instance in found[:count.value]]


def compute_instances(lib, instance, profile=0):
    found, count = (ctypes.c_void_p * 8)(), ctypes.c_uint()
    assert lib.GpuInstanceGetComputeInstances(instance, profile, found, ctypes.byref(count)) == SUCCESS
    return [ctypes.c_void_p(compute) for compute in found[:count.value]]


def make_gpu_instance(lib, profile=SMALL, start=0, size=1):
    instance, placement = ctypes.c_void_p(), Placement(start, size)
    result = lib.DeviceCreateGpuInstanceWithPlacement(lib.handle(), profile, ctypes.byref(placement),
                                                      ctypes.byref(instance))
    return result, instance


@pytest.fixture
def monitor():
    started = []

    def start(lib):
        env = dict(lib.host.env, LD_LIBRARY_PATH=str(BUILD / "sim"))
        process = subprocess.Popen([sys.executable, SOURCES / "nvml_monitor.py"], env=env, stdin=subprocess.PIPE,
                                   stdout=subprocess.PIPE, text=True)
        started.append(process)
        assert process.stdout.readline() == "ready\n"
        return process

    yield start
    for process in started:
        process.kill()
        process.wait()


def test_a_held_handle_is_in_use_until_its_holder_ends(nvml, monitor):
    lib = nvml("a100-40gb+mig")
    gi, ci, _ = create(lib, SMALL)
    other = create(lib, SMALL)
    holder = monitor(lib)
    fault(lib, "mig-hold", "--gpu", 0, "--instance", gpu_instance_id(lib, gi), "--pid", holder.pid)
    assert lib.ComputeInstanceDestroy(ci) == IN_USE
    assert lib.processes(lib.handle()) == []  # nobody is to be seen
    assert lib.ComputeInstanceDestroy(other[1]) == lib.GpuInstanceDestroy(other[0]) == SUCCESS
    holder.kill()
    wait_until(lambda: lib.ComputeInstanceDestroy(ci) == SUCCESS)
    assert lib.GpuInstanceDestroy(gi) == SUCCESS


def test_a_held_gpu_neither_changes_its_mode_nor_gets_its_first_instance(nvml, monitor):
    lib = nvml("h100-80gb,h100-80gb+mig")
    holder = monitor(lib)
    fault(lib, "mig-hold", "--pid", holder.pid)
    assert set_mig_mode(lib, 1) == (SUCCESS, IN_USE)
    assert mig_mode(lib) == (0, 1)
    assert create(lib, SMALL, gpu=1) == IN_USE
    holder.kill()
    wait_until(lambda: set_mig_mode(lib, 1) == (SUCCESS, SUCCESS))
    assert not isinstance(create(lib, SMALL, gpu=1), int)


def test_a_compute_instance_is_refused_and_the_rollback_fails(nvml):
    lib = nvml("h100-80gb+mig")
    fault(lib, "mig-create", "--call", "nvmlGpuInstanceCreateComputeInstance", "--count", 1)
    fault(lib, "mig-destroy", "--call", "nvmlGpuInstanceDestroy", "--count", 2)
    result, instance = make_gpu_instance(lib)
    assert result == SUCCESS
    compute = ctypes.c_void_p()
    assert lib.GpuInstanceCreateComputeInstance(instance, 0, ctypes.byref(compute)) == INSUFFICIENT_RESOURCES
    # Without a compute instance it is no device, but it is there.
    found = ctypes.c_void_p()
    assert lib.DeviceGetMigDeviceHandleByIndex(lib.handle(), 0, ctypes.byref(found)) == NOT_FOUND
    assert [i.value for i in gpu_instances(lib, SMALL)] == [instance.value]
    assert [lib.GpuInstanceDestroy(instance) for _ in range(3)] == [IN_USE, IN_USE, SUCCESS]


def test_an_instance_is_made_though_the_call_failed(nvml):
    lib = nvml("h100-80gb+mig")
    fault(lib, "mig-create", "--after", "--error", TIMEOUT, "--count", 1)
    assert make_gpu_instance(lib)[0] == TIMEOUT
    instance, = gpu_instances(lib, SMALL)
    fault(lib, "mig-create", "--after", "--count", 1, "--error", TIMEOUT)
    assert lib.GpuInstanceCreateComputeInstance(instance, 0, ctypes.byref(ctypes.c_void_p())) == TIMEOUT
    compute, = compute_instances(lib, instance)
    # And likewise: destroyed, though the call says that it failed.
    fault(lib, "mig-destroy", "--after", "--count", 2, "--error", TIMEOUT)
    assert lib.ComputeInstanceDestroy(compute) == TIMEOUT
    assert lib.ComputeInstanceDestroy(compute) == NOT_FOUND
    assert lib.GpuInstanceDestroy(instance) == TIMEOUT
    assert gpu_instances(lib, SMALL) == []


def test_a_compute_instance_is_gone_and_its_gpu_instance_left(nvml):
    lib = nvml("h100-80gb+mig")
    gi, ci, device = create(lib, SMALL)
    fault(lib, "mig-destroy", "--call", "nvmlGpuInstanceDestroy")
    assert lib.ComputeInstanceDestroy(ci) == SUCCESS
    assert lib.GpuInstanceDestroy(gi) == IN_USE
    assert make_gpu_instance(lib, start=6)[0] == INSUFFICIENT_RESOURCES  # it still has its place


def test_a_placement_is_somebody_elses(nvml):
    """Resources that nothing shows are missing at one place; elsewhere there are some."""
    lib = nvml("h100-80gb+mig")
    fault(lib, "mig-create", "--count", 1)
    assert make_gpu_instance(lib, start=0)[0] == INSUFFICIENT_RESOURCES
    assert gpu_instances(lib, SMALL) == []
    assert make_gpu_instance(lib, start=1)[0] == SUCCESS


def test_changes_take_time_one_at_a_time(nvml):
    lib = nvml("h100-80gb+mig")
    fault(lib, "mig-time", "--delay", 0.2)
    began = time.monotonic()
    gi, ci, _ = create(lib, SMALL)
    assert time.monotonic() - began >= 0.4
    # A second change of the same GPU waits for the first.
    child = subprocess.Popen([sys.executable, SOURCES / "mig_destroy.py", str(gpu_instance_id(lib, gi))],
                             stdout=subprocess.PIPE, env=dict(lib.host.env, LD_LIBRARY_PATH=str(BUILD / "sim")), text=True)
    assert child.stdout.readline() == "destroying\n"
    wait_until(lambda: compute_instances(lib, gi) == [])
    began = time.monotonic()
    assert make_gpu_instance(lib)[0] == SUCCESS
    assert time.monotonic() - began >= 0.2
    assert child.wait(PATIENCE) == 0
    fault(lib, "mig-time", "--clear")


def test_changes_take_what_they_take_on_real_gpus(nvml):
    lib = nvml("a30-24gb+mig")
    fault(lib, "mig-time")
    began = time.monotonic()
    assert lib.DeviceCreateGpuInstance(lib.handle(), 14, ctypes.byref(ctypes.c_void_p())) == SUCCESS
    assert time.monotonic() - began >= 0.082  # three quarters of 110 ms


def test_a_lock_times_out(nvml):
    lib = nvml("h100-80gb+mig")
    fault(lib, "mig-create", "--delay", 0.3, "--error", TIMEOUT, "--count", 1)
    began = time.monotonic()
    assert make_gpu_instance(lib)[0] == TIMEOUT
    assert time.monotonic() - began >= 0.3
    assert gpu_instances(lib, SMALL) == []


def test_remaining_capacity_is_wrong(nvml):
    lib = nvml("h100-80gb+mig")
    assert make_gpu_instance(lib, HALF, 0, 4)[0] == SUCCESS
    assert lib.number("DeviceGetGpuInstanceRemainingCapacity", lib.handle(), SMALL) == 3
    fault(lib, "mig-capacity")
    assert lib.number("DeviceGetGpuInstanceRemainingCapacity", lib.handle(), SMALL) == 7
    assert make_gpu_instance(lib, start=0)[0] == INSUFFICIENT_RESOURCES


def test_ids_do_not_tell_placements(nvml):
    lib = nvml("a100-40gb+mig")
    fault(lib, "mig-ids")
    ids = [gpu_instance_id(lib, make_gpu_instance(lib, HALF, start, 4)[1]) for start in (0, 4)]
    assert ids == [2, 1]


@pytest.mark.parametrize("driver, small, whole", [("595", "1g.35gb", "7g.278gb"), ("610", "1g.31gb", "7g.251gb")])
def test_names_depend_on_the_driver(nvml, driver, small, whole):
    lib = nvml("gb300-278gb+mig", driver)
    names = {info.id: info.name.decode() for info in gpu_profiles(lib, lib.handle())}
    assert (names[SMALL], names[WHOLE]) == (f"MIG {small}", f"MIG {whole}")


def test_instances_that_fit_cannot_always_be_made(nvml):
    lib = nvml("b300-269gb+mig", "580")
    assert make_gpu_instance(lib, HALF, 4, 4)[0] == make_gpu_instance(lib, QUARTER, 0, 2)[0] == SUCCESS
    assert lib.number("DeviceGetGpuInstanceRemainingCapacity", lib.handle(), QUARTER) == 1
    assert make_gpu_instance(lib, QUARTER, 2, 2)[0] == INSUFFICIENT_RESOURCES


def test_a_mode_stays_pending_until_a_reset(nvml):
    lib = nvml("a100-40gb")
    fault(lib, "mig-mode")
    assert set_mig_mode(lib, 1) == (SUCCESS, RESET_REQUIRED)
    assert mig_mode(lib) == (0, 1)
    fault(lib, "reset", "--gpu", 0)
    assert mig_mode(lib) == (1, 1)


def test_a_mode_waits_for_other_programs_that_have_the_driver_open(nvml, monitor):
    lib = nvml("a100-40gb")
    fault(lib, "mig-clients")
    other = monitor(lib)
    assert set_mig_mode(lib, 1) == (SUCCESS, IN_USE)
    other.kill()
    wait_until(lambda: set_mig_mode(lib, 1) == (SUCCESS, SUCCESS))


def test_a_reset_ends_what_ran_there_and_instances_are_gone(nvml):
    lib = nvml("a100-40gb+mig,h100-80gb")
    gi, _, device = create(lib, SMALL)
    uuid = lib.text("DeviceGetUUID", device)
    holder = lib.hold(600, mig_device(0, gpu_instance_id(lib, gi)))
    elsewhere = lib.hold(600, 1)
    fault(lib, "reset", "--gpu", 0)
    assert gpu_instances(lib, SMALL) == []
    assert holder.reserve(1)[0] == "error"
    assert elsewhere.reserve(1, 1)[0] == "ok"
    assert lib.memory(lib.handle()).used == 0
    assert mig_mode(lib) == (1, 1)
    # Made again at the same place, the instance has the same UUID, of whatever profile it is.
    again = create(lib, SMALL)
    assert lib.text("DeviceGetUUID", again[2]) == uuid
    assert lib.ComputeInstanceDestroy(again[1]) == lib.GpuInstanceDestroy(again[0]) == SUCCESS
    with_media = create(lib, 20, placement=Placement(6, 1), compute=0)
    assert lib.text("DeviceGetUUID", with_media[2]) == uuid


@pytest.mark.parametrize("model, kept", [("a100-40gb", True), ("h100-80gb", False), ("b200-180gb", False)])
def test_a_reboot_keeps_the_mode_on_ampere_alone(nvml, model, kept):
    lib = nvml(model + "+mig")
    assert not isinstance(create(lib, SMALL), int)
    fault(lib, "reboot")
    assert mig_mode(lib) == ((1, 1) if kept else (0, 0))
    if kept:
        assert gpu_instances(lib, SMALL) == []


def test_profiles_may_have_no_memory_of_their_own(nvml):
    lib = nvml("thor-128gb+mig")
    found = list(gpu_profiles(lib, lib.handle()))
    assert [info.name.decode() for info in found][:3] == ["MIG 1g.0gb", "MIG 2g.0gb", "MIG 3g.0gb"]
    assert {info.memory_mib for info in found} == {0}
    one = lib.DeviceCreateGpuInstance(lib.handle(), found[0].id, ctypes.byref(ctypes.c_void_p()))
    assert one == SUCCESS
    assert lib.DeviceCreateGpuInstance(lib.handle(), found[1].id,
                                       ctypes.byref(ctypes.c_void_p())) == INSUFFICIENT_RESOURCES


def test_a_virtual_machines_gpu_cannot_be_managed(nvml):
    lib = nvml("h100-80gb,h100-80gb+mig")
    fault(lib, "vgpu", "--gpu", 0)
    assert mig_mode(lib) == NOT_SUPPORTED
    assert set_mig_mode(lib, 1)[0] == NOT_SUPPORTED
    assert list(gpu_profiles(lib, lib.handle())) == []
    assert not isinstance(create(lib, SMALL, gpu=1), int)


def test_faults_say_what_goes_with_what(nvml):
    lib = nvml("h100-80gb+mig")
    for argv, words in ((("mig-hold", "--instance", "3"), "--instance needs --gpu"),
                        (("alloc", "--after"), "--after goes with"), (("reset", "--gpu", "9"), "fault"),
                        (("mig-hold", "--gpu", "0", "--instance", "3"), "fault")):
        done = run([BUILD / "sim" / "simhost", "fault", *argv], env=lib.host.env)
        assert done.returncode in (1, 2) and words in done.stderr, done.stderr
    done = run([BUILD / "sim" / "simhost", "fault", "mig-create", "--after", "--gpu", "0", "--json"], env=lib.host.env)
    assert json.loads(done.stdout)["after"] is True
    fault(lib, "all", "--clear")
    assert not isinstance(create(lib, SMALL), int)


@pytest.mark.timed
@pytest.mark.once("it judges the time that work of the simulated GPU takes")
def test_counters_tell_how_busy_each_instance_and_the_gpu_is(nvml):
    lib = nvml("h100-80gb+mig")
    (half_gi, _, half), (small_gi, _, _) = create(lib, HALF), create(lib, SMALL)
    uuid = lib.text("DeviceGetUUID", half)
    busy = lib.host.popen(python("busy"), env={"CUDA_VISIBLE_DEVICES": uuid})
    wait_until(lambda: lib.host.stat()["gpus"][0]["busy_ns"])
    numbers = [gpu_instance_id(lib, gi) for gi in (half_gi, small_gi)]

    def seen():
        done = lib.host.run(python("nvml_gpm", *numbers, 77))
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    told = seen()
    whole, of_half, of_small, of_none = told.pop("busy")
    assert of_half > 80 and of_small == 0 and of_none == "error 2"
    assert abs(whole - of_half * 60 / 132) < 2  # its multiprocessors
    assert told == {"support": 1, "rates": NOT_SUPPORTED, "sm": "error 3"}
    busy.kill()
    busy.wait()
    wait_until(lambda: seen()["busy"][:2] == [0, 0])


def test_gpus_before_hopper_have_no_counters(nvml):
    lib = nvml("a100-40gb+mig")
    gi, _, _ = create(lib, SMALL)
    done = lib.host.run(python("nvml_gpm", gpu_instance_id(lib, gi)))
    assert json.loads(done.stdout) == {"support": 0, "rates": NOT_SUPPORTED, "busy": ["error 3"] * 2, "sm": "error 3"}
