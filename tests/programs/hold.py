"""Takes so many MiB of GPU memory, says what CUDA said of that, and holds them until its input ends."""
from cuda import *

begin()
print(cuda.cuMemAlloc_v2(c.byref(c.c_void_p()), c.c_size_t(int(sys.argv[1]) << 20)), flush=True)
sys.stdin.read()
