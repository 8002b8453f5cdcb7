"""Ways to memory that are easily forgotten, and what a program may do to the process that it shares with the front.
Judged by the driver's own books (`carve sim stat`)."""
import json
import subprocess
import sys
import time

import pytest

from conftest import BUILD, ONCE_FOR_THE_FRONT, wait_until
from in_slice import BEGIN, GIB, MIB, OTHER, TAKER, gpu, in_slice, nothing_is_left

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


def test_what_stays_of_a_destroyed_pool_counts_at_once(host):
    """The driver keeps the pieces in which something is allocated whole."""
    said = in_slice(host, r"""
begin()
rooms, sizes = [room()], []
for _ in range(6):
    pool, count, result = c.c_void_p(), 0, 0
    if cuda.cuMemPoolCreate(c.byref(pool), c.byref(Props(1, 0, Location(1, 0)))): break
    while result == 0:
        pointer = c.c_uint64()
        result = cuda.cuMemAllocFromPoolAsync(c.byref(pointer), c.c_size_t(70 * MIB), pool, None)
        count += result == 0
    sizes.append(count * 70 * MIB)
    assert result == OOM and cuda.cuMemPoolDestroy(pool) == 0
    rooms.append(room())
print(json.dumps({"rooms": rooms, "sizes": sizes}))
""")
    assert said["sizes"][0] > said["rooms"][0] // 2
    assert gpu(host)["memory_peak_bytes"] <= 3 * GIB
    nothing_is_left(host)


def test_a_process_that_never_stands_still_is_settled_too(host):
    """Other threads allocate all the time while one of them leaves pieces of pools behind."""
    said = in_slice(host, r"""
begin()
before, stop = room(), []
def work():
    cuda.cuCtxSetCurrent(context)
    while not stop:
        result, pointer = take(4 * MIB)
        if result == 0: cuda.cuMemFree_v2(pointer)
threads = [threading.Thread(target=work) for _ in range(3)]
for t in threads: t.start()
for _ in range(6):
    pool, result = c.c_void_p(), 0
    if cuda.cuMemPoolCreate(c.byref(pool), c.byref(Props(1, 0, Location(1, 0)))): break
    while result == 0:
        pointer = c.c_uint64()
        result = cuda.cuMemAllocFromPoolAsync(c.byref(pointer), c.c_size_t(34 * MIB), pool, None)
    assert result == OOM and cuda.cuMemPoolDestroy(pool) == 0
stop.append(True)
for t in threads: t.join()
print(json.dumps({"before": before, "after": room()}))
""")
    assert said["after"] < said["before"] // 2
    # What the threads took and gave in between may be missing, once for each pool.
    assert gpu(host)["memory_peak_bytes"] <= 3 * GIB + 6 * 12 * MIB
    nothing_is_left(host)


# What each way to memory is answered with.
ALL_WAYS = r"""
class Descriptor(c.Structure):
    _fields_ = [("width", c.c_size_t), ("height", c.c_size_t), ("depth", c.c_size_t), ("format", c.c_int),
                ("channels", c.c_uint), ("flags", c.c_uint)]
pointer, pitch, handle = c.c_uint64(), c.c_size_t(), c.c_void_p()
def all_ways():
    array = c.byref(Descriptor(64, 64, 0, 1, 4, 0))
    return [take(4 * MIB)[0], take(4)[0], cuda.cuMemAllocManaged(c.byref(pointer), c.c_size_t(4 * MIB), 1),
            cuda.cuMemAllocPitch_v2(c.byref(pointer), c.byref(pitch), c.c_size_t(400), c.c_size_t(400), 4),
            cuda.cuArray3DCreate_v2(c.byref(handle), array), cuda.cuMipmappedArrayCreate(c.byref(handle), array, 2),
            cuda.cuMemAllocAsync(c.byref(pointer), c.c_size_t(4 * MIB), None), cuda.cuMemFree_v2(pointer)]
begin()
"""


def said_alone_and_in_slice(host, code):
    alone = host.run([sys.executable, "-c", BEGIN + code])
    assert alone.returncode == 0, alone.stderr
    return json.loads(alone.stdout), in_slice(host, code)


def test_a_context_that_is_no_more_is_what_the_driver_says(host):
    """Not a slice that is full."""
    alone, in_it = said_alone_and_in_slice(host, ALL_WAYS + r"""
assert cuda.cuDevicePrimaryCtxReset_v2(0) == 0
reset = all_ways()
begin()
other = c.c_void_p()
assert cuda.cuCtxCreate_v2(c.byref(other), 0, 0) == cuda.cuCtxDestroy_v2(other) == cuda.cuCtxSetCurrent(None) == 0
print(json.dumps([reset, all_ways()]))
""")
    assert set(alone[0]) == {709}
    assert in_it == alone


