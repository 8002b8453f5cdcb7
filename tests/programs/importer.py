"""Imports what its arguments name and lets go of it, HOLD_S seconds later; prints how the slice's room changed."""
from cuda import *

begin()
SIZE = c.c_size_t(256 << 20)

steps = [room()]
ptr, at, handle = c.c_ulonglong(), c.c_ulonglong(), c.c_ulonglong()
ok(cuda.cuIpcOpenMemHandle_v2(c.byref(ptr), Ipc.from_buffer_copy(bytes.fromhex(sys.argv[1])), 1))
steps.append(room())
ok(cuda.cuMemImportFromShareableHandle(c.byref(handle), c.c_void_p(int(sys.argv[2])), 1))
ok(cuda.cuMemAddressReserve(c.byref(at), SIZE, c.c_size_t(0), c.c_ulonglong(0), c.c_ulonglong(0)))
ok(cuda.cuMemMap(at, SIZE, c.c_size_t(0), handle, c.c_ulonglong(0)))
steps.append(room())
time.sleep(float(os.environ.get("HOLD_S", "0")))
ok(cuda.cuMemUnmap(at, SIZE))
ok(cuda.cuMemRelease(handle))
ok(cuda.cuIpcCloseMemHandle(ptr))
steps.append(room())
print(json.dumps(steps), flush=True)
sys.stdin.readline()
