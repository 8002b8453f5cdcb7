"""The simulated libcuda, by programs against the driver API. A real driver does all that is expected here, too."""
import json
import os
import signal
import subprocess
import sys

import pytest

from conftest import BUILD, PATIENCE, run, sim_run, wait_until

MIB = 1 << 20


def checks(program):
    """The checks that a program has; itself it needs no GPU to name them."""
    return subprocess.run([BUILD / "tests/programs" / program], stdout=subprocess.PIPE, text=True,
                          env=dict(os.environ, LD_LIBRARY_PATH=str(BUILD / "sim"))
                          ).stdout.split()


def alone(program):
    return [c for c in checks(program)
            if c not in ("ask", "hold", "unsupported", "work", "years") and not c.endswith("-child")]


def on_host(argv, gpus="h100-80gb", driver=None, **kw):
    options = ["--gpus", gpus] + (["--driver", driver] if driver else [])
    return run([BUILD / "sim/simhost", "run", *options, "--", *argv], **kw)


@pytest.mark.parametrize("check", alone("cuda_basic"))
def test_basic(check, programs):
    done = on_host([programs / "cuda_basic", check])
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("check", alone("cuda_breadth"))
def test_breadth(check, programs):
    done = on_host([programs / "cuda_breadth", check], gpus="h100-80gb:2")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("check", alone("cuda_extras"))
def test_extras(check, programs):
    done = on_host([programs / "cuda_extras", check], gpus="h100-80gb:2", driver="580")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("check", alone("cuda_memory"))
def test_memory(check, programs):
    done = on_host([programs / "cuda_memory", check])
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("check", ["pool", "vmm", "managed", "ipc", "vmm-share", "pool-share"])
def test_no_file_size_limit_of_a_program_binds_device_memory(check, programs):
    """As on a real GPU, whatever `ulimit -f` the shell of the program set."""
    done = on_host(["sh", "-c", 'ulimit -f 0; exec "$@"', "sh", programs / "cuda_memory", check])
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("check", alone("cuda_kernels"))
def test_kernels(check, programs):
    done = on_host([programs / "cuda_kernels", check])
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("check", alone("cuda_graphs"))
def test_graphs(check, programs):
    done = on_host([programs / "cuda_graphs", check])
    assert done.returncode == 0, done.stderr


@pytest.mark.timed
def test_processes_share_the_gpu_by_time(make_host, programs):
    """Kernels of 5 ms, 200 ms of them in each process: alone as long as that, three at once thrice."""
    host = make_host("h100-80gb")

    def together(count):
        processes = [host.popen([programs / "cuda_kernels", "work", "200", "wait"],
                                stdin=subprocess.PIPE) for _ in range(count)]
        for p in processes:
            assert p.stdout.readline() == "ready\n"
        for p in processes:
            p.stdin.write("\n")
            p.stdin.flush()
        return [float(p.communicate()[0]) for p in processes]

    assert 0.2 <= together(1)[0] < 0.4
    for seconds in together(3):
        assert 0.55 < seconds < 1.2


def test_event_times_are_the_models(programs):
    """512 MiB at the memory's speed, however long this machine takes over it."""
    done = on_host([programs / "cuda_basic", "events"])
    ms = float(done.stdout)
    assert 0.12 < ms < 2.0


def test_devices_in_the_order_asked_for(programs):
    def names(**env):
        done = on_host([programs / "cuda_basic", "devices"], gpus="t4,h100-80gb:2",
                       env=dict(os.environ, **env))
        assert done.returncode == 0, done.stderr
        return [line.split(" GPU-")[0].split(" ", 1)[1] for line in done.stdout.splitlines()]

    h100, t4 = "NVIDIA H100 80GB HBM3", "Tesla T4"
    assert names() == [h100, h100, t4]
    assert names(CUDA_DEVICE_ORDER="PCI_BUS_ID") == [t4, h100, h100]
    assert names(CUDA_DEVICE_ORDER="PCI_BUS_ID", CUDA_VISIBLE_DEVICES="2,0") == [h100, t4]
    assert names(CUDA_VISIBLE_DEVICES="2,7,0") == [t4]


def test_visible_by_uuid(make_host, programs):
    host = make_host("h100-80gb:3")
    uuids = [g["uuid"] for g in host.stat()["gpus"]]
    listed = host.run([programs / "cuda_basic", "devices"],
                      env={"CUDA_VISIBLE_DEVICES": f"{uuids[2]},{uuids[0][:14]}"}).stdout
    assert [line.split()[-3] for line in listed.splitlines()] == [uuids[2], uuids[0]]


def test_no_device_without_a_host(programs):
    done = run([programs / "cuda_basic", "contexts"],
               env={"LD_LIBRARY_PATH": str(BUILD / "sim"), "PATH": os.environ["PATH"]})
    assert done.returncode == 1 and "gives 100" in done.stderr