def test_a_kernel_that_went_wrong_is_what_a_full_slice_says(host):
    alone, in_it = said_alone_and_in_slice(host, ALL_WAYS + r"""
PTX = b'''.version 8.0
.target sm_70
.address_size 64
.visible .entry wrong() { .reg .u64 %at; mov.u64 %at, 4096; st.global.u32 [%at], 1; ret; }'''
module, function, size = c.c_void_p(), c.c_void_p(), 64 << 30
assert cuda.cuModuleLoadData(c.byref(module), PTX) == cuda.cuModuleGetFunction(c.byref(function), module, b"wrong") == 0
while size >= 2 * MIB:
    if take(size)[0]: size //= 2
full = take(2 * MIB)[0]
assert cuda.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, None, None, None) == 0
print(json.dumps([full, cuda.cuCtxSynchronize(), all_ways()]))
""")
    assert alone == [2, 700, [700] * 8]
    assert in_it == alone


# A raised limit takes memory at once, for each thread that can run; a driver does not always take it back.
@pytest.mark.needs_sim("what a limit of a context takes, and when, is each driver's own")
def test_limits_of_a_context_count(host):
    said = in_slice(host, r"""
begin()
STACK, HEAP = 0, 2
def limit(which, value): return cuda.cuCtxSetLimit(which, c.c_size_t(value))
before, results = room(), []
assert limit(HEAP, 1024 * MIB) == 0
heap = room()
for _ in range(5):
    assert limit(HEAP, 8 * MIB) == limit(HEAP, 1024 * MIB) == 0
again = room()
too_much = [limit(HEAP, 4096 * MIB), limit(STACK, 64 << 10), limit(STACK, 500 << 10)]
refused = room()
assert limit(STACK, 4 << 10) == 0
stack = room()
assert limit(STACK, 1 << 10) == limit(STACK, 4 << 10) == 0
stack_again = room()
assert cuda.cuDevicePrimaryCtxReset_v2(0) == 0
begin()
print(json.dumps({"before": before, "heap": heap, "again": again, "too_much": too_much, "refused": refused,
                  "stack": stack, "stack_again": stack_again, "after": room()}))
""")
    assert said["heap"] == said["again"] == said["before"] - (1024 - 8) * MIB
    assert said["too_much"] == [2, 2, 2] and said["refused"] == said["heap"]
    assert said["stack"] == said["stack_again"] < said["refused"] - 512 * MIB
    assert said["after"] == said["before"]
    assert gpu(host)["memory_peak_bytes"] <= 3 * GIB
    nothing_is_left(host)


@pytest.mark.parametrize("limit", [1, 2])
@pytest.mark.needs_sim("makes a call of the driver slow")
def test_a_limit_that_is_lowered_while_another_allocates(host, limit):
    """What the device has free is not what this process gave back."""
    high, low = {1: (512 * MIB, 1 * MIB), 2: (1024 * MIB, 8 * MIB)}[limit]  # printf's buffer, the heap
    code = BEGIN + f"""
begin()
before = room()
def limit(value): return cuda.cuCtxSetLimit({limit}, c.c_size_t(value))
assert limit({high}) == 0
high = room()
print(os.getpid(), flush=True)
sys.stdin.readline()
began = time.monotonic()
assert limit({low}) == 0
assert time.monotonic() > began + 0.9
low = room()
print(json.dumps([before, high, low]), flush=True)
"""
    process = host.popen([BUILD / "carve", "run", "--vram", "8", "--", sys.executable, "-c", code], stdin=subprocess.PIPE)
    pid = process.stdout.readline().strip()
    other = host.popen([sys.executable, "-c", BEGIN + r"""
begin()
print("up", flush=True)
sys.stdin.readline()
assert take(20 << 30)[0] == 0
print("taken", flush=True)
sys.stdin.readline()
"""], stdin=subprocess.PIPE)
    assert other.stdout.readline() == "up\n"
    assert host.carve("sim", "fault", "hang", "--call", "cuCtxSetLimit", "--delay", "1", "--count", "1", "--pid",
                      pid).returncode == 0
    for one in (process, other):
        one.stdin.write("\n")
        one.stdin.flush()
        time.sleep(0.3)
    assert other.stdout.readline() == "taken\n"
    before, high, low = json.loads(process.stdout.readline())
    other.communicate()
    process.communicate()
    assert high < before and low == before


