"""Threads that take and give memory in all ways at once. Judged by the driver's own books (`carve sim stat`)."""
import pytest

from conftest import ONCE_FOR_THE_FRONT, rest_long
from in_slice import GIB, gpu, in_slice, nothing_is_left, program_in_slice

pytestmark = ONCE_FOR_THE_FRONT


@pytest.mark.long
def test_threads_that_map_and_unmap_in_one_place_are_charged_right(host):
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


@pytest.mark.parametrize("seed", rest_long(range(3)))
def test_never_less_is_charged_than_is_held_whatever_is_mixed(host, seed):
    """Modules, pools, graphs, arrays and all else in threads: what the driver has, the slice has charged, at once."""
    said = program_in_slice(host, "mixed_work", seed * 10)
    assert said["wrong"] == []
    assert said["at_once"] <= said["before"] == said["after"]
    assert gpu(host)["memory_peak_bytes"] <= 3 * GIB
    nothing_is_left(host)
