"""Every hooked function, by every way a program can come to it: what it gets is the front's, and what that takes is
charged."""
import json
import sys

from functions import FUNCTIONS, HOOKS
from in_slice import context_bytes

GRANTED = {"cuMemAlloc_v2", "cuMemAllocManaged", "cuMemAllocPitch_v2", "cuMemAllocAsync", "cuMemAllocAsync_ptsz",
           "cuMemAllocFromPoolAsync", "cuMemAllocFromPoolAsync_ptsz", "cuMemCreate", "cuArrayCreate_v2",
           "cuArray3DCreate_v2", "cuMipmappedArrayCreate", "cuCtxCreate_v2", "cuCtxCreate_v3"}

LOOK_UP = r"""
import ctypes as c, json, sys
hooks, functions = set(HOOKS), set(FUNCTIONS)
class Info(c.Structure):
    _fields_ = [("file", c.c_char_p), ("base", c.c_void_p), ("name", c.c_char_p), ("address", c.c_void_p)]
libc, cuda = c.CDLL(None), c.CDLL("libcuda.so.1")
libc.dlsym.restype, libc.dlsym.argtypes = c.c_void_p, [c.c_void_p, c.c_char_p]
def where(address):
    info = Info()
    assert libc.dladdr(c.c_void_p(address), c.byref(info))
    return info.file.decode(), (info.name or b"").decode()
wrong, counts = [], {"linked": 0, "dlsym": 0, "cuGetProcAddress": 0, "cuGetProcAddress_v2": 0}
def see(way, asked, address):
    file, name = where(address)
    counts[way] += 1
    if ("/front/" not in file and (name in hooks or asked in hooks)) or ("/front/" in file and asked not in hooks
                                                                              and way == "dlsym"):
        wrong.append([way, asked, file, name])
for name in sorted(functions):
    for handle in (0, cuda._handle):  # RTLD_DEFAULT is what a linked program is bound to
        address = libc.dlsym(handle, name.encode())
        if address:
            see("linked" if handle == 0 else "dlsym", name, address)
bases = {name.removesuffix("_ptsz").removesuffix("_ptds") for name in functions}
bases |= {b[:-3] for b in bases if b[-3:-1] == "_v"}
for base in sorted(bases):
    for version in (2000, 3020, 4000, 11020, 11070, 12000, 12080, 13000):
        for flags in (0, 1, 2):  # default, legacy, per-thread stream
            for name, more in ("cuGetProcAddress_v2", [None]), ("cuGetProcAddress", []):
                found = c.c_void_p()
                getattr(cuda, name)(base.encode(), c.byref(found), version, c.c_ulonglong(flags), *more)
                if found.value:
                    see(name, base if base in hooks else "", found.value)
print(json.dumps([wrong, counts]))
"""

