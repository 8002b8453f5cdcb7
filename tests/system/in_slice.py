"""What programs in a slice begin with, and where they are judged: by the driver's own books (`carve sim stat`)."""
import json
import sys

from conftest import wait_until
from real_gpu import SLACK

MIB = 1 << 20
GIB = 1 << 30

BEGIN = r"""
import ctypes as c, json, os, sys, threading, time
cuda, MIB, OOM = c.CDLL("libcuda.so.1"), 1 << 20, 2
class Location(c.Structure): _fields_ = [("type", c.c_int), ("id", c.c_int)]
class Prop(c.Structure):
    _fields_ = [("type", c.c_int), ("handles", c.c_int), ("at", Location), ("more", c.c_void_p), ("flags", c.c_ubyte * 8)]
class Props(c.Structure):
    _fields_ = [("type", c.c_int), ("handles", c.c_int), ("at", Location), ("more", c.c_void_p), ("most", c.c_size_t),
                ("usage", c.c_ushort), ("rest", c.c_ubyte * 54)]
context = c.c_void_p()
def begin():
    assert cuda.cuInit(0) == 0
    assert cuda.cuDevicePrimaryCtxRetain(c.byref(context), 0) == cuda.cuCtxSetCurrent(context) == 0
def room():
    free, total = c.c_size_t(), c.c_size_t()
    assert cuda.cuMemGetInfo_v2(c.byref(free), c.byref(total)) == 0
    return free.value
def take(size):
    pointer = c.c_uint64()
    return cuda.cuMemAlloc_v2(c.byref(pointer), c.c_size_t(size)), pointer
def create(size):
    handle = c.c_uint64()
    return cuda.cuMemCreate(c.byref(handle), c.c_size_t(size), c.byref(Prop(1, 1, Location(1, 0))), c.c_uint64(0)), handle
def export(handle):
    fd = c.c_int()
    assert cuda.cuMemExportToShareableHandle(c.byref(fd), handle, 1, c.c_uint64(0)) == 0
    return fd.value
def import_(fd):
    handle = c.c_uint64()
    assert cuda.cuMemImportFromShareableHandle(c.byref(handle), c.c_void_p(fd), 1) == 0
    return handle
"""

GRAPHS = r"""
class Props(c.Structure):
    _fields_ = [("type", c.c_int), ("handles", c.c_int), ("at", Location), ("more", c.c_void_p), ("rest", c.c_ubyte * 64)]
class Alloc(c.Structure):
    _fields_ = [("props", Props), ("access", c.c_void_p), ("count", c.c_size_t), ("bytes", c.c_size_t), ("at", c.c_uint64)]
def allocate_in(graph, size, device):
    node, alloc = c.c_void_p(), Alloc(Props(1, 0, Location(1, device)), None, 0, size, 0)
    assert cuda.cuGraphAddMemAllocNode(c.byref(node), graph, None, c.c_size_t(0), c.byref(alloc)) == 0
    return node, c.c_uint64(alloc.at)
"""


def in_slice(host, code, *run, **kw):
    """What the program printed, as JSON."""
    done = host.carve("run", *(run or ("--vram", "3")), "--", sys.executable, "-c", BEGIN + code, **kw)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def gpu(host):
    return host.stat()["gpus"][0]


def context_bytes(host):
    """What a context takes on this host's GPU."""
    return wait_until(lambda: host.carve_json("gpu", "list")[0]["context_bytes"])


def pieces_in(host, room, piece):
    """How many fit where a context, or several, took a part of it."""
    return host.measured(room // piece, -(-SLACK // piece))


def nothing_is_left(host):
    wait_until(lambda: gpu(host)["memory_used_bytes"] == 0)


TAKER = r"""
begin()
for line in sys.stdin: print(room() if line.strip() == "room" else take(2 * MIB)[0], flush=True)
"""


OTHER = r"""
begin()
for line in sys.stdin: print(room(), flush=True)
"""
