"""So many kernels, each waited for; or handed in at once between two events, behind one of `ahead` naps."""
from sim_kernels import *

kernels = int(sys.argv[5])
print("up", flush=True)
sys.stdin.readline()
first, last = event(), event()
if ahead:
    launch(MANY - 1, ahead)
call("cuEventRecord", first, None)
for i in range(kernels):
    launch(i)
    if ahead == 0:
        call("cuCtxSynchronize")
call("cuEventRecord", last, None)
call("cuEventSynchronize", last)
ms = C.c_float()
call("cuEventElapsedTime", C.byref(ms), first, last)
both = stored(MANY)
print(json.dumps({"ms": ms.value, "first": both[-1], "stored": both[:kernels]}), flush=True)
sys.stdin.readline()