# Each by the three ways; prints what the slice's room fell by, and what is left to be given back.
CHARGE = r"""
import ctypes as c, json, sys
MIB = 1 << 20
libc, cuda = c.CDLL(None), c.CDLL("libcuda.so.1")
libc.dlsym.restype, libc.dlsym.argtypes = c.c_void_p, [c.c_void_p, c.c_char_p]
u64, size, ptr = c.c_ulonglong, c.c_size_t, c.c_void_p
class Prop(c.Structure):
    _fields_ = [("type", c.c_int), ("handles", c.c_int), ("place", c.c_int), ("id", c.c_int), ("rest", c.c_ubyte * 64)]
class PoolProps(c.Structure):
    _fields_ = [("type", c.c_int), ("handles", c.c_int), ("place", c.c_int), ("id", c.c_int), ("rest", c.c_ubyte * 80)]
class Array(c.Structure):
    _fields_ = [("width", size), ("height", size), ("format", c.c_int), ("channels", c.c_uint)]
class Array3(c.Structure):
    _fields_ = [("width", size), ("height", size), ("depth", size), ("format", c.c_int), ("channels", c.c_uint),
                ("flags", c.c_uint)]
def ok(result): assert result == 0, result
def room():
    free, total = size(), size()
    ok(cuda.cuMemGetInfo_v2(c.byref(free), c.byref(total)))
    return free.value
ok(cuda.cuInit(0)); ok(cuda.cuCtxCreate_v2(c.byref(ptr()), 0, 0))
pool, out, pitch = ptr(), u64(), size()
ok(cuda.cuMemPoolCreate(c.byref(pool), c.byref(PoolProps(type=1, place=1))))
# (exported name, name for cuGetProcAddress, version, flags, arguments, how it is given back)
free, ref = lambda: cuda.cuMemFree_v2(out), c.byref(out)
stream = ptr(0)
array, array3 = Array(4096, 1024, 0x20, 4), Array3(4096, 1024, 0, 0x20, 4, 0)
rows = [
    ("cuMemAlloc_v2", "cuMemAlloc", 12000, 0, [ref, size(64 * MIB)], free),
    ("cuMemAllocManaged", "cuMemAllocManaged", 12000, 0, [ref, size(64 * MIB), 1], free),
    ("cuMemAllocPitch_v2", "cuMemAllocPitch", 12000, 0, [ref, c.byref(pitch), size(1 << 14), size(4096), 4], free),
    ("cuMemAllocAsync", "cuMemAllocAsync", 12000, 1, [ref, size(64 * MIB), stream], free),
    ("cuMemAllocAsync_ptsz", "cuMemAllocAsync", 12000, 2, [ref, size(64 * MIB), stream], free),
    ("cuMemAllocFromPoolAsync", "cuMemAllocFromPoolAsync", 12000, 1, [ref, size(64 * MIB), pool, stream], free),
    ("cuMemAllocFromPoolAsync_ptsz", "cuMemAllocFromPoolAsync", 12000, 2, [ref, size(64 * MIB), pool, stream], free),
    ("cuMemCreate", "cuMemCreate", 12000, 0, [ref, size(64 * MIB), c.byref(Prop(type=1, place=1)), u64(0)],
     lambda: cuda.cuMemRelease(out)),
    ("cuArrayCreate_v2", "cuArrayCreate", 12000, 0, [ref, c.byref(array)], lambda: cuda.cuArrayDestroy(out)),
    ("cuArray3DCreate_v2", "cuArray3DCreate", 12000, 0, [ref, c.byref(array3)], lambda: cuda.cuArrayDestroy(out)),
    ("cuMipmappedArrayCreate", "cuMipmappedArrayCreate", 12000, 0, [ref, c.byref(array3), 1],
     lambda: cuda.cuMipmappedArrayDestroy(out)),
    ("cuCtxCreate_v2", "cuCtxCreate", 11000, 0, [ref, 0, 0], lambda: cuda.cuCtxDestroy_v2(out)),
    ("cuCtxCreate_v3", "cuCtxCreate", 11040, 0, [ref, None, 0, 0, 0], lambda: cuda.cuCtxDestroy_v2(out)),
]
call = c.CFUNCTYPE(c.c_int)
seen = {}
for exported, name, version, flags, arguments, give in rows:
    found = ptr()
    ok(cuda.cuGetProcAddress_v2(name.encode(), c.byref(found), version, u64(flags), None))
    ways = {"linked": getattr(cuda, exported), "dlsym": call(libc.dlsym(0, exported.encode())),
            "cuGetProcAddress": call(found.value)}
    for way, function in ways.items():
        before = room()
        result = function(*arguments)
        if result == 0:
            taken = before - room()
            ok(give()); ok(cuda.cuCtxSynchronize())
            seen[f"{exported} by {way}"] = [taken, before - room()]
        else:
            seen[f"{exported} by {way}"] = [-result, 0]
print(json.dumps(seen))
"""


def in_slice(host, code):
    done = host.carve("run", "--vram", "4", "--", sys.executable, "-c", code)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_whatever_way_it_is_looked_up_it_is_the_fronts(host):
    wrong, counts = in_slice(host, f"HOOKS, FUNCTIONS = {HOOKS!r}, {FUNCTIONS!r}\n{LOOK_UP}")
    assert wrong == []
    assert counts["linked"] == counts["dlsym"] > 400
    assert counts["cuGetProcAddress_v2"] > 5000 and counts["cuGetProcAddress"] > 5000


def test_whatever_way_it_is_called_it_is_charged(host):
    seen, context = in_slice(host, CHARGE), context_bytes(host)
    # Another context of a process may take less than its first.
    context = host.measured(context, context // 2)
    for name in GRANTED:
        for way in "linked", "dlsym", "cuGetProcAddress":
            taken, left = seen.pop(f"{name} by {way}")
            assert left == 0, (name, way)
            assert taken == (context if name.startswith("cuCtx") else 64 << 20), (name, way)
    assert seen == {}