def test_small_arrays_take_what_the_driver_packs_them_into(host):
    """Not a block each; and what is left of the slice can be had, by another process too."""
    said = in_slice(host, f"OTHER = {BEGIN + TAKER!r}" + r"""
import random, subprocess
class Descriptor(c.Structure):
    _fields_ = [("width", c.c_size_t), ("height", c.c_size_t), ("depth", c.c_size_t), ("format", c.c_int),
                ("channels", c.c_uint), ("flags", c.c_uint)]
def array(size):
    handle = c.c_void_p()
    return cuda.cuArray3DCreate_v2(c.byref(handle), c.byref(Descriptor(size, size, 0, 1, 4, 0))), handle
def mipmap(size):
    handle = c.c_void_p()
    return cuda.cuMipmappedArrayCreate(c.byref(handle), c.byref(Descriptor(size, size, 0, 1, 4, 0)), 5), handle
WAYS = [(array, cuda.cuArrayDestroy), (mipmap, cuda.cuMipmappedArrayDestroy)]
begin()
other = subprocess.Popen([sys.executable, "-c", OTHER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
def others(line):
    other.stdin.write(line + "\n")
    other.stdin.flush()
    return int(other.stdout.readline())
assert others("room") > 0
before, chance, held, results = room(), random.Random(1), [], set()
for i in range(2500):
    make, destroy = WAYS[i % 2]
    result, handle = make(chance.randrange(1, 100))
    results.add(result)
    held.append((destroy, handle))
rooms = [room()]
chance.shuffle(held)
for destroy, handle in held[::2]: assert destroy(handle) == 0
left = room()
while take(min(room(), 64 * MIB))[0] == 0: pass
full = [others("room"), others("take")]
for destroy, handle in held[1::2]: assert destroy(handle) == 0
print(json.dumps({"results": list(results), "before": before, "most": rooms[0], "left": left, "full": full,
                  "after": room(), "others": others("take")}))
other.communicate()
""")
    assert said["results"] == [0]
    assert said["most"] > said["before"] - 300 * MIB and said["left"] >= said["most"]
    assert said["full"] == [0, 2] and said["after"] > 0 and said["others"] == 0
    assert 3 * GIB - 2 * MIB < gpu(host)["memory_peak_bytes"] <= 3 * GIB
    nothing_is_left(host)


def test_what_is_wrong_with_a_call_is_the_drivers_to_say(host):
    """Where the slice would have no room for it, too; and nothing of it is charged."""
    said = in_slice(host, r"""
begin()
before, handle = room(), c.c_uint64()
def create(size, flags=0, kind=1, handles=1, location=1, device=0):
    return cuda.cuMemCreate(c.byref(handle), c.c_size_t(size), c.byref(Prop(kind, handles, Location(location, device))),
                            c.c_uint64(flags))
results = []
for size in (2 * MIB, 1 << 40):
    results.append([create(size, device=7), create(size, device=-1), create(size + 1), create(size, flags=4),
                    create(size, kind=9), cuda.cuMemCreate(None, c.c_size_t(size), c.byref(Prop(1, 1, Location(1, 0))), c.c_uint64(0))])
results.append([create(0), create((1 << 64) - 1), create(1 << 63)])
print(json.dumps({"results": results, "before": before, "after": room()}))
""")
    assert said["results"] == [[101, 101, 1, 1, 1, 1], [101, 101, 1, 1, 1, 1], [1, 1, 2]]
    assert said["after"] == said["before"]


def test_a_call_before_the_first_does_no_harm(host):
    """What the driver does not say before cuInit is asked again after it."""
    said = in_slice(host, r"""
early = c.c_void_p()
too_early = [cuda.cuDevicePrimaryCtxRetain(c.byref(early), 0), cuda.cuCtxCreate_v2(c.byref(early), 0, 0), create(2 * MIB)[0]]
begin()
pointer, before = c.c_uint64(), room()
results = [take(64 * MIB)[0], create(64 * MIB)[0], cuda.cuMemAllocAsync(c.byref(pointer), c.c_size_t(64 * MIB), None)]
print(json.dumps({"too_early": too_early, "results": results, "taken": before - room()}))
""")
    assert said == {"too_early": [3, 3, 3], "results": [0, 0, 0], "taken": 192 * MIB}


