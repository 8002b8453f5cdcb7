"""The driver says what is wrong with a call, in a full slice, too. Judged by the driver's own books (`carve sim
stat`)."""
import json
import sys

import pytest

from conftest import BUILD, ONCE_FOR_THE_FRONT
from in_slice import BEGIN, GIB, MIB, in_slice, nothing_is_left

pytestmark = ONCE_FOR_THE_FRONT


# The answer to each way to memory.
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
    alone = host.run([sys.executable, "-S", "-c", BEGIN + code])
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


def test_errors_of_a_wrong_call_come_from_the_driver(host):
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
    """A question that the driver does not answer before cuInit is asked again after it."""
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
def test_memory_that_the_driver_no_longer_reports_stays_charged(make_host, call):
    """As after a kernel's fault, when calls give that alone: no other process gets what it holds."""
    said = in_slice(make_host("h100-80gb"), f"CALL, SILENT, CARVE = {call!r}, {SILENT!r}, {str(BUILD / 'carve')!r}" + r"""
import subprocess
begin()
other = subprocess.Popen([sys.executable, "-S", "-c", SILENT, CALL], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
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


def test_a_call_without_a_place_for_its_result_gets_the_drivers_error_at_any_size(host):
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


def test_pools_and_contexts_without_a_place_are_the_drivers_to_refuse(host):
    said = in_slice(host, r"""
begin()
ok(take(room())[0])
place, pool, big = c.c_uint64(), c.c_void_p(), c.c_size_t(64 * MIB)
ok(cuda.cuDeviceGetDefaultMemPool(c.byref(pool), 0))
print(json.dumps([
    [cuda.cuMemAllocAsync(None, big, None), cuda.cuMemAllocAsync_ptsz(None, big, None),
     cuda.cuMemAllocFromPoolAsync(None, big, pool, None), cuda.cuMemAllocFromPoolAsync(c.byref(place), big, None, None),
     cuda.cuMemAllocFromPoolAsync_ptsz(None, big, pool, None), cuda.cuCtxCreate_v2(None, 0, 0)],
    [cuda.cuMemAllocAsync(c.byref(place), big, None), cuda.cuMemAllocFromPoolAsync(c.byref(place), big, pool, None),
     cuda.cuCtxCreate_v2(c.byref(place), 0, 0)]]))
""")
    assert said == [[1] * 6, [2] * 3]


def test_a_wrapper_that_holds_itself_is_no_image(host):
    """Of a fat binary: nobody looks for its end."""
    alone, in_it = said_alone_and_in_slice(host, r"""
class Wrapper(c.Structure): _fields_ = [("magic", c.c_uint), ("version", c.c_uint), ("data", c.c_void_p), ("more", c.c_void_p)]
begin()
module, own, none = c.c_void_p(), Wrapper(0x466243b1, 1), Wrapper(0x466243b1, 1)
own.data = c.addressof(own)
print(json.dumps([cuda.cuModuleLoadData(c.byref(module), c.byref(one)) for one in (own, none)]))
""")
    assert alone == in_it == [200, 200]
    nothing_is_left(host)


def test_a_refused_graph_says_so_in_each_place_for_it(host):
    """Programs look there as well as at the result; the driver writes both."""
    said = in_slice(host, r"""
class Params(c.Structure):
    _fields_ = [("flags", c.c_uint64), ("stream", c.c_void_p), ("node", c.c_void_p), ("result", c.c_int)]
class Kernel(c.Structure):
    _fields_ = [("function", c.c_void_p), ("size", c.c_uint * 7), ("params", c.c_void_p), ("extra", c.c_void_p)]
PTX = b'''.version 8.0
.target sm_70
.address_size 64
.visible .entry deep() { .local .align 8 .b8 many[65536]; .reg .u64 %at; mov.u64 %at, many; st.local.u32 [%at+65528], 1; ret; }'''
begin()
UPLOAD, module, function = 2, c.c_void_p(), c.c_void_p()
ok(cuda.cuModuleLoadData(c.byref(module), PTX)); ok(cuda.cuModuleGetFunction(c.byref(function), module, b"deep"))
takes, needs, exec_, node = (c.c_void_p() for _ in range(4))
for graph in takes, needs: ok(cuda.cuGraphCreate(c.byref(graph), 0))
allocate_in(takes, 64 * MIB, 0)
kernel = Kernel(function, (1, 1, 1, 1, 1, 1, 0), None, None)
ok(cuda.cuGraphAddKernelNode(c.byref(node), needs, None, c.c_size_t(0), c.byref(kernel)))
ok(take(room() - 2 * MIB)[0])
params, log, wrong = Params(UPLOAD, None, 7, 9), c.create_string_buffer(b"unwritten"), c.c_void_p(7)
print(json.dumps([
    [cuda.cuGraphInstantiateWithParams(c.byref(exec_), takes, c.byref(params)), params.result, params.node],
    [cuda.cuGraphInstantiate_v2(c.byref(exec_), needs, c.byref(wrong), log, c.c_size_t(len(log))), log.value.decode(), wrong.value],
    cuda.cuGraphInstantiateWithParams(None, takes, c.byref(params)), cuda.cuGraphInstantiateWithFlags(None, needs, c.c_uint64(0))]))
""")
    assert said == [[2, 1, None], [2, "", None], 1, 1]  # CUDA_GRAPH_INSTANTIATE_ERROR


def test_a_refused_module_is_refused_as_the_driver_refuses(host):
    """Its compiler's logs have no text. Without a place for the module, and in a context where a kernel went wrong, that is said."""
    alone, in_it = said_alone_and_in_slice(host, r"""
SMALL = b".version 8.0\n.target sm_70\n.address_size 64\n"
BIG = SMALL + b".visible .global .align 16 .b8 big[%d];\n" % (256 * MIB)
WRONG = SMALL + b".visible .entry wrong() { .reg .u64 %at; mov.u64 %at, 4096; st.global.u32 [%at], 1; ret; }"
begin()
handle, function, size = c.c_void_p(), c.c_void_p(), 64 << 30
ok(cuda.cuModuleLoadData(c.byref(handle), WRONG)); ok(cuda.cuModuleGetFunction(c.byref(function), handle, b"wrong"))
while size >= 2 * MIB:
    if take(size)[0]: size //= 2
info, error, options = c.create_string_buffer(64), c.create_string_buffer(64), (c.c_int * 4)(3, 4, 5, 6)
def logs(): return (c.c_void_p * 4)(c.addressof(info), 64, c.addressof(error), 64)
def load(place): return cuda.cuModuleLoadData(place, BIG)
def lengths(result, values): return [result, values[1], values[3]]
module = logs()
full = [lengths(cuda.cuModuleLoadDataEx(c.byref(handle), BIG, 4, options, module), module), load(c.byref(handle)), load(None)]
ok(cuda.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, None, None, None))
print(json.dumps([full, cuda.cuCtxSynchronize(), load(c.byref(handle)), cuda.cuCtxSetLimit(2, c.c_size_t(1 << 40))]))
""")
    assert alone[1:3] == [700, 700]
    assert in_it == alone
