"""A context and 1 GiB; exits with the driver's result."""
from cuda import *

result = cuda.cuInit(0) or cuda.cuCtxCreate_v2(c.byref(c.c_void_p()), 0, 0)
sys.exit(result or cuda.cuMemAlloc_v2(c.byref(c.c_void_p()), c.c_size_t(1 << 30)))
