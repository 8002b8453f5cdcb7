"""Every hooked function, by every way a program can come to it: what it gets is the front's, and what that takes is
charged."""
import json

from functions import FUNCTIONS, HOOKS
from in_slice import context_bytes
from programs import python

GRANTED = {"cuMemAlloc_v2", "cuMemAllocManaged", "cuMemAllocPitch_v2", "cuMemAllocAsync", "cuMemAllocAsync_ptsz",
           "cuMemAllocFromPoolAsync", "cuMemAllocFromPoolAsync_ptsz", "cuMemCreate", "cuArrayCreate_v2",
           "cuArray3DCreate_v2", "cuMipmappedArrayCreate", "cuCtxCreate_v2", "cuCtxCreate_v3"}


def in_slice(host, name):
    done = host.carve("run", "--vram", "4", "--", *python(name),
                      env={"HOOKS": json.dumps(HOOKS), "FUNCTIONS": json.dumps(FUNCTIONS)})
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def finds_the_front(host):
    wrong, counts = in_slice(host, "lookup_ways")
    assert wrong == []
    assert counts["linked"] == counts["dlsym"] > 400
    assert counts["cuGetProcAddress_v2"] > 5000 and counts["cuGetProcAddress"] > 5000
    return counts["dlsym"]


def test_each_way_to_look_a_function_up_finds_the_front(host):
    finds_the_front(host)


def test_each_way_to_look_a_function_of_the_newest_driver_up_finds_the_front(make_host):
    """Nothing of what it has is left out: the program asks for all functions that the front knows, but for the debugger's."""
    assert finds_the_front(make_host("h100-80gb", "615")) == len(FUNCTIONS)


def test_each_way_to_call_a_function_is_charged(host):
    seen, context = in_slice(host, "lookup_charges"), context_bytes(host)
    # Another context of a process may take less than its first.
    context = host.measured(context, context // 2)
    for name in GRANTED:
        for way in "linked", "dlsym", "cuGetProcAddress":
            taken, left = seen.pop(f"{name} by {way}")
            assert left == 0, (name, way)
            assert taken == (context if name.startswith("cuCtx") else 64 << 20), (name, way)
    assert seen == {}
