"""Memory that a process gave back and the driver keeps, because others have it open, because pieces of it live, because a
stream has not got there: at no moment is it nobody's. Racing processes take whatever they can get meanwhile; judged by the
driver's own log of every change (`carve sim trace`)."""
import json
import os
import sys

import pytest

from in_slice import BEGIN, MIB, context_bytes, gpu, nothing_is_left
from driven import check_by_trace

# More rounds find narrower windows.
ROUNDS = int(os.environ.get("CARVE_TEST_ROUNDS", 12))

COMMON = BEGIN + r"""
import socket
def until_it_fits(take_it):
    "Racers have some of the room now and then, for a moment."
    end = time.monotonic() + 150
    while True:
        result, value = take_it()
        if result == 0: return value
        assert result == OOM and time.monotonic() < end, result
def at_once(take_it):
    result, value = take_it()
    assert result == 0, result
    return value
def churn(size, stop):
    "Takes and gives all the time; how often it was refused, and how often not."
    cuda.cuCtxSetCurrent(context)
    counts = [0, 0]
    while not stop or sum(counts) < 50:
        result, pointer = take(size)
        assert result in (0, OOM), result
        if result == 0: cuda.cuMemFree_v2(pointer)
        counts[result == 0] += 1
    return counts
"""

# Has open whatever it is handed, until told to close it. With an argument it allocates all the time meanwhile.
OPENER = COMMON + r"""
begin()
stop, busy, opened = [], sys.argv[2:] == ["busy"], []
if busy: threading.Thread(target=churn, args=(4 * MIB, stop), daemon=True).start()
calls = socket.socket(fileno=int(sys.argv[1]))
ok_ = lambda: calls.send(b"ok")
ok_()
while True:
    text, fds, _, _ = socket.recv_fds(calls, 4096, 2)
    if not text: break
    cuda.cuCtxSetCurrent(context)
    said = json.loads(text)
    pointer = c.c_uint64()
    if said[0] == "vmm":
        opened.append((cuda.cuMemRelease, import_(fds[0])))
    elif said[0] == "ipc":
        ok(cuda.cuIpcOpenMemHandle_v2(c.byref(pointer), Ipc.from_buffer_copy(bytes.fromhex(said[1])), 1))
        opened.append((cuda.cuIpcCloseMemHandle, pointer))
    elif said[0] == "pool":
        pool = c.c_void_p()
        ok(cuda.cuMemPoolImportFromShareableHandle(c.byref(pool), c.c_void_p(fds[0]), 1, c.c_uint64(0)))
        ok(cuda.cuMemPoolImportPointer(c.byref(pointer), pool, bytes.fromhex(said[1])))
        opened.append((lambda p, pool=pool: cuda.cuMemFree_v2(p) or cuda.cuMemPoolDestroy(pool), pointer))
    else:
        while opened:
            close, what = opened.pop()
            ok(close(what))
    for fd in fds: os.close(fd)
    ok_()
stop.append(True)
"""

# Takes all there is again and again, in steps, while a flag is up.
RACER = COMMON + r"""
import mmap
begin()
size, stop, flag = int(sys.argv[1]), [], mmap.mmap(int(sys.argv[2]), 4096)
print("ready", flush=True)
sys.stdin.readline()
threading.Thread(target=lambda: (sys.stdin.read(), stop.append(True)), daemon=True).start()
while not stop:
    held = []
    while flag[0]:
        result, pointer = take(size)
        assert result in (0, OOM), result
        if result: break
        held.append(pointer)
    for pointer in held: assert cuda.cuMemFree_v2(pointer) == 0
    time.sleep(0.0005)
print("null")
"""

# Takes and gives what it is told there is room for.
NEIGHBOUR = COMMON + r"""
begin()
stop = []
print("ready", flush=True)
sys.stdin.readline()
threading.Thread(target=lambda: (sys.stdin.read(), stop.append(True)), daemon=True).start()
print(json.dumps(churn(int(sys.argv[1]), stop)))
"""