def test_version_dependent_functions(programs):
    for driver, newest in (("550", "v3"), ("580", "v4")):
        done = on_host([programs / "cuda_basic", "procaddr"], driver=driver)
        assert (done.returncode, done.stdout.strip()) == (0, newest), done.stderr


# Functions and the first release of the driver that has each, as far as these are played.
FIRST_RELEASES = {
    "cuGraphAddNode_v2": "550", "cuStreamBeginCaptureToGraph_ptsz": "550", "cuMemcpyBatchAsync": "580", "cuMemcpyBatchAsync_v2_ptsz": "580",
    "cuCheckpointProcessLock": "580", "cuMulticastBindMem_v2": "595", "cuMulticastBindAddr_v2": "595", "cuDevSmResourceSplit": "595",
    "cuGraphGetId": "595", "cuMemcpyWithAttributesAsync": "595", "cuMemcpy3DWithAttributesAsync_ptsz": "595", "cuLaunchHostFunc_v2": "595",
    "cuStreamBeginCaptureToCig": "595", "cuGraphNodeGetParams": "595", "cuLogicalEndpointBindMem": "610", "cuLogicalEndpointBindAddr": "610",
    "cuStreamBeginRecaptureToGraph": "610", "cuGraphAddNode_v3": "615", "cuMemGetLocationInfo": "615", "cuCheckpointOperationComplete": "615"}
RELEASES = ["535", "550", "580", "595", "610", "615"]
ASKED = """
import ctypes, json, sys
cuda = ctypes.CDLL("libcuda.so.1")
cuda.cuInit(0)
def proc_address(name):
    found = ctypes.c_void_p()
    assert cuda.cuGetProcAddress_v2(name.encode(), ctypes.byref(found), 13040, ctypes.c_uint64(0), None) == 0
    return bool(found.value)
print(json.dumps([[name, hasattr(cuda, name), proc_address(name)] for name in sys.argv[1:]]))
"""


@pytest.mark.parametrize("sliced", [False, True])
@pytest.mark.parametrize("release", RELEASES)
def test_a_release_of_the_driver_has_its_own_functions_and_no_newer_ones(release, sliced):
    """In a slice, too: the front answers as the driver behind it."""
    slice_of = [BUILD / "carve", "run", "--ephemeral", "--vram", "1", "--"] if sliced else []
    done = sim_run("h100-80gb", [*slice_of, sys.executable, "-S", "-c", ASKED, *FIRST_RELEASES], driver=release)
    assert done.returncode == 0, done.stderr
    for name, by_name, by_address in json.loads(done.stdout):
        has = RELEASES.index(FIRST_RELEASES[name]) <= RELEASES.index(release)
        assert by_name == has, name
        # cuGetProcAddress knows names without a version and without the stream's suffix, and what came with CUDA 13.1 and later by both.
        if not name.endswith("_ptsz") and (not name[-3:-1] == "_v" or RELEASES.index(FIRST_RELEASES[name]) > 2):
            assert by_address == has, name


def used(host):
    return host.stat()["gpus"][0]["memory_used_bytes"]


def test_memory_goes_back_on_kill(make_host, programs):
    host = make_host("h100-80gb")
    p = host.popen([programs / "cuda_basic", "hold", str(100 * MIB)], stdin=subprocess.PIPE)
    assert p.stdout.readline() == "ready\n"
    assert used(host) > 100 * MIB
    p.kill()
    p.wait()
    wait_until(lambda: used(host) == 0)


def test_memory_is_kept_by_a_forked_worker(make_host, programs):
    host = make_host("h100-80gb")
    p = host.popen([programs / "cuda_basic", "hold", str(100 * MIB), "fork"],
                   stdin=subprocess.PIPE, start_new_session=True)
    assert p.stdout.readline() == "ready\n"
    p.kill()
    p.wait()
    assert used(host) > 100 * MIB
    os.killpg(p.pid, signal.SIGKILL)
    wait_until(lambda: used(host) == 0)


@pytest.mark.parametrize("inside", ["clock", "memory", "steps", "sleep", "query", "value"])
def test_nobody_outlives_the_host(make_host, programs, inside):
    """Work that would take years ends with the GPU that it is on."""
    host = make_host("h100-80gb")
    p = host.popen([programs / "cuda_kernels", "years", inside])
    assert p.stdout.readline() == "ready\n"
    wait_until(lambda: host.stat()["gpus"][0]["busy_ns"] > 0)
    host.kill()
    try:
        assert p.communicate(timeout=PATIENCE) == ("802\n", "")
        assert p.returncode == 0
    finally:
        p.kill()


def test_unsupported_calls_are_counted(make_host, programs):
    host = make_host("h100-80gb")
    p = host.popen([programs / "cuda_basic", "unsupported"], stdin=subprocess.PIPE)
    seen = wait_until(lambda: [q["unsupported"] for g in host.stat()["gpus"]
                               for q in g["processes"] if q["unsupported"]])
    assert seen == [1]
    p.communicate("\n")
    assert p.returncode == 0