SILENT = BEGIN + r"""
begin()
kept = c.c_uint64()
if sys.argv[1] == "cuMemPoolGetAttribute":
    assert cuda.cuMemAllocAsync(c.byref(kept), c.c_size_t(1024 * MIB), None) == 0
    assert cuda.cuMemAllocAsync(c.byref(kept), c.c_size_t(100 * MIB), None) == cuda.cuMemFreeAsync(kept, None) == 0
else:
    graph, exec_ = c.c_void_p(), c.c_void_p()
    assert cuda.cuGraphCreate(c.byref(graph), 0) == 0
    allocate_in(graph, 1024 * MIB, 0)
    assert cuda.cuGraphInstantiateWithFlags(c.byref(exec_), graph, c.c_uint64(0)) == cuda.cuGraphLaunch(exec_, None) == 0
    assert cuda.cuMemAllocAsync(c.byref(kept), c.c_size_t(100 * MIB), None) == cuda.cuMemFreeAsync(kept, None) == 0
print("up", flush=True)
for line in sys.stdin: print(cuda.cuCtxSynchronize(), flush=True)
"""


@pytest.mark.parametrize("call", ["cuMemPoolGetAttribute", "cuDeviceGetGraphMemAttribute"])
def test_what_the_driver_does_not_say_any_more_is_held_still(make_host, call):
    """As after a kernel's fault, when calls give that alone: no other process gets what it holds."""
    said = in_slice(make_host("h100-80gb"), f"CALL, SILENT, CARVE = {call!r}, {SILENT!r}, {str(BUILD / 'carve')!r}" + r"""
import subprocess
begin()
other = subprocess.Popen([sys.executable, "-c", SILENT, CALL], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
assert other.stdout.readline().strip() == "up"
before = room()
subprocess.run([CARVE, "sim", "fault", "hang", "--call", CALL, "--error", "700", "--pid", str(other.pid)], check=True)
print("go", file=other.stdin, flush=True)
assert other.stdout.readline().strip() == "0"
after = room()
subprocess.run([CARVE, "sim", "fault", "all", "--clear"], check=True)
other.communicate("go")
print(json.dumps([before, after]))
""")
    assert 3 * GIB - 1024 * MIB > said[1] and said[1] <= said[0] + 128 * MIB


MIPMAPS = [(1024, 1024, 0, 0, 11), (1024, 1024, 0, 0, 30), (512, 512, 64, 0, 10), (512, 512, 64, 1, 10), (512, 512, 6, 4, 10),
           (512, 512, 12, 5, 10), (16, 16, 2000, 1, 21), (609, 160, 0, 0, 9), (4000, 0, 0, 0, 12), (4, 0, 2000, 1, 11)]


def test_mipmaps_are_charged_as_the_driver_sizes_them(make_host):
    """Levels that there are not, layers and faces that do not shrink, levels that begin at whole steps."""
    host = make_host("h100-80gb")
    said = in_slice(host, f"MIPMAPS = {MIPMAPS}" + r"""
class Descriptor(c.Structure):
    _fields_ = [("width", c.c_size_t), ("height", c.c_size_t), ("depth", c.c_size_t), ("format", c.c_int),
                ("channels", c.c_uint), ("flags", c.c_uint)]
class Needs(c.Structure): _fields_ = [("size", c.c_size_t), ("rest", c.c_size_t * 6)]
begin()
sizes = []
for width, height, depth, flags, levels in MIPMAPS:
    handle, needs, before = c.c_void_p(), Needs(), room()
    d = Descriptor(width, height, depth, 0x20, 4, flags)
    assert cuda.cuMipmappedArrayCreate(c.byref(handle), c.byref(d), levels) == 0
    assert cuda.cuMipmappedArrayGetMemoryRequirements(c.byref(needs), handle, 0) == 0
    sizes.append([before - room(), needs.size])
    assert cuda.cuMipmappedArrayDestroy(handle) == 0 and room() == before
print(json.dumps(sizes))
""")
    assert [charged for charged, _ in said] == [needed for _, needed in said]


