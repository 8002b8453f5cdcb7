"""A graph with host functions is launched thrice, with a function of the stream's own after each; prints which were called."""
from cuda import *

word, called = c.c_uint64(), []
function = c.CFUNCTYPE(None, c.c_void_p)(called.append)
def call(stream, number): ok(cuda.cuLaunchHostFunc(stream, function, c.c_void_p(number)))
begin()
first, second, event, graph, exec_ = (c.c_void_p() for _ in range(5))
for stream in first, second: ok(cuda.cuStreamCreate(c.byref(stream), 1))
ok(cuda.cuMemAlloc_v2(c.byref(word), c.c_size_t(4096)))
ok(cuda.cuMemsetD8Async(word, 0, c.c_size_t(4096), first)); ok(cuda.cuStreamSynchronize(first))
if sys.argv[1] == "joined":
    # One that joined a capture goes before its work is joined to the rest: that one fails, and the next one is a capture as any.
    ok(cuda.cuEventCreate(c.byref(event), 2))
    ok(cuda.cuStreamBeginCapture_v2(first, 2)); ok(cuda.cuEventRecord(event, first))
    ok(cuda.cuStreamWaitEvent(second, event, 0)); call(second, 9); ok(cuda.cuStreamDestroy_v2(second))
    assert cuda.cuStreamEndCapture(first, c.byref(graph)) != 0
ok(cuda.cuStreamBeginCapture_v2(first, 2))
call(first, 1), call(first, 2)
ok(cuda.cuStreamEndCapture(first, c.byref(graph)))
ok(cuda.cuGraphInstantiateWithFlags(c.byref(exec_), graph, c.c_uint64(0)))
for i in range(3):
    ok(cuda.cuGraphLaunch(exec_, first)); ok(cuda.cuStreamSynchronize(first))
    call(first, 30 + i); ok(cuda.cuStreamSynchronize(first))
print(called)
