"""Asks CUDA for so many MiB, and prints what it says."""
from cuda import *

device = c.c_int()
assert cuda.cuInit(0) == cuda.cuDeviceGet(c.byref(device), 0) == 0
assert cuda.cuCtxCreate_v2(c.byref(c.c_void_p()), 0, device) == 0
print(cuda.cuMemAlloc_v2(c.byref(c.c_void_p()), c.c_size_t(int(sys.argv[1]) << 20)))
