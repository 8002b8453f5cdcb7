"""Room that one process of a slice leaves is another one's at once, though the first neither waits for its work nor calls
anything afterwards: only the driver knows that it is there. Judged by the driver's own books (`carve sim stat`)."""
import json
import subprocess
import sys
import time

import pytest

from conftest import BUILD, rest_long
from in_slice import BEGIN, GIB, MIB, gpu, nothing_is_left

SLICE = 3 * GIB
BLOCK = 2 * MIB

TALK = r"""
stream = c.c_void_p()
def told(): return sys.stdin.readline().split()
def say(*what): print(*what, flush=True)
begin()
ok(cuda.cuStreamCreate(c.byref(stream), 1))
"""

TAKER = BEGIN + TALK + r"""
say("up")
for line in sys.stdin: say(take(int(line))[0])
"""

POOL = r"""
pool, pieces = c.c_void_p(), []
ok(cuda.cuMemPoolCreate(c.byref(pool), c.byref(Props(1, 0, Location(1, 0)))))
for _ in range(4):
    pieces.append(c.c_uint64())
    ok(cuda.cuMemAllocFromPoolAsync(c.byref(pieces[-1]), c.c_size_t(256 * MIB), pool, stream))
"""

# The memory that is taken; "held"; what the stream is to give back, of which nothing more is heard.
GIVERS = {
    "destroyed-pool": POOL + r"""
ok(cuda.cuStreamSynchronize(stream))
ok(cuda.cuMemPoolDestroy(pool))
say("held"); told()
for piece in pieces: ok(cuda.cuMemFreeAsync(piece, stream))
""",
    "destroyed-graph": r"""
graph, exec_, freed = c.c_void_p(), c.c_void_p(), c.c_void_p()
ok(cuda.cuGraphCreate(c.byref(graph), 0))
node, at = allocate_in(graph, 1024 * MIB, 0)
ok(cuda.cuGraphInstantiateWithFlags(c.byref(exec_), graph, c.c_uint64(0)))
ok(cuda.cuGraphLaunch(exec_, stream))
ok(cuda.cuStreamSynchronize(stream))
ok(cuda.cuGraphExecDestroy(exec_)); ok(cuda.cuGraphDestroy(graph))
say("held"); told()
ok(cuda.cuMemFreeAsync(at, stream))
""",
    # Its exporter is gone: what it is charged with is posted.
    "imported-pool": r"""
import socket
ours, others = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
EXPORTER = r'''%s
import socket
pool, pointer, fd, data = c.c_void_p(), c.c_uint64(), c.c_int(), c.create_string_buffer(64)
begin()
ok(cuda.cuMemPoolCreate(c.byref(pool), c.byref(Props(1, 1, Location(1, 0)))))
ok(cuda.cuMemAllocFromPoolAsync(c.byref(pointer), c.c_size_t(512 * MIB), pool, None))
ok(cuda.cuMemPoolExportToShareableHandle(c.byref(fd), pool, 1, c.c_uint64(0)))
ok(cuda.cuMemPoolExportPointer(data, pointer))
calls = socket.socket(fileno=int(sys.argv[1]))
socket.send_fds(calls, [data.raw], [fd.value])
calls.recv(1)
'''
import subprocess
exporter = subprocess.Popen([sys.executable, "-S", "-c", EXPORTER, str(others.fileno())], pass_fds=[others.fileno()])
data, fds, _, _ = socket.recv_fds(ours, 4096, 2)
pool, pointer = c.c_void_p(), c.c_uint64()
ok(cuda.cuMemPoolImportFromShareableHandle(c.byref(pool), c.c_void_p(fds[0]), 1, c.c_uint64(0)))
ok(cuda.cuMemPoolImportPointer(c.byref(pointer), pool, data))
ours.send(b"1")
exporter.wait()
os.close(fds[0])
ok(cuda.cuMemPoolDestroy(pool))
say("held"); told()
ok(cuda.cuMemFreeAsync(pointer, stream))
""" % BEGIN,
    "linear": r"""
result, pointer = take(1024 * MIB)
ok(result)
say("held"); told()
ok(cuda.cuMemFreeAsync(pointer, stream))
""",
    "small-linear": r"""
pointers = [take(MIB)[1] for _ in range(64)]
say("held"); told()
for pointer in pointers: ok(cuda.cuMemFreeAsync(pointer, stream))
""",
    "small-arrays": r"""
class Descriptor(c.Structure):
    _fields_ = [("width", c.c_size_t), ("height", c.c_size_t), ("depth", c.c_size_t), ("format", c.c_int),
                ("channels", c.c_uint), ("flags", c.c_uint)]
say("held"); told()
for _ in range(14): ok(cuda.cuArray3DCreate_v2(c.byref(c.c_void_p()), c.byref(Descriptor(64, 64, 0, 1, 4, 0))))
""",
}


