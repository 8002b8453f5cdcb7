"""The knowledge of tests about a machine's own GPU: the driver's figures, as NVML has them, and which processes are a test's."""
import ctypes
import os
import pathlib
import threading

# Others use the GPU too, contexts are not all of one size, and a driver keeps some MiB of its own once it has worked.
SLACK = 64 << 20
# How often the figure of what is in use is read, for the highest one: in seconds.
EVERY = 0.02


class Measured(int):
    """A figure that is right but for a slack: it compares with what is expected as if it were that, when it is near."""

    def __new__(cls, value, slack=SLACK):
        self = super().__new__(cls, value)
        self.slack = slack
        return self

    def __eq__(self, other):
        return abs(int(self) - int(other)) <= self.slack

    def __ne__(self, other):
        return not self == other

    def __lt__(self, other):
        return int(self) < int(other) + self.slack

    def __le__(self, other):
        return int(self) <= int(other) + self.slack

    def __gt__(self, other):
        return int(self) > int(other) - self.slack

    def __ge__(self, other):
        return int(self) >= int(other) - self.slack

    def __add__(self, other):
        return type(self)(int(self) + int(other), self.slack)

    def __sub__(self, other):
        return type(self)(int(self) - int(other), self.slack)

    def __rsub__(self, other):
        return Measured(int(other) - int(self), self.slack)

    __radd__ = __add__
    __hash__ = int.__hash__


class AtLeast(Measured):
    """The highest of the figures that were read: whether there was a higher one in between, nobody knows."""

    def __eq__(self, other):
        return self <= other

    def __gt__(self, other):
        return True

    def __ge__(self, other):
        return True

    __hash__ = int.__hash__


class _Memory(ctypes.Structure):
    _fields_ = [("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong)]


class _Process(ctypes.Structure):
    _fields_ = [("pid", ctypes.c_uint), ("used", ctypes.c_ulonglong), ("instances", ctypes.c_uint * 2)]


# The kernel's name for the first PID namespace, whose numbers NVML has; and what NVML says where it knows no figure.
FIRST_NAMESPACE = "pid:[4026531836]"
UNKNOWN = (1 << 64) - 1


class Nvml:
    """How much memory each GPU has in use, and the most that was seen since."""

    def __init__(self):
        self.nvml = ctypes.CDLL("libnvidia-ml.so.1")
        self.handles, count = [], ctypes.c_uint()
        self.call("nvmlInit_v2")
        self.call("nvmlDeviceGetCount_v2", ctypes.byref(count))
        for index in range(count.value):
            self.handles.append(ctypes.c_void_p())
            self.call("nvmlDeviceGetHandleByIndex_v2", index, ctypes.byref(self.handles[-1]))
        self.before = self.read()
        self.highest = list(self.before)
        self.ended = threading.Event()
        self.watcher = threading.Thread(target=self.watch, daemon=True)
        self.watcher.start()

    def call(self, name, *args):
        result = getattr(self.nvml, name)(*args)
        if result != 0:
            raise OSError(f"{name}: NVML's error {result}")

    def read(self):
        used = []
        for handle in self.handles:
            memory = _Memory()
            self.call("nvmlDeviceGetMemoryInfo", handle, ctypes.byref(memory))
            used.append(memory.used)
        return used

    def uuid(self, index):
        text = ctypes.create_string_buffer(96)
        self.call("nvmlDeviceGetUUID", self.handles[index], text, len(text))
        return text.value.decode()

    def processes(self, index):
        """The memory of each process on a GPU; None where NVML cannot tell, or tells other numbers than this process sees."""
        count, found = ctypes.c_uint(512), (_Process * 512)()
        self.call("nvmlDeviceGetComputeRunningProcesses_v3", self.handles[index], ctypes.byref(count), found)
        known = [{"pid": p.pid, "memory_bytes": Measured(p.used)} for p in found[:count.value] if p.used != UNKNOWN]
        same = os.readlink("/proc/self/ns/pid") == FIRST_NAMESPACE
        return known if same and len(known) == count.value else None

    def watch(self):
        while not self.ended.wait(EVERY):
            self.highest = list(map(max, self.highest, self.read()))

    def books(self):
        """Of each GPU: what was taken since this began, and the most."""
        used = self.read()
        self.highest = list(map(max, self.highest, used))
        return [(Measured(max(0, now - before)), AtLeast(max(0, most - before)))
                for now, before, most in zip(used, self.before, self.highest)]

    def close(self):
        self.ended.set()
        self.watcher.join()
        self.call("nvmlShutdown")


def processes_of(runtime_dir):
    """Those that were started for the daemon of this directory, by whomever, and that daemon."""
    mark, found = f"CARVE_RUNTIME_DIR={runtime_dir}".encode(), []
    for proc in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            if mark in (proc / "environ").read_bytes().split(b"\0") and int(proc.name) != os.getpid():
                found.append(int(proc.name))
        except OSError:
            pass  # it has ended, or is somebody else's
    return found