# What each way needs, and how it is given up: a function of what was taken, which leaves it to the driver.
WAYS = r"""
def vmm_taken(size):
    handle = until_it_fits(lambda: create(size))
    return handle, ["vmm"], [export(handle)]
def vmm_mapped(size):
    handle, said, fds = vmm_taken(size)
    at = c.c_uint64()
    ok(cuda.cuMemAddressReserve(c.byref(at), c.c_size_t(size), c.c_size_t(0), c.c_uint64(0), c.c_uint64(0)))
    ok(cuda.cuMemMap(at, c.c_size_t(size), c.c_size_t(0), handle, c.c_uint64(0)))
    ok(cuda.cuMemRelease(handle))
    return (at, size), said, fds
def vmm_unmap(mapped):
    ok(cuda.cuMemUnmap(mapped[0], c.c_size_t(mapped[1])))
    ok(cuda.cuMemAddressFree(mapped[0], c.c_size_t(mapped[1])))
def ipc_of(pointer):
    handle = c.create_string_buffer(64)
    ok(cuda.cuIpcGetMemHandle(handle, pointer))
    return ["ipc", handle.raw.hex()]
def ipc_taken(size):
    pointer = until_it_fits(lambda: take(size))
    return pointer, ipc_of(pointer), []
# Three in a block, of which the second is opened, and the last to go is another.
def small_taken(size):
    pointers = [until_it_fits(lambda: take(MIB // 4)) for _ in range(3)]
    return pointers, ipc_of(pointers[1]), []
def small_free(pointers):
    for i in (1, 0, 2): ok(cuda.cuMemFree_v2(pointers[i]))
def context_taken(size):
    mine = c.c_void_p()
    until_it_fits(lambda: (cuda.cuCtxCreate_v2(c.byref(mine), 0, 0), mine))
    pointer, said, fds = ipc_taken(size)
    cuda.cuCtxSetCurrent(context)
    return mine, said, fds
def context_destroy(mine):
    ok(cuda.cuCtxDestroy_v2(mine))
    cuda.cuCtxSetCurrent(context)
def pool_new(handles):
    pool = c.c_void_p()
    ok(cuda.cuMemPoolCreate(c.byref(pool), c.byref(Props(1, handles, Location(1, 0)))))
    return pool
def pool_piece(pool, size):
    pointer = c.c_uint64()
    until_it_fits(lambda: (cuda.cuMemAllocFromPoolAsync(c.byref(pointer), c.c_size_t(size), pool, None), None))
    return pointer
def pool_taken(size):
    pool = pool_new(1)
    pointer = pool_piece(pool, size)
    fd, data = c.c_int(), c.create_string_buffer(64)
    ok(cuda.cuMemPoolExportToShareableHandle(c.byref(fd), pool, 1, c.c_uint64(0)))
    ok(cuda.cuMemPoolExportPointer(data, pointer))
    return (pool, pointer), ["pool", data.raw.hex()], [fd.value]
def pool_trim(taken):
    pool, pointer = taken
    ok(cuda.cuMemFreeAsync(pointer, None))
    ok(cuda.cuCtxSynchronize())
    ok(cuda.cuMemPoolTrimTo(pool, c.c_size_t(0)))
    room()
    ok(cuda.cuMemPoolDestroy(pool))
def pool_drop(taken):
    ok(cuda.cuMemFreeAsync(taken[1], None))
    ok(cuda.cuMemPoolDestroy(taken[0]))
# Nobody else has it open: it lives on in pieces that are still allocated.
def pieces_taken(size):
    pool = pool_new(0)
    first, second = pool_piece(pool, size - 34 * MIB), pool_piece(pool, 34 * MIB)
    ok(cuda.cuMemFreeAsync(first, None))
    return (pool, second), None, []
def pieces_leave(taken):
    ok(cuda.cuMemPoolDestroy(taken[0]))
    pieces.append(taken[1])
def pieces_close():
    for p in pieces: ok(cuda.cuMemFree_v2(p))
    pieces.clear()
pieces = []
# Freed in a stream that does not get there for now.
HOLD = c.CFUNCTYPE(None, c.c_void_p)(lambda _: gone.wait(60))
gone, streams = threading.Event(), []
def stream_taken(size):
    stream, pointer = c.c_void_p(), until_it_fits(lambda: take(size))
    ok(cuda.cuStreamCreate(c.byref(stream), 1))
    gone.clear()
    ok(cuda.cuLaunchHostFunc(stream, HOLD, None))
    return (stream, pointer), None, []
def stream_free(taken):
    ok(cuda.cuMemFreeAsync(taken[1], taken[0]))
    streams.append(taken[0])
def stream_close():
    gone.set()
    for s in streams: assert cuda.cuStreamSynchronize(s) == cuda.cuStreamDestroy_v2(s) == 0
    streams.clear()
WAYS = {
    "handle": (vmm_taken, lambda h: ok(cuda.cuMemRelease(h)), None),
    "mapping": (vmm_mapped, vmm_unmap, None),
    "ipc": (ipc_taken, lambda p: ok(cuda.cuMemFree_v2(p)), None),
    "ipc-async": (ipc_taken, lambda p: ok(cuda.cuMemFreeAsync(p, None)), None),
    "small": (small_taken, small_free, None),
    "context": (context_taken, context_destroy, None),
    "pool-trim": (pool_taken, pool_trim, None),
    "pool-destroy": (pool_taken, pool_drop, None),
    "pieces": (pieces_taken, pieces_leave, pieces_close),
    "stream": (stream_taken, stream_free, stream_close),
}
"""