MANAGED = r"""
def managed(size=256 * MIB):
    pointer = c.c_uint64()
    ok(cuda.cuMemAllocManaged(c.byref(pointer), c.c_size_t(size), 1))
    return pointer
"""

# While some of what it has may be elsewhere, figures tell less; not any more when that is gone.
GIVERS |= {f"managed-before-{way}": MANAGED + f"ok(cuda.cuMemFree_v2(managed()))\n{GIVERS[way]}"
           for way in ("destroyed-pool", "destroyed-graph", "small-linear", "small-arrays")}
GIVERS["managed-beside-destroyed-pool"] = MANAGED + "elsewhere = managed()\n" + GIVERS["destroyed-pool"].replace(
    'say("held")', 'ok(cuda.cuMemFree_v2(elsewhere))\nsay("held")')
GIVERS["managed-beside-small-arrays"] = MANAGED + GIVERS["small-arrays"].replace(
    "told()\n", "told()\nelsewhere = managed(16 * MIB)\n") + "ok(cuda.cuMemFree_v2(elsewhere))\n"
GIVERS["managed-destroyed-with-its-context"] = MANAGED + r"""
other = c.c_void_p()
ok(cuda.cuCtxCreate_v2(c.byref(other), 0, 0))
managed()
ok(cuda.cuCtxDestroy_v2(other))
ok(cuda.cuCtxSetCurrent(context))
""" + GIVERS["small-arrays"]


def in_it(host, session, code):
    process = host.popen([BUILD / "carve", "run", "--session", session, "--", sys.executable, "-S", "-c", code],
                         stdin=subprocess.PIPE)
    return process


def say(process, line=""):
    process.stdin.write(f"{line}\n")
    process.stdin.flush()


def hear(process):
    return process.stdout.readline().strip()


def session_of(host):
    return host.carve_json("session", "request", "--vram", "3")["id"]


def stands_still(host):
    """The memory that the driver has handed out, when streams have got to what they were to free: on a busy machine that takes a while."""
    seen = []
    while len(seen) < 4 or len(set(seen[-4:])) > 1:
        time.sleep(0.03)
        seen.append(gpu(host)["memory_used_bytes"])
    return seen[-1]


@pytest.mark.parametrize("way", rest_long(GIVERS, 6))
@pytest.mark.needs_sim("takes the rest of a slice to the block by the driver's own books")
def test_memory_left_by_one_process_is_free_for_another_at_once(host, way):
    session = session_of(host)
    giver = in_it(host, session, BEGIN + TALK + GIVERS[way] + 'say("given"); told()')
    assert hear(giver) == "held"
    taker = in_it(host, session, TAKER)
    assert hear(taker) == "up"
    # As long as it is held it is nobody else's, ...
    free = SLICE - gpu(host)["memory_used_bytes"]
    say(taker, free - 32 * BLOCK)
    assert hear(taker) == "0"
    say(taker, 33 * BLOCK)
    assert hear(taker) == "2"
    say(giver)
    assert hear(giver) == "given"
    # ... and then, when the stream has got there, to the last block.
    free = SLICE - stands_still(host)
    say(taker, free)
    assert hear(taker) == "0", free
    say(taker, BLOCK)
    assert hear(taker) == "2", (free, SLICE - gpu(host)["memory_used_bytes"])
    assert gpu(host)["memory_peak_bytes"] <= SLICE
    giver.communicate()
    taker.communicate()
    nothing_is_left(host)


# The daemon has posted 512 MiB for what stays of a pool; then 512 MiB more go, which the front books late: the driver's call
# that the front waits for takes its time.
LATE = BEGIN + TALK + r"""
pool, piece = c.c_void_p(), c.c_uint64()
ok(cuda.cuMemPoolCreate(c.byref(pool), c.byref(Props(1, 0, Location(1, 0)))))
ok(cuda.cuMemAllocFromPoolAsync(c.byref(piece), c.c_size_t(512 * MIB), pool, stream))
ok(cuda.cuStreamSynchronize(stream))
ok(cuda.cuMemPoolDestroy(pool))
"""

