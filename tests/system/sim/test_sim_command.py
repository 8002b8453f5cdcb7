"""The view of users of `carve sim`: its words, its faults, its books."""
import json

import pytest

from conftest import BUILD, run, sim_run, wait_until

CARVE = BUILD / "carve"
MIB = 1 << 20

# Allocates by several families at once; prints each call's result.
ALLOCATE = """
import ctypes as C, sys
cuda = C.CDLL("libcuda.so.1")
context, pointer = C.c_void_p(), C.c_uint64()
assert cuda.cuInit(0) == 0 and cuda.cuCtxCreate_v2(C.byref(context), 0, 0) == 0
calls = {"linear": lambda: cuda.cuMemAlloc_v2(C.byref(pointer), C.c_size_t(4096)),
         "managed": lambda: cuda.cuMemAllocManaged(C.byref(pointer), C.c_size_t(4096), 1),
         "pool": lambda: cuda.cuMemAllocAsync(C.byref(pointer), C.c_size_t(4096), None)}
for line in sys.stdin:
    print(calls[line.strip()](), flush=True)
"""


@pytest.mark.parametrize("argv", [
    ["--gpus", "bogus", "--", "true"], ["--driver", "999", "--", "true"], ["stat"], ["stat", "--bogus"],
    ["trace"], ["fault", "bogus"], ["fault", "alloc", "--gpu"], ["fault", "--bogus"]])
def test_errors_are_one_line_of_carve_sim(argv):
    done = run([CARVE, "sim", *argv])
    assert done.returncode in (2, 4)
    assert done.stderr.startswith("carve sim: ") and len(done.stderr.splitlines()) == 1
    assert "simhost" not in done.stderr


@pytest.mark.parametrize("ask", [lambda verb: ["sim", verb, "--help"], lambda verb: ["help", "sim", verb]])
@pytest.mark.parametrize("verb,words", [
    ("list", ["--json"]), ("stat", ["--json", "--watch"]), ("trace", ["FILE"]),
    ("fault", ["alloc", "launch", "ecc", "lost", "hang", "nvml", "mig-create", "mig-destroy", "mig-hold", "mig-time",
               "mig-capacity", "mig-ids", "mig-mode", "mig-clients", "vgpu", "reset", "reboot", "list-managed", "--gpu",
               "--instance", "--pid", "--call", "--skip", "--count", "--for", "--delay", "--error", "--after", "--clear",
               "Contexts opened later are not hit"])])
def test_help_names_everything(verb, words, ask):
    done = run([CARVE, *ask(verb)])
    assert done.returncode == 0 and "simhost" not in done.stdout
    assert f"carve sim {verb}" in done.stdout
    assert [w for w in words if w not in done.stdout] == []


def test_allocation_faults_hit_every_call(make_host):
    """Also calls that are served from memory that the process has already."""
    host = make_host("t4-16gb")
    p = host.popen(["/usr/bin/python3", "-c", ALLOCATE], stdin=-1)

    def allocate(family):
        p.stdin.write(family + "\n")
        p.stdin.flush()
        return int(p.stdout.readline())

    def fault(*argv):
        assert host.carve("sim", "fault", *argv).returncode == 0

    assert [allocate(f) for f in ("linear", "managed", "pool")] == [0, 0, 0]
    for family in ("linear", "managed", "pool"):
        fault("alloc", "--count", "1")
        assert [allocate(family), allocate(family)] == [2, 0], family
    fault("alloc", "--error", "304", "--count", "1")
    assert [allocate("linear"), allocate("linear")] == [304, 0]
    fault("alloc", "--call", "cuMemAllocManaged", "--count", "1")
    assert [allocate("linear"), allocate("managed"), allocate("managed")] == [0, 2, 0]
    fault("alloc", "--skip", "2", "--count", "1")
    assert [allocate("linear") for _ in range(4)] == [0, 0, 2, 0]
    p.communicate("")


@pytest.mark.parametrize("options, said", [
    (["--call", "nosuchcall"], "--call: no simulated driver has a function 'nosuchcall'"),
    (["--call", "cuMemAllocHost_v3"], "no simulated driver has a function 'cuMemAllocHost_v3'"),
    (["--call", "x" * 300], "no simulated driver has a function 'xxx"), (["--call", ""], "no simulated driver has a function ''"),
    (["--pid", "99999999"], "--pid: there is no process 99999999"), (["--pid", "0"], "--pid: '0' is outside 1 to"),
    (["--for", "0"], "--for: '0' leaves the fault no time"), (["--count", "0"], "--count: '0' is outside 1 to")])
