"""So many bytes of managed memory, until its standard input has a line."""
from cuda import *

p = c.c_uint64()
assert cuda.cuInit(0) == cuda.cuCtxCreate_v2(c.byref(context), 0, 0) == 0
assert cuda.cuMemAllocManaged(c.byref(p), c.c_size_t(int(sys.argv[1])), 1) == 0
print("up", flush=True); sys.stdin.readline()
