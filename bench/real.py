"""The driver that is there, and what it says of itself: for --driver and --gpu. Within `carve sim` that is the simulated one,
asked in the same ways. Of several GPUs the first is taken that CUDA has for this process (CUDA_VISIBLE_DEVICES), by its
UUID: CUDA and NVML count GPUs in ways of their own, and the daemon as NVML does."""
import contextlib
import ctypes
import functools
import json
import os
import subprocess
import sys
import tempfile
import threading
import time

from bench import report
from bench.host import FOREIGN, BenchError, checked

LOOK_S = 0.001
BACK_S = 10  # until a driver has memory back whose holders have ended
IN_SIM = "SIMGPU_HOST"
# In a process of its own: this one must hold nothing on the GPU.
PROBE = """
import ctypes, json
try:
    cuda = ctypes.CDLL("libcuda.so.1")
except OSError as error:
    raise SystemExit(f"no CUDA driver here: {error}")
count, version, uuid, name = ctypes.c_int(), ctypes.c_int(), (ctypes.c_ubyte * 16)(), ctypes.create_string_buffer(96)
status = cuda.cuInit(0) or cuda.cuDeviceGetCount(ctypes.byref(count))
if status or not count.value:
    raise SystemExit(f"no GPU here: the CUDA driver's cuInit says {status}" if status else "no GPU here")
cuda.cuDriverGetVersion(ctypes.byref(version))
cuda.cuDeviceGetUuid_v2(uuid, 0)
cuda.cuDeviceGetName(name, 96, 0)
path = next(line.split()[-1] for line in open("/proc/self/maps") if "/libcuda.so" in line)
digits = bytes(uuid).hex()
print(json.dumps({"path": path, "name": name.value.decode(), "cuda": version.value,
                  "uuid": "GPU-" + "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))}))
"""


def simulated():
    return IN_SIM in os.environ


@functools.lru_cache(maxsize=1)
def driver():
    """{path of libcuda.so.1, name and uuid of the first GPU, cuda: the API's version}; BenchError: there is none."""
    done = subprocess.run([sys.executable, "-c", PROBE], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True, timeout=120, check=False)
    if done.returncode:
        said = report.last_line(done.stderr, f"the CUDA driver's start ended with status {done.returncode}")
        raise BenchError(f"{said} (`carve sim -- scripts/bench ...` has a simulated one)")
    return json.loads(done.stdout)


class Nvml:
    """The same GPU's NVML handle, until close()."""

    def __init__(self):
        try:
            self.library = ctypes.CDLL("libnvidia-ml.so.1")
        except OSError as error:
            raise BenchError(f"no NVML here: {error}") from None
        if self.library.nvmlInit_v2():
            raise BenchError("NVML does not start here")
        self.device = ctypes.c_void_p()
        if self.library.nvmlDeviceGetHandleByUUID(driver()["uuid"].encode(), ctypes.byref(self.device)):
            self.close()
            raise BenchError(f"NVML knows no GPU {driver()['uuid']}, CUDA's first one here")

    def used(self):
        memory = Memory()
        if self.library.nvmlDeviceGetMemoryInfo(self.device, ctypes.byref(memory)):
            raise BenchError("NVML does not tell the memory that is used")
        return memory.used

    def close(self):
        self.library.nvmlShutdown()


def listed(build):
    """The same GPU in carve's list: BenchError where it cannot be measured."""
    gpus = json.loads(checked([build / "carve", "gpu", "list", "--json"], os.environ))
    found = next((gpu for gpu in gpus if gpu["uuid"] == driver()["uuid"]), None)
    if not found or found["mig"]:
        raise BenchError(f"{driver()['name']} {driver()['uuid']}, CUDA's first one here, is no whole GPU (MIG?): only such are "
                         "measured; CUDA_VISIBLE_DEVICES can have another one be the first")
    return found


def slice_options(build):
    """Have carve make slices of this GPU alone."""
    return "--gpu-ids", str(listed(build)["index"])


def company(build):
    """What has to be known of figures of this GPU, in a line, or None."""
    count = len(listed(build)["outside_processes"])
    return f"{count} other process{'es' * (count > 1)} on this GPU: what they take and do is in the figures" if count else None


@contextlib.contextmanager
def own_daemon():
    """A daemon that nobody else uses, until the block's end: modes are set and slices made in it. Programs outside of
    slices have but the GPU that is measured."""
    first = driver()["uuid"]
    with tempfile.TemporaryDirectory(prefix="carve-bench-") as folder:
        for name in FOREIGN:
            if name not in (IN_SIM, "LD_LIBRARY_PATH"):
                os.environ.pop(name, None)
        os.environ.update(CARVE_RUNTIME_DIR=folder, CUDA_VISIBLE_DEVICES=first)
        yield


class Memory(ctypes.Structure):
    _fields_ = [(name, ctypes.c_ulonglong) for name in ("total", "free", "used")]


class UsedMemory:
    """The GPU's used bytes, as NVML tells them, looked at without a pause until the block's end: above what was used before.
    What came and went between two looks is not seen."""

    def __init__(self):
        self.nvml = Nvml()
        self.before = self.peak = self.nvml.used()
        self.lock = threading.Lock()
        self.stopped = threading.Event()
        self.thread = threading.Thread(target=self.look)

    def look_now(self):
        used = self.nvml.used()
        with self.lock:  # two threads look, and what one saw may be older than what the other noted
            self.peak = max(self.peak, used)

    def look(self):
        while not self.stopped.wait(LOOK_S):
            self.look_now()

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.stopped.set()
        self.thread.join()

    def most(self):
        return self.peak - self.before

    def left(self):
        """Bytes that stay used; waits for the driver to get back what has no holder any more."""
        end = time.monotonic() + BACK_S
        while self.nvml.used() > self.before and time.monotonic() < end:
            time.sleep(0.05)
        return max(0, self.nvml.used() - self.before)

    def close(self):
        self.nvml.close()
