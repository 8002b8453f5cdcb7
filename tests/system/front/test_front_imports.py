"""Memory that another process exported is paid by the exporter, once; and comes and goes with nobody else."""
import json
import sys

MIB = 1 << 20
SIZE = 256 * MIB

COMMON = r"""
import ctypes as c, json, os, subprocess, sys
cuda = c.CDLL("libcuda.so.1")

class Location(c.Structure):
    _fields_ = [("type", c.c_int), ("id", c.c_int)]

class Prop(c.Structure):
    _fields_ = [("type", c.c_int), ("handles", c.c_int), ("location", Location), ("win32", c.c_void_p),
                ("flags", c.c_ubyte * 8)]

class Ipc(c.Structure):  # passed by value
    _fields_ = [("reserved", c.c_ubyte * 64)]

def ok(result):
    assert result == 0, result

def room():
    free, total = c.c_size_t(), c.c_size_t()
    ok(cuda.cuMemGetInfo_v2(c.byref(free), c.byref(total)))
    return free.value

ok(cuda.cuInit(0))
context = c.c_void_p()
ok(cuda.cuCtxCreate_v2(c.byref(context), 0, 0))
SIZE = c.c_size_t(256 << 20)
"""

# Takes its memory in two ways and has a child import both; prints how the slice's room changed.
EXPORTER = COMMON + r"""
steps = [room()]
ptr, ipc = c.c_ulonglong(), c.create_string_buffer(64)
ok(cuda.cuMemAlloc_v2(c.byref(ptr), SIZE))
ok(cuda.cuIpcGetMemHandle(ipc, ptr))
prop = Prop(type=1, handles=1, location=Location(1, 0))
handle, fd = c.c_ulonglong(), c.c_int()
ok(cuda.cuMemCreate(c.byref(handle), SIZE, c.byref(prop), c.c_ulonglong(0)))
ok(cuda.cuMemExportToShareableHandle(c.byref(fd), handle, 1, c.c_ulonglong(0)))
steps.append(room())
child = subprocess.Popen([sys.executable, "-c", os.environ["IMPORTER"], ipc.raw.hex(), str(fd.value)],
                         pass_fds=[fd.value], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
said = json.loads(child.stdout.readline())
steps.append(room())
child.communicate("\n")
assert child.returncode == 0
ok(cuda.cuMemFree_v2(ptr))
ok(cuda.cuMemRelease(handle))
steps.append(room())
print(json.dumps({"steps": steps, "importer": said}))
"""

IMPORTER = COMMON + r"""
steps = [room()]
ptr, at, handle = c.c_ulonglong(), c.c_ulonglong(), c.c_ulonglong()
ok(cuda.cuIpcOpenMemHandle_v2(c.byref(ptr), Ipc.from_buffer_copy(bytes.fromhex(sys.argv[1])), 1))
steps.append(room())
ok(cuda.cuMemImportFromShareableHandle(c.byref(handle), c.c_void_p(int(sys.argv[2])), 1))
ok(cuda.cuMemAddressReserve(c.byref(at), SIZE, c.c_size_t(0), c.c_ulonglong(0), c.c_ulonglong(0)))
ok(cuda.cuMemMap(at, SIZE, c.c_size_t(0), handle, c.c_ulonglong(0)))
steps.append(room())
ok(cuda.cuMemUnmap(at, SIZE))
ok(cuda.cuMemRelease(handle))
ok(cuda.cuIpcCloseMemHandle(ptr))
steps.append(room())
print(json.dumps(steps), flush=True)
sys.stdin.readline()
"""


def test_exporter_pays_once(host):
    done = host.carve("run", "--vram", "4", "--", sys.executable, "-c", EXPORTER, env={"IMPORTER": IMPORTER})
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    before, exported, imported, after = said["steps"]
    assert before - exported == 2 * SIZE
    importer = said["importer"]
    assert importer == [importer[0]] * 4, "importing costs the importer nothing, nor does letting go"
    context = exported - imported
    assert 0 < context < 1024 * MIB, "the child's context alone"
    # The child is gone, and its context; the exporter freed what it had.
    assert after >= before - context