# The one that gives up: it leaves less room than the racers ask for.
GIVER = WAYS + r"""
import subprocess
begin()
taking, giving, closing = WAYS[WAY]
calls, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
opener = subprocess.Popen([sys.executable, "-c", OPENER, str(theirs.fileno()), *BUSY], pass_fds=[theirs.fileno()])
theirs.close()
assert calls.recv(9) == b"ok"
def tell(said, fds=()):
    socket.send_fds(calls, [json.dumps(said).encode()], fds)
    for fd in fds: os.close(fd)
    assert calls.recv(9) == b"ok"
def opened(size):
    what, said, fds = taking(size)
    if said: tell(said, fds)
    return what
def close():
    closing() if closing else tell(["close"])
def start(code, *argv, fds=()):
    p = subprocess.Popen([sys.executable, "-c", code, *map(str, [*argv, *fds])], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                         text=True, pass_fds=fds)
    assert p.stdout.readline() == "ready\n"
    return p
def go(*processes):
    for p in processes:
        p.stdin.write("\n")
        p.stdin.flush()
def stop(p):
    said = p.communicate("")[0]
    assert p.returncode == 0
    return json.loads(said)
"""

RACE = GIVER + r"""
import mmap
fd = os.memfd_create("flag")
os.ftruncate(fd, 4096)
flag = mmap.mmap(fd, 4096)
racers = [start(RACER, STEP, fds=[fd]) for _ in range(2)]
go(*racers)
for i in range(ROUNDS):
    what = opened(SIZE)
    flag[0] = 1
    time.sleep(0.005)
    giving(what)
    time.sleep(0.005)
    close()
    flag[0] = 0
for p in racers: stop(p)
end = time.monotonic() + 60
while room() < ROOM and time.monotonic() < end: time.sleep(0.02)
print(json.dumps(room()))
"""

BESIDE = GIVER + r"""
neighbour = start(NEIGHBOUR, STEP)
go(neighbour)
for i in range(ROUNDS):
    what = opened(SIZE) if OPENED else taking(SIZE)
    if not OPENED:
        for fd in what[2]: os.close(fd)
        what = what[0]
    giving(what)
    if OPENED: close()
print(json.dumps(stop(neighbour)))
"""


