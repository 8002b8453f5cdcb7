"""Local memory that kernels need is the slice's, whichever way they are launched: by the driver's own books."""
import json
import subprocess
import sys

import pytest

from conftest import BUILD, ONCE_FOR_THE_FRONT, rest_long, wait_until
from in_slice import BEGIN
from sharing import slice_time

MIB = 1 << 20
GIB = 1 << 30
LOCAL = BUILD / "tests/programs/slice_local"
OOM = 2
pytestmark = [pytest.mark.needs_sim("what a kernel's local memory takes is told to the block"),
              ONCE_FOR_THE_FRONT]
# Of a simulated H100: processors times threads of each; and what a context has for a thread at first.
THREADS = 132 * 2048
FIRST = 1024
WAYS = ["kernel", "kernel-ptsz", "null-stream", "ex", "ex-ptsz", "cooperative", "cooperative-ptsz", "multi-device",
        "launch", "launch-grid", "launch-grid-async", "library-kernel", "kernel-function", "library-module",
        "enumerated-kernel", "enumerated-function", "reloaded-module", "capture", "captured-library-kernel",
        "graph-ptsz", "upload", "upload-alone", "node", "old-node", "child", "update", "old-update", "exec-params",
        "old-exec-params", "exec-child", "captured-graph", "second-context", "limit", "threads"]


