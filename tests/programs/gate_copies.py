"""Copies while the session's gate is closed to begin with: gate_copies.py HOW KINDS. HOW is a function of the driver; KINDS
has a letter for each copy: w within the GPU, f a small one from the host, t a small one to the host."""
from cuda import *

SMALL, LARGE = 64, 4 * MIB


class Attributes(c.Structure):
    _fields_ = [("order", c.c_int), ("source", Location), ("target", Location), ("flags", c.c_uint)]


class Operand(c.Structure):
    _fields_ = [("type", c.c_int), ("at", c.c_uint64), ("row", c.c_size_t), ("layer", c.c_size_t), ("hint", Location)]


class Operation(c.Structure):
    _fields_ = [("source", Operand), ("target", Operand), ("extent", c.c_size_t * 3), ("order", c.c_int), ("flags", c.c_uint)]


how, kinds = sys.argv[1:]
begin()
stream, host = c.c_void_p(), c.c_void_p()
ok(cuda.cuStreamCreate(c.byref(stream), 1))
ok(cuda.cuMemHostAlloc(c.byref(host), c.c_size_t(SMALL), 0))
(_, here), (_, there) = take(LARGE), take(LARGE)
ends = {"w": (here.value, there.value, LARGE), "f": (here.value, host.value, SMALL), "t": (host.value, there.value, SMALL)}
copies = [ends[kind] for kind in kinds]
count = c.c_size_t(len(copies))
attributes, first = Attributes(1), (c.c_size_t * 1)(0)
function = getattr(cuda, how)
if how.startswith("cuMemcpyBatchAsync"):
    to, source = ((c.c_uint64 * len(copies))(*[copy[side] for copy in copies]) for side in (0, 1))
    sizes = (c.c_size_t * len(copies))(*[copy[2] for copy in copies])
    failed = [] if "_v2" in how else [c.byref(c.c_size_t())]
    ok(function(to, source, sizes, count, c.byref(attributes), first, c.c_size_t(1), *failed, stream))
elif how.startswith("cuMemcpyWithAttributesAsync"):
    for to, source, size in copies:
        ok(function(c.c_uint64(to), c.c_uint64(source), c.c_size_t(size), c.byref(attributes), stream))
else:
    list_of = (Operation * len(copies))(*[Operation(Operand(1, source, size, 1), Operand(1, to, size, 1), (size, 1, 1), 1)
                                          for to, source, size in copies])
    if "Batch" in how:
        failed = [] if "_v2" in how else [c.byref(c.c_size_t())]
        ok(function(count, list_of, *failed, c.c_uint64(0), stream))
    else:
        for operation in list_of:
            ok(function(c.byref(operation), c.c_uint64(0), stream))
ok(cuda.cuStreamSynchronize(stream))
