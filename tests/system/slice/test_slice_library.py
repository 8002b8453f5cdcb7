"""Libraries (cuLibrary*), which have a module in each context that uses them: what their variables take is refused where it
does not fit, whichever context gets them and by whichever call. Judged by the driver's own books (`carve sim stat`)."""
import json

import pytest

from conftest import ONCE_FOR_THE_FRONT, rest_long
from in_slice import GIB, MIB, gpu, in_slice, nothing_is_left

pytestmark = ONCE_FOR_THE_FRONT

LIBRARY = r"""
IMAGE = b'''.version 8.0
.target sm_70
.address_size 64
.visible .global .align 4 .b8 big[%d];
.visible .entry k() { ret; }''' % (300 * MIB)
library, module, kernel, function, value = c.c_void_p(), c.c_void_p(), c.c_void_p(), c.c_void_p(), c.c_int()
def load(): return cuda.cuLibraryLoadData(c.byref(library), IMAGE, None, None, 0, None, None, 0)
def contexts(count):
    made = [c.c_void_p() for _ in range(count)]
    for one in made: assert cuda.cuCtxCreate_v2(c.byref(one), 0, 0) == 0
    return made
def get_global():
    at, size = c.c_uint64(), c.c_size_t()
    return cuda.cuLibraryGetGlobal(c.byref(at), c.byref(size), library, b"big")
def get_kernel(): return cuda.cuLibraryGetKernel(c.byref(kernel), library, b"k")
USES = {
    "global": get_global,
    "module": lambda: cuda.cuLibraryGetModule(c.byref(module), library),
    "function": lambda: cuda.cuKernelGetFunction(c.byref(function), kernel),
    "attribute": lambda: cuda.cuKernelGetAttribute(c.byref(value), 3, kernel, 0),
    "set-attribute": lambda: cuda.cuKernelSetAttribute(8, 1024, kernel, 0),
    "launch": lambda: cuda.cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, None, None, None),
}
assert cuda.cuInit(0) == 0
"""
USES = ["global", "module", "function", "attribute", "set-attribute", "launch"]


@pytest.mark.parametrize("use", rest_long(USES, 3))
def test_each_context_has_its_own_variables(host, use):
    """The one that was current when it was loaded has room for them; the others need more, and give it back."""
    said = in_slice(host, LIBRARY + r"""
made = contexts(3)
before = room()
assert load() == get_kernel() == 0
loaded = room()
full, filled = take(loaded // (2 * MIB) * 2 * MIB - 8 * MIB)
results = []
for one in reversed(made):
    assert cuda.cuCtxSetCurrent(one) == 0
    results.append([USES[%r](), get_kernel(), USES[%r]()])
assert cuda.cuMemFree_v2(filled) == 0
between = room()
assert USES[%r]() == 0 and cuda.cuCtxSynchronize() == 0
more = between - room()
assert cuda.cuLibraryUnload(library) == 0
print(json.dumps({"full": full, "loaded": before - loaded, "results": results, "more": more, "after": before - room()}))
""" % (use, use, use))
    assert said["full"] == 0 and 300 * MIB <= said["loaded"] <= 308 * MIB
    # The last one failed for want of room, and tried again.
    assert said["results"] == [[0, 0, 0], [2, 0, 2], [2, 0, 2]]
    assert 300 * MIB <= said["more"] <= 308 * MIB
    assert said["after"] == 0
    # The code is loaded when it is first used: a block that nobody could know of before.
    assert gpu(host)["memory_peak_bytes"] <= 3 * GIB + 2 * MIB
    nothing_is_left(host)


