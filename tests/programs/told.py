"""A program against the driver API that does what its standard input says."""
from cuda import *

blocks = []
print(os.getpid(), flush=True)
for line in sys.stdin:
    word, *args = line.split()
    if word == "init": r = cuda.cuInit(0) or cuda.cuCtxCreate_v2(c.byref(context), 0, 0)
    if word == "alloc":
        p = c.c_uint64()
        r = cuda.cuMemAlloc_v2(c.byref(p), c.c_size_t(int(args[0])))
        if r == 0: blocks.append(p)
    if word == "free": r = cuda.cuMemFree_v2(blocks.pop())
    if word == "info":
        free, total = c.c_size_t(), c.c_size_t()
        cuda.cuMemGetInfo_v2(c.byref(free), c.byref(total)); r = f"{free.value} {total.value}"
    if word == "destroy": r = cuda.cuCtxDestroy_v2(context)
    if word == "fork":
        r = os.fork()
        if r == 0: os.close(0); os.close(1); time.sleep(1000)
    print(r, flush=True)