def test_faults_on_demand(make_host, programs):
    host = make_host("h100-80gb:2")

    def fault(*argv):
        done = host.run([BUILD / "sim/simhost", "fault", *argv])
        assert done.returncode == 0, done.stderr

    def start():
        p = host.popen([programs / "cuda_basic", "ask"], stdin=subprocess.PIPE)
        assert p.stdout.readline() == "0 0 0\n"
        return p

    def again(p):
        p.stdin.write("\n")
        p.stdin.flush()
        return p.stdout.readline().split()

    p = start()
    fault("alloc", "--count", "1")
    assert again(p) == ["2", "0", "0"]
    assert again(p) == ["0", "0", "0"]
    fault("launch", "--count", "1", "--error", "719")
    assert again(p) == ["0", "719", "719"]
    assert again(p) == ["719", "719", "719"]
    other = start()
    fault("ecc", "--gpu", "0")
    assert again(other) == ["214", "214", "214"]
    later = start()  # its context is opened after the error
    assert again(later) == ["0", "0", "0"]
    fault("ecc", "--clear")
    assert again(other) == ["214", "214", "214"]
    fresh = start()
    fault("lost", "--gpu", "1")
    assert again(fresh) == ["0", "0", "0"]
    fault("lost", "--gpu", "0")
    assert "0" not in again(fresh)
    for q in (p, other, later, fresh):
        q.communicate("x")


def test_hangs_hit_the_gpu_they_are_meant_for(make_host):
    """Calls on GPU 1 return an error there, and those on GPU 0 don't."""
    script = ("import ctypes as C; c = C.CDLL('libcuda.so.1'); p = C.c_void_p(); c.cuInit(0)\n"
              "for gpu in 0, 1:\n"
              "    c.cuCtxCreate_v2(C.byref(p), 0, gpu); print(c.cuCtxSynchronize(), flush=True); input()\n"
              "    print(c.cuCtxSynchronize(), flush=True)")
    host = make_host("t4:2")
    p = host.popen(["/usr/bin/python3", "-c", script], stdin=subprocess.PIPE)
    assert p.stdout.readline() == "0\n"
    assert host.run([BUILD / "sim/simhost", "fault", "hang", "--gpu", "1", "--delay", "0.01", "--error", "702",
                     "--call", "cuCtxSynchronize"]).returncode == 0
    p.stdin.write("\n")
    p.stdin.flush()
    assert [p.stdout.readline() for _ in range(2)] == ["0\n", "702\n"]
    assert p.communicate("\n")[0] == "702\n"


def test_the_runtime_is_told_why():
    script = ("import ctypes; c = ctypes.CDLL('libcuda.so.1'); p = ctypes.c_void_p(); "
              "i = ctypes.create_string_buffer(16); "
              "print([c.cuGetExportTable(ctypes.byref(p), i) != 0 for _ in range(3)])")
    done = on_host(["/usr/bin/python3", "-c", script])
    assert done.stdout.strip() == "[True, True, True]"
    assert done.stderr.count("CUDA runtime") == 1


def test_a_program_with_machine_code_is_told_so():
    """NVRTC asks for a table of its own and does without it; what it is told to compile for a real
    architecture is a cubin, and that has nowhere to run."""
    script = ("import ctypes; c = ctypes.CDLL('libcuda.so.1'); p = ctypes.c_void_p(); x = ctypes.c_void_p(); "
              "print(c.cuGetExportTable(ctypes.byref(p), bytes.fromhex('da9151d33ae6cc41a5c04f26d533e328')) != 0, "
              "c.cuInit(0), c.cuDevicePrimaryCtxRetain(ctypes.byref(x), 0), c.cuCtxSetCurrent(x), "
              "[c.cuModuleLoadData(ctypes.byref(p), b'\\x7fELF' + bytes(60)) for _ in range(2)])")
    done = on_host(["/usr/bin/python3", "-c", script])
    assert done.stdout.strip() == "True 0 0 0 [209, 209]"
    assert "CUDA runtime" not in done.stderr
    assert done.stderr.count("machine code") == 1


STREAMS = """
import ctypes
c, context, device = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p(), ctypes.c_int()
free, total = ctypes.c_size_t(), ctypes.c_size_t()
assert c.cuInit(0) == 0 and c.cuDeviceGet(ctypes.byref(device), 0) == 0
assert c.cuCtxCreate_v2(ctypes.byref(context), 0, device) == 0
assert c.cuMemGetInfo_v2(ctypes.byref(free), None) == 0 and c.cuMemGetInfo_v2(None, ctypes.byref(total)) == 0
assert 0 < free.value < total.value
streams = [ctypes.c_void_p() for _ in range(4000)]
assert not any(c.cuStreamCreate(ctypes.byref(s), 1) for s in streams)
assert not any(c.cuStreamDestroy_v2(s) for s in streams)
"""


def test_thousands_of_streams_and_half_an_answer(make_host):
    done = make_host("h100-80gb").run(["python3", "-c", STREAMS])
    assert done.returncode == 0, done.stderr