def test_what_one_thread_maps_where_another_unmaps_is_accounted_right(host):
    """After every round: what is booked wrongly is booked right by the next mapping there."""
    said = in_slice(host, r"""
begin()
size, at = c.c_size_t(64 * MIB), c.c_uint64()
assert cuda.cuMemAddressReserve(c.byref(at), size, c.c_size_t(0), c.c_uint64(0), c.c_uint64(0)) == 0
before = room()
def round_():
    stop, maps = [], [0]
    def map_():
        cuda.cuCtxSetCurrent(context)
        while not stop:
            result, handle = create(size.value)
            if result: continue
            for _ in range(200):
                if cuda.cuMemMap(at, size, c.c_size_t(0), handle, c.c_uint64(0)) == 0:
                    maps[0] += 1
                    break
            cuda.cuMemRelease(handle)
    def unmap():
        cuda.cuCtxSetCurrent(context)
        while not stop: cuda.cuMemUnmap(at, size)
    threads = [threading.Thread(target=f) for f in (map_, map_, unmap, unmap)]
    for t in threads: t.start()
    end = time.monotonic() + 45
    while maps[0] < 20 and time.monotonic() < end: time.sleep(0.001)
    stop.append(True)
    for t in threads: t.join()
    cuda.cuMemUnmap(at, size)
    return maps[0], room()
end, rounds = time.monotonic() + 45, []
while len(rounds) < 150 and time.monotonic() < end: rounds.append(round_())
print(json.dumps({"rounds": rounds, "before": before}))
""")
    assert min(maps for maps, _ in said["rounds"]) >= 20
    assert {room for _, room in said["rounds"]} == {said["before"]}


MIXED = r"""
import random
begin()
before, stop, wrong = room(), [], []
IMAGE = b".version 6.0\n.target sm_50\n.address_size 64\n.global .align 16 .b8 big[%d];\n.visible .entry nothing()\n{\nret;\n}\n"
def module(size):
    handle = c.c_void_p()
    return cuda.cuModuleLoadData(c.byref(handle), IMAGE % size), handle
def async_(size):
    pointer = c.c_uint64()
    return cuda.cuMemAllocAsync(c.byref(pointer), c.c_size_t(size), None), pointer
class Descriptor(c.Structure):
    _fields_ = [("width", c.c_size_t), ("height", c.c_size_t), ("depth", c.c_size_t), ("format", c.c_int),
                ("channels", c.c_uint), ("flags", c.c_uint)]
def array(height):
    handle = c.c_void_p()
    return cuda.cuArray3DCreate_v2(c.byref(handle), c.byref(Descriptor(1024, height, 0, 1, 4, 0))), handle
def free_async(pointer): return cuda.cuMemFreeAsync(pointer, None)
def graph(size):
    graph, exec_, freed = c.c_void_p(), c.c_void_p(), c.c_void_p()
    assert cuda.cuGraphCreate(c.byref(graph), 0) == 0
    node, at = allocate_in(graph, size, 0)
    assert cuda.cuGraphAddMemFreeNode(c.byref(freed), graph, c.byref(node), c.c_size_t(1), at) == 0
    result = cuda.cuGraphInstantiateWithFlags(c.byref(exec_), graph, c.c_uint64(0))
    result = result or cuda.cuGraphLaunch(exec_, None)
    if result and exec_: cuda.cuGraphExecDestroy(exec_)
    if result: cuda.cuGraphDestroy(graph)
    return result, (graph, exec_)
WAYS = [(take, cuda.cuMemFree_v2), (lambda size: create((size + 2 * MIB - 1) // (2 * MIB) * 2 * MIB), cuda.cuMemRelease),
        (async_, free_async), (module, cuda.cuModuleUnload), (take, free_async), (lambda size: take(size // 20000 + 1), free_async),
        (lambda size: array(size // 4096 + 1), cuda.cuArrayDestroy), (lambda size: array(size // MIB + 1), cuda.cuArrayDestroy),
        (graph, lambda pair: cuda.cuGraphExecDestroy(pair[1]) or cuda.cuGraphDestroy(pair[0]))]
def work(seed):
    cuda.cuCtxSetCurrent(context)
    chance, held = random.Random(seed), []
    while not stop or held:
        if held and (stop or chance.random() < 0.5):
            way, handle = held.pop(chance.randrange(len(held)))
            result = way[1](handle)
            if result: wrong.append(result)
            continue
        way = chance.choice(WAYS)
        result, handle = way[0](chance.randrange(1, 80 * MIB))
        if result == 0: held.append((way, handle))
        elif result != OOM: wrong.append(result)
threads = [threading.Thread(target=work, args=(SEED + i,)) for i in range(6)]
for t in threads: t.start()
time.sleep(4)
stop.append(True)
for t in threads: t.join()
pool = c.c_void_p()
assert cuda.cuCtxSynchronize() == cuda.cuDeviceGetDefaultMemPool(c.byref(pool), 0) == 0
assert cuda.cuMemPoolTrimTo(pool, c.c_size_t(0)) == cuda.cuDeviceGraphMemTrim(0) == 0
at_once = room()
end = time.monotonic() + 30
while room() != before and time.monotonic() < end: time.sleep(0.02)
print(json.dumps({"wrong": wrong, "before": before, "at_once": at_once, "after": room()}))
"""


