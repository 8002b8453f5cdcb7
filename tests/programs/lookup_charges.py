"""Each function that takes memory, by three ways; prints what the slice's room fell by, and what is left to be given back."""
from cuda import *

libc = c.CDLL(None)
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