def test_a_fault_that_could_hit_nothing_is_refused(make_host, options, said):
    host = make_host("t4-16gb")
    done = host.carve("sim", "fault", "alloc", *options)
    assert done.returncode == 2 and said in done.stderr and done.stderr.count("\n") == 1, done.stderr


def test_a_fault_takes_the_functions_of_every_driver(make_host):
    host = make_host("t4-16gb")
    for call in ("cuMemAlloc_v2", "cuLaunchKernel_ptsz", "nvmlDeviceGetName", "nvmlDeviceSetMemoryLimits_v1"):
        done = host.carve("sim", "fault", "alloc", "--call", call, "--count", "1")
        assert done.returncode == 0, done.stderr
    assert host.carve("sim", "fault", "alloc", "--clear", "--pid", "99999999").returncode == 0


def test_short_busy_times_are_shown(make_host, programs):
    host = make_host("h100-80gb")
    assert host.run([programs / "cuda_kernels", "globals"]).returncode == 0
    busy = host.stat()["gpus"][0]["busy_ns"]
    assert 0 < busy < 10**6
    text = host.carve("sim", "stat").stdout
    assert "busy 0.000" not in text and " us" in text


def test_stat_has_the_keys_of_the_contract():
    done = sim_run("t4-16gb", ["/usr/bin/python3", "-c", ALLOCATE + f"""
import subprocess
subprocess.run([{str(CARVE)!r}, "sim", "stat", "--json"])"""])
    gpu, = json.loads(done.stdout)["gpus"]
    assert {"index", "uuid", "memory_used_bytes", "busy_ns", "processes"} <= set(gpu)
    process, = gpu["processes"]
    assert {"pid", "memory_bytes", "busy_ns", "launches", "unsupported"} <= set(process)
    assert gpu["memory_used_bytes"] == process["memory_bytes"] > 50 * MIB


def test_a_fault_for_what_the_host_does_not_have(make_host):
    host = make_host("h100-80gb:2+mig")
    for words, why in ((("--gpu", "7"), "there is no GPU 7 on this host; it has GPUs 0 to 1"),
                       (("--gpu", "1", "--instance", "3"), "GPU 1 has no GPU instance 3")):
        done = host.carve("sim", "fault", "lost", *words)
        assert done.returncode == 2 and why in done.stderr and done.stderr.count("\n") == 1
    assert host.carve("sim", "fault", "lost", "--gpu", "1").returncode == 0


def test_a_simulated_host_serves_beyond_the_soft_limits_of_its_shell():
    done = run(["sh", "-c", 'ulimit -S -f 1; "$@"', "sh", CARVE, "sim", "--", CARVE, "sim", "stat", "--json"])
    assert done.returncode == 0 and json.loads(done.stdout), done.stderr


def test_a_host_that_may_write_no_file_says_so():
    done = run(["sh", "-c", 'ulimit -f 1; "$@"', "sh", CARVE, "sim", "--", "true"])
    assert done.returncode == 125 and "File too large" in done.stderr and len(done.stderr.splitlines()) == 1, done.stderr


@pytest.mark.parametrize("release", ["550", "610"])
def test_a_compiler_links_with_the_simulated_driver_by_its_name(tmp_path, release):
    """LIBRARY_PATH says where it is; nobody needs to know a path of carve's."""
    source = "int cuInit(unsigned); int cuDeviceGetCount(int *); int main(void) { int n = 0; return cuInit(0) || cuDeviceGetCount(&n) || n != 1; }"
    steps = f"echo '{source}' > p.c && cc p.c -o p -lcuda -lnvidia-ml && exec ./p"
    done = run([CARVE, "sim", "--driver", release, "--", "sh", "-c", steps], cwd=tmp_path)
    assert done.returncode == 0, done.stderr


def test_all_faults_are_cleared_by_clear_alone(make_host):
    host = make_host("h100-80gb")
    for fault in ["lost", "--gpu", "0"], ["nvml", "--call", "nvmlDeviceGetName", "--error", "999"]:
        assert host.carve("sim", "fault", *fault).returncode == 0
    assert host.carve("gpu", "list", "--json").returncode == 0 and host.carve_json("gpu", "list")[0]["state"] == "lost"
    done = host.carve("sim", "fault", "--clear")
    assert (done.returncode, done.stderr) == (0, "")
    wait_until(lambda: host.carve_json("gpu", "list")[0]["state"] == "ok")
    assert "KIND is missing" in host.carve("sim", "fault", "--gpu", "0").stderr