LATES = {
    "cuLaunchHostFunc": (r"""
result, more = take(512 * MIB)
ok(result)
""", r"""
ok(cuda.cuMemFreeAsync(more, stream))
ok(cuda.cuStreamSynchronize(stream))
"""),
    "cuMemPoolTrimTo": (r"""
other, more = c.c_void_p(), c.c_uint64()
ok(cuda.cuMemPoolCreate(c.byref(other), c.byref(Props(1, 0, Location(1, 0)))))
ok(cuda.cuMemPoolSetAttribute(other, 4, c.byref(c.c_uint64(1 << 40))))
ok(cuda.cuMemAllocFromPoolAsync(c.byref(more), c.c_size_t(512 * MIB), other, stream))
ok(cuda.cuMemFreeAsync(more, stream))
ok(cuda.cuStreamSynchronize(stream))
""", r"""
ok(cuda.cuMemPoolTrimTo(other, c.c_size_t(0)))
"""),
    # Another thread's question is answered meanwhile.
    "cuMemAlloc": ("", r"""
thread = threading.Thread(target=lambda: (cuda.cuCtxSetCurrent(context), ok(take(512 * MIB)[0])))
thread.start()
time.sleep(0.3)
ok(cuda.cuMemFree_v2(piece))
thread.join()
"""),
}


@pytest.mark.parametrize("call", rest_long(LATES, 2))
@pytest.mark.needs_sim("makes a call of the driver slow")
def test_memory_recorded_late_is_given_back_once(host, call):
    """The daemon looks in between, and so do others who have no room."""
    begin, late = LATES[call]
    session = session_of(host)
    giver = in_it(host, session, LATE + begin + f'say(os.getpid()); told()\n{late}say("given"); told()')
    pid = hear(giver)
    taker = in_it(host, session, TAKER)
    assert hear(taker) == "up"
    time.sleep(1.2)
    assert host.carve("sim", "fault", "hang", "--call", call, "--delay", "1.5", "--count", "1", "--pid", pid).returncode == 0
    say(giver)
    for _ in range(10):
        say(taker, SLICE)
        assert hear(taker) == "2"
        time.sleep(0.1)
    assert hear(giver) == "given"
    result = "0"
    while result == "0":
        say(taker, 16 * MIB)
        result = hear(taker)
    assert result == "2" and gpu(host)["memory_peak_bytes"] <= SLICE
    giver.communicate()
    taker.communicate()
    nothing_is_left(host)


@pytest.mark.timed
def test_a_process_stopped_in_a_call_is_waited_for_once(host):
    """Memory that it is asking the daemon about may be another's at once, but not while it is stopped: one refusal finds that out."""
    done = host.carve("run", "--vram", "3", "--", sys.executable, "-S", "-c", BEGIN + r"""
import signal, subprocess
LOOP = r'''%s
begin()
print(flush=True)
while True:
    other = c.c_void_p()
    if cuda.cuCtxCreate_v2(c.byref(other), 0, 0) == 0: assert cuda.cuCtxDestroy_v2(other) == 0
'''
other = subprocess.Popen([sys.executable, "-S", "-c", LOOP], stdout=subprocess.PIPE)
other.stdout.readline()
begin()
def refused():
    began = time.monotonic()
    result, pointer = take(1900 * MIB)
    if result == 0: assert cuda.cuMemFree_v2(pointer) == 0
    return result, time.monotonic() - began
said = []
for i in range(60):
    time.sleep(0.001 + i %% 9 * 0.0011)
    os.kill(other.pid, signal.SIGSTOP)
    time.sleep(0.05)
    result, took = refused()
    if result == OOM and took > 0.5: said.append([took, sum(refused()[1] for _ in range(5))])
    os.kill(other.pid, signal.SIGCONT)
    if len(said) == 3: break
other.kill()
print(json.dumps(said))
""" % BEGIN, timeout=None)
    assert done.returncode == 0, done.stderr
    for first, others in json.loads(done.stdout):
        assert others < first, (first, others)
