"""Memory that a stream frees, or that its functions may not take. Judged by the driver's own books (`carve sim stat`)."""
import subprocess
import sys

import pytest

from conftest import BUILD, ONCE_FOR_THE_FRONT, wait_until
from in_slice import BEGIN, GIB, MIB, OTHER, gpu, in_slice, nothing_is_left

pytestmark = ONCE_FOR_THE_FRONT


@pytest.mark.parametrize("size", [512 << 20, 1 << 20])
def test_memory_that_a_stream_is_to_free_counts_until_it_does(host, size):
    """Also in blocks that it shares; and where the context goes before."""
    said = in_slice(host, f"SIZE = {size}" + r"""
begin()
def busy():
    stream, word, at = c.c_void_p(), c.c_void_p(), c.c_uint64()
    assert cuda.cuStreamCreate(c.byref(stream), 1) == cuda.cuMemHostAlloc(c.byref(word), c.c_size_t(4096), 0) == 0
    assert cuda.cuMemHostGetDevicePointer_v2(c.byref(at), word, 0) == cuda.cuStreamWaitValue32_v2(stream, at, 1, 0) == 0
    return stream, c.cast(word, c.POINTER(c.c_int))
def take_and_free(stream):
    count = 0
    while count < 10000:
        result, pointer = take(SIZE)
        if result: return count
        assert cuda.cuMemFreeAsync(pointer, stream) == 0
        count += 1
before, counts, rooms = room(), [], []
stream, word = busy()
counts.append(take_and_free(stream))
rooms.append(room())
word[0] = 1
assert cuda.cuStreamSynchronize(stream) == 0
rooms.append(room())
other = c.c_void_p()
assert cuda.cuCtxCreate_v2(c.byref(other), 0, 0) == 0
less = room()
stream, word = busy()
counts.append(take_and_free(stream))
assert cuda.cuCtxDestroy_v2(other) == cuda.cuCtxSetCurrent(context) == 0
rooms.append(room())
print(json.dumps({"before": before, "less": less, "counts": counts, "rooms": rooms}))
""")
    assert said["counts"] == [said["before"] // size, said["less"] // size]
    assert said["rooms"] == [said["before"] - said["counts"][0] * size, said["before"], said["before"]]
    assert gpu(host)["memory_peak_bytes"] <= 3 * GIB
    nothing_is_left(host)


def test_memory_freed_by_a_running_graph_is_the_slices_at_once(host):
    said = in_slice(host, f"OTHER = {BEGIN + OTHER!r}" + r"""
import subprocess
begin()
other = subprocess.Popen([sys.executable, "-S", "-c", OTHER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
def others_room():
    other.stdin.write("\n")
    other.stdin.flush()
    return int(other.stdout.readline())
rooms = [others_room()]
for wait in (True, False):
    graph, exec_, freed = c.c_void_p(), c.c_void_p(), c.c_void_p()
    assert cuda.cuGraphCreate(c.byref(graph), 0) == 0
    node, at = allocate_in(graph, 500 * MIB, 0)
    assert cuda.cuGraphAddMemFreeNode(c.byref(freed), graph, c.byref(node), c.c_size_t(1), at) == 0
    assert cuda.cuGraphInstantiateWithFlags(c.byref(exec_), graph, c.c_uint64(0)) == 0
    assert cuda.cuGraphLaunch(exec_, None) == 0
    if wait: assert cuda.cuCtxSynchronize() == 0
    rooms.append(others_room())
    assert cuda.cuGraphExecDestroy(exec_) == cuda.cuGraphDestroy(graph) == 0
    if not wait: assert cuda.cuCtxSynchronize() == 0
    rooms.append(others_room())
other.communicate()
print(json.dumps(rooms))
""")
    most = said[0]
    assert said == [most, most - 500 * MIB, most, most - 500 * MIB, most]


# Calls that wait for all work, so that the driver gives back what was freed in the order of streams.
WAITING = {
    "cuMemFree": ("result, at = take(MIB)", "cuda.cuMemFree_v2(at)"),
    "cuMemFree, of a pool": ("at = c.c_uint64(); cuda.cuMemAllocAsync(c.byref(at), c.c_size_t(MIB), None)", "cuda.cuMemFree_v2(at)"),
    "cuMemFreeHost": ("at = c.c_void_p(); cuda.cuMemAllocHost_v2(c.byref(at), c.c_size_t(MIB))", "cuda.cuMemFreeHost(at)"),
    "cuMemHostUnregister": (
        "import mmap; m = mmap.mmap(-1, MIB); at = c.c_void_p(c.addressof(c.c_char.from_buffer(m)))\n"
        "assert cuda.cuMemHostRegister_v2(at, c.c_size_t(MIB), 0) == 0", "cuda.cuMemHostUnregister(at)"),
}


@pytest.mark.parametrize("call", WAITING)
def test_memory_freed_by_a_stream_returns_to_the_slice_when_the_driver_waited(host, call):
    """Though this process never asks, nor waits by a call of its own."""
    prepare, end = WAITING[call]
    session = host.carve_json("session", "request", "--vram", "3")["id"]
    program = host.popen([BUILD / "carve", "run", "--session", session, "--", sys.executable, "-S", "-c", BEGIN + f"""
begin()
{prepare}
freed = c.c_uint64()
assert cuda.cuMemAllocAsync(c.byref(freed), c.c_size_t(300 * MIB), None) == 0
assert cuda.cuMemFreeAsync(freed, None) == 0
assert {end} == 0
print("up", flush=True)
sys.stdin.read()
"""], stdin=subprocess.PIPE)
    assert program.stdout.readline() == "up\n"
    wait_until(lambda: host.carve_json("session", "show", session)["gpus"][0]["used_bytes"]
               == gpu(host)["memory_used_bytes"])
    program.communicate("", timeout=60)
    assert program.returncode == 0


@pytest.mark.parametrize("size", [("--vram", "3"), ("--vram", "3", "--isolation", "preload")])
def test_calls_that_a_host_function_may_not_make_change_nothing(host, size):
    """CUDA_ERROR_NOT_PERMITTED is told through, as libgomp's plug-in tells such a thread by it, and nothing is charged."""
    done = host.carve("run", *size, "--", BUILD / "tests/programs/cuda_extras", "forbidden-calls")
    assert done.returncode == 0, done.stderr