@pytest.mark.parametrize("seed", range(3))
def test_never_less_is_charged_than_is_held_whatever_is_mixed(host, seed):
    """Modules, pools, graphs, arrays and all else in threads: what the driver has, the slice has charged, at once."""
    said = in_slice(host, f"SEED = {seed * 10}" + MIXED)
    assert said["wrong"] == []
    assert said["at_once"] <= said["before"] == said["after"]
    assert gpu(host)["memory_peak_bytes"] <= 3 * GIB
    nothing_is_left(host)


def test_what_a_graph_gives_back_as_it_goes_is_the_slices_at_once(host):
    said = in_slice(host, f"OTHER = {BEGIN + OTHER!r}" + r"""
import subprocess
begin()
other = subprocess.Popen([sys.executable, "-c", OTHER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
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


def test_who_has_no_place_for_the_result_is_told_so_whatever_the_size(host):
    """As by the driver, and not that the slice has no room."""
    said = in_slice(host, r"""
begin()
class Array(c.Structure): _fields_ = [("sizes", c.c_size_t * 3), ("more", c.c_uint * 3)]
place, pitch, big = c.c_uint64(), c.c_size_t(), c.c_size_t(8 << 30)
array = Array((65536, 65536, 0), (0x20, 4, 0))
print(json.dumps([
    [cuda.cuMemAlloc_v2(None, big), cuda.cuMemAllocManaged(None, big, 1),
     cuda.cuMemAllocPitch_v2(None, c.byref(pitch), big, c.c_size_t(8), 4),
     cuda.cuMemAllocPitch_v2(c.byref(place), None, big, c.c_size_t(8), 4), cuda.cuArray3DCreate_v2(None, c.byref(array)),
     cuda.cuMipmappedArrayCreate(None, c.byref(array), 2)],
    [cuda.cuMemAlloc_v2(c.byref(place), big), cuda.cuArray3DCreate_v2(c.byref(place), c.byref(array))]]))
""")
    assert said == [[1] * 6, [2] * 2]
    nothing_is_left(host)


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
def test_what_a_stream_freed_is_the_slices_again_when_the_driver_waited(host, call):
    """Though this process never asks, nor waits by a call of its own."""
    prepare, end = WAITING[call]
    session = host.carve_json("session", "request", "--vram", "3")["id"]
    program = host.popen([BUILD / "carve", "run", "--session", session, "--", sys.executable, "-c", BEGIN + f"""
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


def test_the_most_that_a_session_had_is_not_more_than_it_may_have(host):
    """What is charged twice for a moment, as it goes from one to another, was never held twice."""
    session = host.carve_json("session", "request", "--vram", "3")["id"]
    done = host.carve("run", "--session", session, "--", sys.executable, "-c", BEGIN + r"""
begin()
for _ in range(3):
    pool, pieces = c.c_void_p(), []
    assert cuda.cuMemPoolCreate(c.byref(pool), c.byref(Props(1, 0, Location(1, 0)))) == 0
    while True:
        at = c.c_uint64()
        if cuda.cuMemAllocFromPoolAsync(c.byref(at), c.c_size_t(256 * MIB), pool, None): break
        pieces.append(at)
    assert cuda.cuMemPoolDestroy(pool) == 0
    for at in pieces: assert cuda.cuMemFree_v2(at) == 0
    result, at = take(room() // (2 * MIB) * (2 * MIB))
    assert result == 0 and cuda.cuMemFree_v2(at) == 0
""")
    assert done.returncode == 0, done.stderr
    peak = host.carve_json("session", "show", session)["gpus"][0]["peak_bytes"]
    assert gpu(host)["memory_peak_bytes"] - 2 * MIB <= peak <= 3 * GIB


@pytest.mark.parametrize("size", [("--vram", "3"), ("--vram", "3", "--isolation", "preload")])
def test_what_a_function_that_a_stream_calls_may_not_do_changes_nothing(host, size):
    """CUDA_ERROR_NOT_PERMITTED is told through, as libgomp's plug-in tells such a thread by it, and nothing is charged."""
    done = host.carve("run", *size, "--", BUILD / "tests/programs/cuda_extras", "forbidden-calls")
    assert done.returncode == 0, done.stderr
