"""Memory through functions that came after CUDA 13.0, looked up in each way: newer_memory.py HOW MIB. HOW: `name`, or the
name that cuGetProcAddress is asked for. Says what launching a graph that allocates so much gives, and how much is taken."""
from cuda import *

ALLOCATES = 10  # CU_GRAPH_NODE_TYPE_MEM_ALLOC


class NodeParams(c.Structure):
    _fields_ = [("type", c.c_int), ("reserved", c.c_int * 3), ("alloc", Alloc), ("rest", c.c_ubyte * 120)]


how, size = sys.argv[1], int(sys.argv[2]) * MIB
begin()
if how == "name":
    add = cuda.cuGraphAddNode_v3
else:
    found = c.c_void_p()
    ok(cuda.cuGetProcAddress_v2(how.encode(), c.byref(found), 13040, c.c_uint64(0), None))
    add = c.CFUNCTYPE(c.c_int, c.c_void_p, c.c_void_p, c.c_void_p, c.c_void_p, c.c_size_t, c.c_void_p)(found.value)
graph, node, launched, stream = c.c_void_p(), c.c_void_p(), c.c_void_p(), c.c_void_p()
ok(cuda.cuGraphCreate(c.byref(graph), 0))
ok(cuda.cuStreamCreate(c.byref(stream), 1))
params = NodeParams(ALLOCATES, (c.c_int * 3)(), Alloc(Props(1, 0, Location(1, 0)), None, 0, size, 0))
assert c.sizeof(params) == 256
ok(add(c.byref(node), graph, None, None, 0, c.byref(params)))
ok(cuda.cuGraphInstantiateWithFlags(c.byref(launched), graph, c.c_uint64(0)))
before = room()
result = cuda.cuGraphLaunch(launched, stream)
ok(cuda.cuStreamSynchronize(stream))
print(json.dumps([result, (before - room()) // MIB]))
