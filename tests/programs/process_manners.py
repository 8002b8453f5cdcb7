"""What a library can do to the process that it is loaded into, after it was used."""
import re

from cuda import *

assert cuda.cuInit(0) == cuda.cuCtxCreate_v2(c.byref(c.c_void_p()), 0, 0) == 0
assert cuda.cuMemAlloc_v2(c.byref(c.c_void_p()), c.c_size_t(64 << 20)) == 0
assert cuda.cuMemAlloc_v2(c.byref(c.c_void_p()), c.c_size_t(1 << 50)) == 2
status = open("/proc/self/status").read()
print(json.dumps({name: re.search(rf"^{name}:\s*(\S+)$", status, re.M)[1]
                  for name in ("Umask", "SigBlk", "SigIgn", "SigCgt", "Threads")} | {"directory": os.getcwd()}))