def test_contexts_that_go_take_theirs_along(host):
    said = in_slice(host, LIBRARY + r"""
begin()
before, rooms = room(), []
assert load() == get_kernel() == 0
one, = contexts(1)
assert get_global() == cuda.cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, None, None, None) == cuda.cuCtxSynchronize() == 0
rooms.append(before - room())
assert cuda.cuCtxDestroy_v2(one) == 0 and cuda.cuCtxSetCurrent(context) == 0
rooms.append(before - room())
for _ in range(5):  # the same handle may come back
    one, = contexts(1)
    assert get_global() == cuda.cuCtxDestroy_v2(one) == cuda.cuCtxSetCurrent(context) == 0
assert get_global() == 0
rooms.append(before - room())
assert cuda.cuLibraryUnload(library) == 0
rooms.append(before - room())
for _ in range(20):
    assert load() == get_global() == cuda.cuLibraryUnload(library) == 0
rooms.append(before - room())
print(json.dumps(rooms))
""")
    assert said[0] > 1000 * MIB and 300 * MIB <= said[1] <= said[2] <= 308 * MIB
    assert said[3:] == [0, 0]
    nothing_is_left(host)


def test_each_gpu_pays_for_its_own(make_host):
    host = make_host("h100-80gb:2")
    said = in_slice(host, LIBRARY + r"""
def on(device):
    one = c.c_void_p()
    assert cuda.cuCtxCreate_v2(c.byref(one), 0, device) == 0
    return one
made = [on(0), on(1)]
assert cuda.cuCtxSetCurrent(made[0]) == load() == get_global() == 0
assert cuda.cuCtxSetCurrent(made[1]) == 0
full, filled = take(room() // (2 * MIB) * 2 * MIB - 8 * MIB)
results = [get_global()]
assert cuda.cuMemFree_v2(filled) == 0
before = room()
results.append(get_global())
taken = before - room()
assert cuda.cuLibraryUnload(library) == 0
print(json.dumps({"results": results, "taken": taken, "after": before - room()}))
""", "--gpus", "2", "--vram", "2")
    assert said["results"] == [2, 0]
    assert 300 * MIB <= said["taken"] <= 308 * MIB and said["after"] == 0
    assert all(g["memory_peak_bytes"] <= 2 * GIB + 2 * MIB for g in host.stat()["gpus"])


@pytest.mark.parametrize("mode, loads", [("LAZY", 0), ("EAGER", 2)])
def test_a_library_without_room_is_refused_when_the_driver_takes_its_memory(host, mode, loads):
    """As on a GPU of that size: with its first use, or as it is loaded (CUDA_MODULE_LOADING)."""
    said = in_slice(host, LIBRARY + r"""
made = contexts(1)
full, filled = take(room() - 8 * MIB)
tight = room()
results = [load()]
if results[0] == 0: results += [get_kernel()] + [use() for use in USES.values()]
after = room()
assert full == 0 and cuda.cuMemFree_v2(filled) == 0
before = room()
assert (results[0] or cuda.cuLibraryUnload(library)) in (0, 2) and load() == get_kernel() == get_global() == cuda.cuCtxSynchronize() == 0
taken = before - room()
assert cuda.cuLibraryUnload(library) == 0
print(json.dumps({"results": results, "kept": tight - after, "taken": taken, "end": before - room()}))
""", env={"CUDA_MODULE_LOADING": mode})
    assert said["results"] == ([0, 0] + [2] * len(USES) if loads == 0 else [2])
    assert said["kept"] == said["end"] == 0 and 300 * MIB <= said["taken"] <= 308 * MIB
    assert gpu(host)["memory_peak_bytes"] <= 3 * GIB
    nothing_is_left(host)


def test_a_library_that_was_loaded_without_room_is_used_when_there_is_some(host):
    said = in_slice(host, LIBRARY + r"""
made = contexts(1)
full, filled = take(room() - 8 * MIB)
results, before = [full, load(), get_kernel(), get_global()], room()
assert cuda.cuMemFree_v2(filled) == 0
all_of_it = room()
results.append(USES["launch"]())
print(json.dumps({"results": results, "taken": all_of_it - room()}))
""")
    assert said["results"] == [0, 0, 0, 2, 0] and 300 * MIB <= said["taken"] <= 308 * MIB
    assert gpu(host)["memory_peak_bytes"] <= 3 * GIB