def grows_by(local):
    return -(-(local - FIRST) * THREADS // (2 * MIB)) * 2 * MIB


def gpu(host):
    return host.stat()["gpus"][0]


def launch(host, way, local, *run):
    done = host.carve("run", "--vram", "3", *run, "--", LOCAL, way, str(local))
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_every_way_is_tried(host):
    assert host.run([BUILD / "carve", "sim", "--gpus", "h100-80gb", "--", LOCAL]).stdout.split() == WAYS


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.once("the front's accounts; the others have the daemon's part")
def test_local_memory_that_does_not_fit_is_refused_and_the_rest_is_charged(module_host, way):
    """17 GiB in a slice of 3 GiB, and 1.25 GiB."""
    said = launch(module_host, way, 70_000)
    assert said["result"] == said["again"] == OOM
    if way != "second-context":
        assert said["end"] == said["after"] == said["before"]
    assert gpu(module_host)["memory_peak_bytes"] <= 3 * GIB
    said = launch(module_host, way, 6_000)
    assert said["result"] == said["again"] == 0
    taken = said["before"] - said["after"]
    assert said["end"] == said["after"]
    if way == "second-context":
        assert taken > grows_by(6_000)
    else:
        assert taken == grows_by(6_000)
    assert gpu(module_host)["memory_peak_bytes"] <= 3 * GIB
    wait_until(lambda: gpu(module_host)["memory_used_bytes"] == 0)


def test_exact_to_the_last_block(host):
    room = launch(host, "kernel", 512)["before"]
    most = (room // (2 * MIB) * (2 * MIB) // THREADS + FIRST) // 8 * 8
    assert grows_by(most) <= room < grows_by(most + 16)
    said = launch(host, "kernel", most)
    assert said["result"] == 0 and said["end"] == room - grows_by(most)
    assert launch(host, "kernel", most + 16)["result"] == OOM
    assert gpu(host)["memory_peak_bytes"] <= 3 * GIB


def test_local_memory_that_every_context_has_costs_nothing(host):
    said = launch(host, "kernel", FIRST)
    assert said["result"] == 0 and said["end"] == said["before"]


@pytest.mark.parametrize("way", rest_long(["kernel", "ex", "graph-ptsz", "launch"]))
def test_while_the_gpu_is_shared(host, way):
    slice_time(host, "fair", "--lease", "20ms")
    beside = host.popen([BUILD / "carve", "run", "--gpu", "0.2", "--", BUILD / "tests/programs/enqueue_behind", "32"])
    try:
        for local, result in ((70_000, OOM), (6_000, 0)):
            said = launch(host, way, local, "--gpu-compute", "30%")
            assert said["result"] == said["again"] == result
            assert said["before"] - said["end"] == (0 if result else grows_by(local))
    finally:
        beside.kill()
        beside.communicate()


PROGRAM = BEGIN + "from local_kernels import *\n"
GREEDY = PROGRAM + r"""
context()
f = function(70000)
print("up", flush=True)
while launch(f): pass
"""


def program(host, code, *run):
    done = host.carve("run", *(run or ("--vram", "3")), "--", sys.executable, "-S", "-c", PROGRAM + code, GREEDY)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_more_costs_the_difference_and_less_nothing(host):
    said = program(host, r"""
context()
functions = [function(n) for n in (2000, 3000, 1500, 3900, 5000)]
rooms = [room()]
for f in functions[:3]: ok(launch(f)); rooms.append(room())
for limit in 2500, 4000: ok(cuda.cuCtxSetLimit(0, c.c_size_t(limit))); rooms.append(room())
for f in functions[3:]: ok(launch(f)); rooms.append(room())
print(json.dumps(rooms))
""")
    assert [said[0] - each for each in said] == [
        0, *(grows_by(n) for n in (2000, 3000, 3000, 3000, 4000, 4000, 5000))]


def test_it_goes_with_the_context(host):
    said = program(host, r"""
rooms = []
for _ in range(2):
    context()
    f = function(6000)
    rooms.append(room())
    ok(launch(f))
    rooms.append(room())
    ok(cuda.cuDevicePrimaryCtxReset_v2(0))
print(json.dumps(rooms))
""")
    assert said[0] == said[2] == said[1] + grows_by(6000) and said[3] == said[1]


def test_a_process_refused_all_the_time_does_not_slow_its_slice(host):
    """Another process of the session gets what there is room for, while one launches what does not fit."""
    said = program(host, r"""
greedy = subprocess.Popen([sys.executable, "-S", "-c", sys.argv[1]], stdout=subprocess.PIPE, text=True)
context()
assert greedy.stdout.readline() == "up\n"
time.sleep(1.2) # what the contexts took is posted
refused, count, size = 0, 0, room() // (2 * MIB) * (2 * MIB)
end = time.monotonic() + 3
while time.monotonic() < end:
    at = c.c_uint64()
    result = cuda.cuMemAlloc_v2(c.byref(at), c.c_size_t(size))
    refused += result != 0
    count += 1
    if not result: ok(cuda.cuMemFree_v2(at))
assert greedy.poll() is None
greedy.kill()
print(json.dumps({"refused": refused, "count": count}))
""")
    assert said["count"] > 100 and said["refused"] == 0
    assert gpu(host)["memory_peak_bytes"] <= 3 * GIB


def test_a_graph_over_two_gpus_needs_it_on_each(make_host):
    host = make_host("h100-80gb:2")
    said = program(host, r"""
class Params(c.Structure):
    _fields_ = [("f", c.c_void_p), ("n", c.c_uint * 7), ("params", c.c_void_p), ("extra", c.c_void_p), ("kernel", c.c_void_p),
                ("context", c.c_void_p)]
contexts, functions, before = [], [], []
for device in range(2):
    contexts.append(context(device))
    functions.append(function(6000))
    before.append(room())
graph, node, run = c.c_void_p(), c.c_void_p(), c.c_void_p()
ok(cuda.cuGraphCreate(c.byref(graph), 0))
for at, f in zip(contexts, functions):
    ok(cuda.cuCtxSetCurrent(at))
    p = Params(f, (c.c_uint * 7)(1, 1, 1, 1, 1, 1, 0), c.cast(params, c.c_void_p), None, None, at)
    ok(cuda.cuGraphAddKernelNode_v2(c.byref(node), graph, None, c.c_size_t(0), c.byref(p)))
ok(cuda.cuGraphInstantiateWithFlags(c.byref(run), graph, c.c_uint64(0)))
result, after = cuda.cuGraphLaunch(run, None), []
for at in contexts:
    ok(cuda.cuCtxSetCurrent(at))
    after.append(room())
print(json.dumps([result] + [b - a for a, b in zip(after, before)]))
""", "--gpus", "2", "--vram", "3")
    assert said == [0, grows_by(6000), grows_by(6000)]


def test_a_limit_of_one_context_says_nothing_of_another(make_host):
    """Of another on the same GPU, and on the other one."""
    host = make_host("h100-80gb:2")
    for device in 0, 1:
        assert program(host, r"""
here, there = c.c_void_p(), c.c_void_p()
ok(cuda.cuCtxCreate_v2(c.byref(there), 0, %d))
f = function(9000)
filler = c.c_uint64()
ok(cuda.cuMemAlloc_v2(c.byref(filler), c.c_size_t(%d << 30)))
ok(cuda.cuCtxCreate_v2(c.byref(here), 0, 0))
ok(cuda.cuCtxSetLimit(0, c.c_size_t(9000)))
ok(cuda.cuCtxSetCurrent(there))
print(json.dumps(launch(f)))
""" % (device, 1 + 2 * device), "--gpus", "2", "--vram", "5") == OOM
        assert all(each["memory_peak_bytes"] <= 5 * GIB for each in host.stat()["gpus"])


GRAPH_ELSEWHERE = r"""
class Params(c.Structure):
    _fields_ = [("f", c.c_void_p), ("n", c.c_uint * 7), ("params", c.c_void_p), ("extra", c.c_void_p), ("kernel", c.c_void_p),
                ("context", c.c_void_p)]
here = context(0)
there, filler = c.c_void_p(), c.c_uint64()
ok(cuda.cuCtxCreate_v2(c.byref(there), 0, %d))
f = function(9000)
graph, node, run = c.c_void_p(), c.c_void_p(), c.c_void_p()
ok(cuda.cuGraphCreate(c.byref(graph), 0))
p = Params(f, (c.c_uint * 7)(1, 1, 1, 1, 1, 1, 0), c.cast(params, c.c_void_p), None, None, there)
ok(cuda.cuGraphAddKernelNode_v2(c.byref(node), graph, None, c.c_size_t(0), c.byref(p)))
ok(cuda.cuCtxSetCurrent(here))
ok(cuda.cuGraphInstantiateWithFlags(c.byref(run), graph, c.c_uint64(0)))
ok(cuda.cuCtxSetCurrent(there))
ok(cuda.cuMemAlloc_v2(c.byref(filler), c.c_size_t(2 << 30)))
ok(cuda.cuCtxSetCurrent(here))
print(json.dumps(cuda.cuGraphLaunch(run, None)))
"""


@pytest.mark.parametrize("device", [0, 1])
def test_a_graph_that_is_handed_in_from_another_context(make_host, device):
    host = make_host("a100-80gb,h100-80gb")
    assert program(host, GRAPH_ELSEWHERE % device, "--gpus", "2", "--vram", "4") == OOM
    assert all(each["memory_peak_bytes"] <= 4 * GIB for each in host.stat()["gpus"])


@pytest.mark.parametrize("before, then, result", [(2000, 70_000, OOM), (70_000, 1100, 0)])
def test_an_enumerated_function_is_not_taken_for_the_previous_owner_of_its_handle(host, before, then, result):
    assert program(host, r"""
context()
for _ in range(100):
    old, module, name, found = function(%d), c.c_void_p(), c.c_char_p(), (c.c_void_p * 1)()
    ok(cuda.cuFuncGetModule(c.byref(module), old))
    ok(cuda.cuModuleUnload(module))
    ok(cuda.cuModuleLoadData(c.byref(module), PTX %% %d))
    ok(cuda.cuModuleEnumerateFunctions(found, 1, module))
    if found[0] == old.value: break
else: sys.exit("no handle was used again")
function(2000) # so that launches look
print(json.dumps(launch(c.c_void_p(found[0]))))
""" % (before, then)) == result
    assert gpu(host)["memory_peak_bytes"] <= 3 * GIB


def test_limits_that_are_set_while_others_launch_are_counted_once(host):
    said = program(host, r"""
import threading
at, rooms = context(), []
functions = [function(n) for n in (1500, 2600, 3700, 4800, 6000)]
rooms.append(room())
end = time.monotonic() + 1
def launches():
    ok(cuda.cuCtxSetCurrent(at))
    while time.monotonic() < end:
        for f in functions: ok(launch(f))
def limits():
    ok(cuda.cuCtxSetCurrent(at))
    while time.monotonic() < end:
        for n in 1500, 3500, 1024, 5500: ok(cuda.cuCtxSetLimit(0, c.c_size_t(n)))
threads = [threading.Thread(target=each) for each in (launches, limits, launches, limits)]
for each in threads: each.start()
for each in threads: each.join()
ok(cuda.cuCtxSynchronize())
rooms.append(room())
print(json.dumps(rooms))
""")
    assert said[0] - said[1] == grows_by(6000)


@pytest.mark.timed
def test_local_memory_that_needs_no_more_blocks_is_looked_at_once(make_host):
    """On smaller GPUs two functions may need the same blocks: that costs no question to the driver a launch."""
    host = make_host("t4-16gb")
    said = program(host, r"""
import local_kernels
local_kernels.PTX = PTX.replace(b"sm_80", b"sm_70")
context()
f, g = function(1032), function(1040)
def takes(each):
    times = []
    for _ in range(15):
        start = time.perf_counter()
        for _ in range(100): ok(launch(each))
        times.append(time.perf_counter() - start)
        ok(cuda.cuCtxSynchronize())
    return sorted(times)[7]
ok(launch(f)), ok(launch(g))
print(json.dumps([takes(f), takes(g)]))
""")
    assert said[1] < 8 * said[0]


def test_memory_that_others_took_meanwhile_is_not_for_a_graph(host):
    """Instantiating takes nothing here; the slice's other process allocates and frees all the time."""
    noise = r"""
context()
print("up", flush=True)
at = c.c_uint64()
while True:
    if not cuda.cuMemAlloc_v2(c.byref(at), c.c_size_t(64 * MIB)): cuda.cuMemFree_v2(at)
"""
    code = GRAPH_ELSEWHERE.replace("%d", "0").replace("ok(cuda.cuGraphInstantiateWithFlags", r"""
beside = subprocess.Popen([sys.executable, "-S", "-c", sys.argv[2]], stdout=subprocess.PIPE, text=True)
beside.stdout.readline()
for _ in range(50): ok(cuda.cuGraphInstantiateWithFlags(c.byref(run), graph, c.c_uint64(0)))
beside.kill()
beside.communicate()
ok(cuda.cuGraphInstantiateWithFlags""")
    done = host.carve("run", "--vram", "4", "--", sys.executable, "-S", "-c", PROGRAM + code, GREEDY, PROGRAM + noise)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == OOM
    assert gpu(host)["memory_peak_bytes"] <= 4 * GIB


def test_a_launch_that_fails_after_it_took_memory_has_it_counted(host):
    said = program(host, r"""
context()
f, rooms = function(6000), [room()]
result = cuda.cuLaunchCooperativeKernel(f, 1000000, 1, 1, 32, 1, 1, 0, None, params)
print(json.dumps([result, rooms[0] - room()]))
""")
    assert said[0] == 720 and said[1] in (0, grows_by(6000))
    assert gpu(host)["memory_peak_bytes"] - said[1] < GIB


# Threads that load modules at the same time; each asks the daemon what its own took.
LOADERS = r"""
import threading
at = context()
def load():
    module, f = c.c_void_p(), c.c_void_p()
    ok(cuda.cuModuleLoadData(c.byref(module), PTX % 8))
    ok(cuda.cuModuleGetFunction(c.byref(f), module, b"needs"))
    ok(launch(f))
    return module
failed = []
def run(rounds, keep):
    try:
        ok(cuda.cuCtxSetCurrent(at))
        for _ in range(rounds):
            module = load()
            if not keep:
                ok(cuda.cuCtxSynchronize())
                ok(cuda.cuModuleUnload(module))
    except AssertionError as error:
        failed.append(str(error))
def together(count, rounds, keep):
    threads = [threading.Thread(target=run, args=(rounds, keep)) for _ in range(count)]
    begin = time.monotonic()
    for t in threads: t.start()
    for t in threads: t.join()
    assert not failed, failed
    return time.monotonic() - begin
"""


def test_modules_that_threads_load_at_the_same_time_are_charged_once(host):
    """As the driver packs them; not a block for each that was under way when another was asked about."""
    said = program(host, LOADERS + r"""
load()
before = room()
together(6, 40, True)
print(json.dumps(before - room()))
""")
    assert said <= 8 * MIB


@pytest.mark.timed
def test_threads_that_load_and_unload_do_not_wait_for_each_other(host):
    """Each unloading asks the daemon, which waits until nobody is inside a call: who waits for an answer is not."""
    assert program(host, LOADERS + "print(json.dumps(together(4, 100, False)))") < 20
