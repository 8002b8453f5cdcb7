"""Takes and gives 512 MiB all the time."""
from cuda import *

p = c.c_uint64()
assert cuda.cuInit(0) == cuda.cuCtxCreate_v2(c.byref(context), 0, 0) == 0
print("up", flush=True)
while cuda.cuMemAlloc_v2(c.byref(p), c.c_size_t(512 << 20)) == 0: cuda.cuMemFree_v2(p)
