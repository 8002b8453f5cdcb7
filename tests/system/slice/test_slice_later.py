"""Calls that take no memory yet are not refused in a full slice: as on a full GPU, what they made is refused when it takes some."""
import json
import sys

from conftest import ONCE_FOR_THE_FRONT
from in_slice import BEGIN, in_slice, nothing_is_left

pytestmark = ONCE_FOR_THE_FRONT

LATER = r"""
class Array(c.Structure):
    _fields_ = [("sizes", c.c_size_t * 3), ("format", c.c_int), ("channels", c.c_uint), ("flags", c.c_uint)]
begin()
size = 64 << 30
while size >= 2 * MIB:
    if take(size)[0]: size //= 2
def handles(count): return [c.c_void_p() for _ in range(count)]
def size_of(mib): return c.c_size_t(mib * MIB)
big, most, deferred = 64 * MIB, Props(1, 0, Location(1, 0), None, 64 * MIB), 0x80
graph, outer, exec_, over, node, child, stream, captured, again, pool, other, array = handles(12)
place, update, status = c.c_uint64(), c.c_uint64(), (c.c_void_p * 3)()
results = {}
def note(name, result): results[name] = result
for one in graph, outer: ok(cuda.cuGraphCreate(c.byref(one), 0))
first, at = allocate_in(graph, big, 0)
note("free node", cuda.cuGraphAddMemFreeNode(c.byref(node), graph, c.byref(first), c.c_size_t(1), at))
note("instantiate", cuda.cuGraphInstantiateWithFlags(c.byref(exec_), graph, c.c_uint64(0)))
note("upload", cuda.cuGraphUpload(exec_, None))
note("launch", cuda.cuGraphLaunch(exec_, None))
note("trim", cuda.cuDeviceGraphMemTrim(0))
ok(cuda.cuStreamCreate(c.byref(stream), 1))
ok(cuda.cuStreamBeginCapture_v2(stream, 2))
note("captured", cuda.cuMemAllocAsync(c.byref(place), size_of(64), stream))
note("captured free", cuda.cuMemFreeAsync(place, stream))
ok(cuda.cuStreamEndCapture(stream, c.byref(captured)))
note("captured graph", cuda.cuGraphInstantiateWithFlags(c.byref(again), captured, c.c_uint64(0)))
note("captured launch", cuda.cuGraphLaunch(again, stream))
note("pool", cuda.cuMemPoolCreate(c.byref(pool), c.byref(most)))
note("from pool", cuda.cuMemAllocFromPoolAsync(c.byref(place), size_of(32), pool, None))
note("pool beyond its most", cuda.cuMemAllocFromPoolAsync(c.byref(place), size_of(128), pool, None))
note("pool trimmed", cuda.cuMemPoolTrimTo(pool, size_of(64)))
note("pool kept", cuda.cuMemPoolSetAttribute(pool, 4, c.byref(c.c_uint64((1 << 64) - 1))))
note("addresses", cuda.cuMemAddressReserve(c.byref(place), size_of(1024), c.c_size_t(0), c.c_uint64(0), c.c_uint64(0)))
note("memory", create(big)[0])
note("lower stack", cuda.cuCtxSetLimit(0, c.c_size_t(512)))
note("nothing", take(0)[0])
print(json.dumps(results))
"""


def test_calls_that_take_no_memory_yet_are_not_refused(host):
    alone = host.run([sys.executable, "-S", "-c", BEGIN + LATER])
    assert alone.returncode == 0, alone.stderr
    said = in_slice(host, LATER)
    assert said == json.loads(alone.stdout)
    assert {name for name, result in said.items() if result == 0} >= {"instantiate", "captured graph", "pool", "addresses"}
    assert {said[name] for name in ("upload", "launch", "captured launch", "from pool", "memory")} == {2}
    nothing_is_left(host)
