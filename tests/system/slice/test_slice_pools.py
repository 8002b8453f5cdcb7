"""The memory that the driver keeps of pools that were destroyed. Judged by the driver's own books (`carve sim stat`)."""
import sys

from conftest import ONCE_FOR_THE_FRONT
from in_slice import BEGIN, GIB, MIB, gpu, in_slice, nothing_is_left

pytestmark = ONCE_FOR_THE_FRONT


def test_memory_left_of_a_destroyed_pool_counts_at_once(host):
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
    # Memory that the threads took and gave in between may be missing, once for each pool.
    assert gpu(host)["memory_peak_bytes"] <= 3 * GIB + 6 * 12 * MIB
    nothing_is_left(host)


def test_the_most_that_a_session_had_is_not_more_than_it_may_have(host):
    """Memory charged twice for a moment, as it goes from one to another, was never held twice."""
    session = host.carve_json("session", "request", "--vram", "3")["id"]
    done = host.carve("run", "--session", session, "--", sys.executable, "-S", "-c", BEGIN + r"""
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
