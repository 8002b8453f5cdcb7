"""Threads take and give memory in all ways at once, by chance from the seed in the argument."""
import random

from cuda import *

begin()
before, stop, wrong = room(), [], []
IMAGE = b".version 6.0\n.target sm_50\n.address_size 64\n.global .align 16 .b8 big[%d];\n.visible .entry nothing()\n{\nret;\n}\n"
def module(size):
    handle = c.c_void_p()
    return cuda.cuModuleLoadData(c.byref(handle), IMAGE % size), handle
def async_(size):
    pointer = c.c_uint64()
    return cuda.cuMemAllocAsync(c.byref(pointer), c.c_size_t(size), None), pointer
class Descriptor(c.Structure):
    _fields_ = [("width", c.c_size_t), ("height", c.c_size_t), ("depth", c.c_size_t), ("format", c.c_int),
                ("channels", c.c_uint), ("flags", c.c_uint)]
def array(height):
    handle = c.c_void_p()
    return cuda.cuArray3DCreate_v2(c.byref(handle), c.byref(Descriptor(1024, height, 0, 1, 4, 0))), handle
def free_async(pointer): return cuda.cuMemFreeAsync(pointer, None)
def graph(size):
    graph, exec_, freed = c.c_void_p(), c.c_void_p(), c.c_void_p()
    assert cuda.cuGraphCreate(c.byref(graph), 0) == 0
    node, at = allocate_in(graph, size, 0)
    assert cuda.cuGraphAddMemFreeNode(c.byref(freed), graph, c.byref(node), c.c_size_t(1), at) == 0
    result = cuda.cuGraphInstantiateWithFlags(c.byref(exec_), graph, c.c_uint64(0))
    result = result or cuda.cuGraphLaunch(exec_, None)
    if result and exec_: cuda.cuGraphExecDestroy(exec_)
    if result: cuda.cuGraphDestroy(graph)
    return result, (graph, exec_)
WAYS = [(take, cuda.cuMemFree_v2), (lambda size: create((size + 2 * MIB - 1) // (2 * MIB) * 2 * MIB), cuda.cuMemRelease),
        (async_, free_async), (module, cuda.cuModuleUnload), (take, free_async), (lambda size: take(size // 20000 + 1), free_async),
        (lambda size: array(size // 4096 + 1), cuda.cuArrayDestroy), (lambda size: array(size // MIB + 1), cuda.cuArrayDestroy),
        (graph, lambda pair: cuda.cuGraphExecDestroy(pair[1]) or cuda.cuGraphDestroy(pair[0]))]
def work(seed):
    cuda.cuCtxSetCurrent(context)
    chance, held = random.Random(seed), []
    while not stop or held:
        if held and (stop or chance.random() < 0.5):
            way, handle = held.pop(chance.randrange(len(held)))
            result = way[1](handle)
            if result: wrong.append(result)
            continue
        way = chance.choice(WAYS)
        result, handle = way[0](chance.randrange(1, 80 * MIB))
        if result == 0: held.append((way, handle))
        elif result != OOM: wrong.append(result)
threads = [threading.Thread(target=work, args=(int(sys.argv[1]) + i,)) for i in range(6)]
for t in threads: t.start()
time.sleep(4)
stop.append(True)
for t in threads: t.join()
pool = c.c_void_p()
assert cuda.cuCtxSynchronize() == cuda.cuDeviceGetDefaultMemPool(c.byref(pool), 0) == 0
assert cuda.cuMemPoolTrimTo(pool, c.c_size_t(0)) == cuda.cuDeviceGraphMemTrim(0) == 0
at_once = room()
end = time.monotonic() + 30
while room() != before and time.monotonic() < end: time.sleep(0.02)
print(json.dumps({"wrong": wrong, "before": before, "at_once": at_once, "after": room()}))
