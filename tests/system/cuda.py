"""The beginning of programs against the driver API, and how tests run them.

A program in tests/programs/NAME.py says `from cuda import *`. `cuda.py PROGRAM ARGUMENT...` runs one, so that a traceback
names its lines; a test that has a few lines of its own puts BEGIN of in_slice.py before them."""
import ctypes as c
import os
import sys
import time

__all__ = ["Alloc", "Ipc", "Location", "MIB", "OOM", "Prop", "Props", "allocate_in", "begin", "c", "context", "create", "cuda",
           "export", "import_", "json", "ok", "os", "room", "sys", "take", "threading", "time"]


class Later:
    """A module that is imported when it is first used: these take as long as all else of a program's start."""

    def __init__(self, name):
        self.__name__ = name

    def __getattr__(self, name):
        return getattr(__import__(self.__name__), name)


json, threading = Later("json"), Later("threading")
cuda, MIB, OOM = c.CDLL("libcuda.so.1"), 1 << 20, 2
context = c.c_void_p()


class Location(c.Structure):
    _fields_ = [("type", c.c_int), ("id", c.c_int)]


class Prop(c.Structure):
    """Of memory from cuMemCreate."""
    _fields_ = [("type", c.c_int), ("handles", c.c_int), ("at", Location), ("more", c.c_void_p), ("flags", c.c_ubyte * 8)]


class Props(c.Structure):
    """Of a pool."""
    _fields_ = [("type", c.c_int), ("handles", c.c_int), ("at", Location), ("more", c.c_void_p), ("most", c.c_size_t),
                ("usage", c.c_ushort), ("rest", c.c_ubyte * 54)]


class Alloc(c.Structure):
    """A node of a graph that allocates."""
    _fields_ = [("props", Props), ("access", c.c_void_p), ("count", c.c_size_t), ("bytes", c.c_size_t), ("at", c.c_uint64)]


class Ipc(c.Structure):
    """A handle for another process; passed by value."""
    _fields_ = [("reserved", c.c_ubyte * 64)]


def ok(result):
    assert result == 0, result


def begin(device=0):
    """The primary context, current in this thread."""
    assert cuda.cuInit(0) == 0
    assert cuda.cuDevicePrimaryCtxRetain(c.byref(context), device) == cuda.cuCtxSetCurrent(context) == 0


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


def allocate_in(graph, size, device):
    """A node of `graph` that allocates so much on a device, and where that will be."""
    node, alloc = c.c_void_p(), Alloc(Props(1, 0, Location(1, device)), None, 0, size, 0)
    assert cuda.cuGraphAddMemAllocNode(c.byref(node), graph, None, c.c_size_t(0), c.byref(alloc)) == 0
    return node, c.c_uint64(alloc.at)


if __name__ == "__main__":
    sys.modules["cuda"] = sys.modules["__main__"]  # it is not to be loaded again
    del sys.argv[0]
    sys.path.insert(0, os.path.dirname(sys.argv[0]))
    # Not by runpy, whose imports take longer than this module.
    with open(sys.argv[0], encoding="utf-8") as source:
        exec(compile(source.read(), sys.argv[0], "exec"), {"__name__": "__main__", "__file__": sys.argv[0]})
