"""What each way of giving memory up needs, and the one that gives up: it leaves less room than the racers ask for."""
import socket
import subprocess

from cuda import *
from windows import *

def vmm_taken(size):
    handle = until_it_fits(lambda: create(size))
    return handle, ["vmm"], [export(handle)]
def vmm_mapped(size):
    handle, said, fds = vmm_taken(size)
    at = c.c_uint64()
    ok(cuda.cuMemAddressReserve(c.byref(at), c.c_size_t(size), c.c_size_t(0), c.c_uint64(0), c.c_uint64(0)))
    ok(cuda.cuMemMap(at, c.c_size_t(size), c.c_size_t(0), handle, c.c_uint64(0)))
    ok(cuda.cuMemRelease(handle))
    return (at, size), said, fds
def vmm_unmap(mapped):
    ok(cuda.cuMemUnmap(mapped[0], c.c_size_t(mapped[1])))
    ok(cuda.cuMemAddressFree(mapped[0], c.c_size_t(mapped[1])))
def ipc_of(pointer):
    handle = c.create_string_buffer(64)
    ok(cuda.cuIpcGetMemHandle(handle, pointer))
    return ["ipc", handle.raw.hex()]
def ipc_taken(size):
    pointer = until_it_fits(lambda: take(size))
    return pointer, ipc_of(pointer), []
# Three in a block, of which the second is opened, and the last to go is another.
def small_taken(size):
    pointers = [until_it_fits(lambda: take(MIB // 4)) for _ in range(3)]
    return pointers, ipc_of(pointers[1]), []
def small_free(pointers):
    for i in (1, 0, 2): ok(cuda.cuMemFree_v2(pointers[i]))
def context_taken(size):
    mine = c.c_void_p()
    until_it_fits(lambda: (cuda.cuCtxCreate_v2(c.byref(mine), 0, 0), mine))
    pointer, said, fds = ipc_taken(size)
    cuda.cuCtxSetCurrent(context)
    return mine, said, fds
def context_destroy(mine):
    ok(cuda.cuCtxDestroy_v2(mine))
    cuda.cuCtxSetCurrent(context)
def pool_new(handles):
    pool = c.c_void_p()
    ok(cuda.cuMemPoolCreate(c.byref(pool), c.byref(Props(1, handles, Location(1, 0)))))
    return pool
def pool_piece(pool, size):
    pointer = c.c_uint64()
    until_it_fits(lambda: (cuda.cuMemAllocFromPoolAsync(c.byref(pointer), c.c_size_t(size), pool, None), None))
    return pointer
def pool_taken(size):
    pool = pool_new(1)
    pointer = pool_piece(pool, size)
    fd, data = c.c_int(), c.create_string_buffer(64)
    ok(cuda.cuMemPoolExportToShareableHandle(c.byref(fd), pool, 1, c.c_uint64(0)))
    ok(cuda.cuMemPoolExportPointer(data, pointer))
    return (pool, pointer), ["pool", data.raw.hex()], [fd.value]
def pool_trim(taken):
    pool, pointer = taken
    ok(cuda.cuMemFreeAsync(pointer, None))
    ok(cuda.cuCtxSynchronize())
    ok(cuda.cuMemPoolTrimTo(pool, c.c_size_t(0)))
    room()
    ok(cuda.cuMemPoolDestroy(pool))
def pool_drop(taken):
    ok(cuda.cuMemFreeAsync(taken[1], None))
    ok(cuda.cuMemPoolDestroy(taken[0]))
# Nobody else has it open: it lives on in pieces that are still allocated.
def pieces_taken(size):
    pool = pool_new(0)
    first, second = pool_piece(pool, size - 34 * MIB), pool_piece(pool, 34 * MIB)
    ok(cuda.cuMemFreeAsync(first, None))
    return (pool, second), None, []
def pieces_leave(taken):
    ok(cuda.cuMemPoolDestroy(taken[0]))
    pieces.append(taken[1])
def pieces_close():
    for p in pieces: ok(cuda.cuMemFree_v2(p))
    pieces.clear()
pieces = []
# Freed in a stream that does not get there for now.
HOLD = c.CFUNCTYPE(None, c.c_void_p)(lambda _: gone.wait(60))
gone, streams = threading.Event(), []
def stream_taken(size):
    stream, pointer = c.c_void_p(), until_it_fits(lambda: take(size))
    ok(cuda.cuStreamCreate(c.byref(stream), 1))
    gone.clear()
    ok(cuda.cuLaunchHostFunc(stream, HOLD, None))
    return (stream, pointer), None, []
def stream_free(taken):
    ok(cuda.cuMemFreeAsync(taken[1], taken[0]))
    streams.append(taken[0])
def stream_close():
    gone.set()
    for s in streams: assert cuda.cuStreamSynchronize(s) == cuda.cuStreamDestroy_v2(s) == 0
    streams.clear()
WAYS = {
    "handle": (vmm_taken, lambda h: ok(cuda.cuMemRelease(h)), None),
    "mapping": (vmm_mapped, vmm_unmap, None),
    "ipc": (ipc_taken, lambda p: ok(cuda.cuMemFree_v2(p)), None),
    "ipc-async": (ipc_taken, lambda p: ok(cuda.cuMemFreeAsync(p, None)), None),
    "small": (small_taken, small_free, None),
    "context": (context_taken, context_destroy, None),
    "pool-trim": (pool_taken, pool_trim, None),
    "pool-destroy": (pool_taken, pool_drop, None),
    "pieces": (pieces_taken, pieces_leave, pieces_close),
    "stream": (stream_taken, stream_free, stream_close),
}

begin()
taking, giving, closing = WAYS[SET["way"]]
calls, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
opener = subprocess.Popen([*SET["opener"], str(theirs.fileno()), *SET["busy"]], pass_fds=[theirs.fileno()])
theirs.close()
assert calls.recv(9) == b"ok"
def tell(said, fds=()):
    socket.send_fds(calls, [json.dumps(said).encode()], fds)
    for fd in fds: os.close(fd)
    assert calls.recv(9) == b"ok"
def opened(size):
    what, said, fds = taking(size)
    if said: tell(said, fds)
    return what
def close():
    closing() if closing else tell(["close"])
def start(command, *argv, fds=()):
    p = subprocess.Popen([*command, *map(str, [*argv, *fds])], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                         text=True, pass_fds=fds)
    assert p.stdout.readline() == "ready\n"
    return p
def go(*processes):
    for p in processes:
        p.stdin.write("\n")
        p.stdin.flush()
def stop(p):
    said = p.communicate("")[0]
    assert p.returncode == 0
    return json.loads(said)