def in_slice(host, code, vram, timeout=300, **names):
    names = {"OPENER": OPENER, "RACER": RACER, "NEIGHBOUR": NEIGHBOUR, "ROUNDS": ROUNDS, **names}
    code = "".join(f"{name} = {value!r}\n" for name, value in names.items()) + code
    done = host.carve("run", "--vram", f"{vram}B", "--", sys.executable, "-c", COMMON + code, timeout=timeout)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("busy", [False, True], ids=["idle", "busy"])
@pytest.mark.parametrize("way", ["handle", "mapping", "ipc", "ipc-async", "small", "context", "pool-trim", "pool-destroy",
                                 "pieces", "stream"])
def test_what_the_driver_keeps_is_never_nobodys(host, way, busy, tmp_path):
    """The giver, the one that has it open and two racers, in a slice with a little room besides."""
    size, step = (2 * MIB, 2 * MIB) if way == "small" else (512 * MIB, 64 * MIB)
    context = context_bytes(host)
    vram = (4 + (way == "context")) * context + size + (2 if way == "small" else 128) * MIB + 4 * MIB * busy
    said = in_slice(host, RACE, vram, WAY=way, BUSY=["busy"] if busy else [], SIZE=size, STEP=step, ROOM=vram - 2 * context)
    assert gpu(host)["memory_peak_bytes"] <= vram
    if not busy:  # else there are more changes than the log has room for
        check_by_trace(host, tmp_path)
    assert said >= host.measured(vram - 2 * context - 4 * MIB * busy)
    nothing_is_left(host)


@pytest.mark.parametrize("opened", [False, True], ids=["alone", "opened"])
@pytest.mark.parametrize("way", ["handle", "mapping", "ipc", "small"])
def test_what_the_driver_keeps_is_nobodys_refusal(host, way, opened):
    """A neighbour finds room for what has room, and the giver for what it gave, if nobody else has that open."""
    size, step = (2 * MIB, 2 * MIB) if way == "small" else (512 * MIB, 256 * MIB)
    vram = 3 * context_bytes(host) + size + step
    refused, taken = in_slice(host, BESIDE.replace("until_it_fits(lambda: ", "at_once(lambda: ") if not opened else BESIDE, vram,
                              WAY=way, BUSY=[], SIZE=size, STEP=step, OPENED=opened)
    assert refused == 0 and taken >= 50
    assert gpu(host)["memory_peak_bytes"] <= vram
    nothing_is_left(host)


# A full slice but for one block, and small pieces in it, half of which a stream frees: the driver gives the place of one away
# as soon as the stream is there, which the front hears of later.
SMALL = r"""
import random
begin()
big, size = [], 1 << 29
while size >= 2 * MIB:
    result, pointer = take(size)
    if result: size //= 2
    else: big.append(pointer)
cuda.cuMemFree_v2(big.pop())
random.seed(SEED)
live, frees = [], [cuda.cuMemFree_v2, lambda pointer: cuda.cuMemFreeAsync(pointer, None)]
for _ in range(1500):
    if random.random() < 0.55 or not live:
        result, pointer = take(random.randint(1, 15) * 128 * 1024)
        assert result in (0, OOM), result
        if result == 0: live.append(pointer)
    else:
        assert random.choice(frees)(live.pop(random.randrange(len(live)))) == 0
print(json.dumps(len(live)))
"""


@pytest.mark.parametrize("seed", range(1, 4))
def test_the_place_of_a_small_piece_that_a_stream_frees_is_not_free_twice(host, seed):
    vram = 1024 * MIB
    assert in_slice(host, SMALL, vram, SEED=seed) > 0
    assert gpu(host)["memory_peak_bytes"] == vram
    nothing_is_left(host)
