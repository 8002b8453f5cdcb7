"""Has open whatever it is handed, until told to close it. With an argument it allocates all the time meanwhile."""
import socket

from cuda import *
from windows import *

begin()
stop, busy, opened = [], sys.argv[2:] == ["busy"], []
if busy: threading.Thread(target=churn, args=(4 * MIB, stop), daemon=True).start()
calls = socket.socket(fileno=int(sys.argv[1]))
ok_ = lambda: calls.send(b"ok")
ok_()
while True:
    text, fds, _, _ = socket.recv_fds(calls, 4096, 2)
    if not text: break
    cuda.cuCtxSetCurrent(context)
    said = json.loads(text)
    pointer = c.c_uint64()
    if said[0] == "vmm":
        opened.append((cuda.cuMemRelease, import_(fds[0])))
    elif said[0] == "ipc":
        ok(cuda.cuIpcOpenMemHandle_v2(c.byref(pointer), Ipc.from_buffer_copy(bytes.fromhex(said[1])), 1))
        opened.append((cuda.cuIpcCloseMemHandle, pointer))
    elif said[0] == "pool":
        pool = c.c_void_p()
        ok(cuda.cuMemPoolImportFromShareableHandle(c.byref(pool), c.c_void_p(fds[0]), 1, c.c_uint64(0)))
        ok(cuda.cuMemPoolImportPointer(c.byref(pointer), pool, bytes.fromhex(said[1])))
        opened.append((lambda p, pool=pool: cuda.cuMemFree_v2(p) or cuda.cuMemPoolDestroy(pool), pointer))
    else:
        while opened:
            close, what = opened.pop()
            ok(close(what))
    for fd in fds: os.close(fd)
    ok_()
stop.append(True)
