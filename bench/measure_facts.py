"""What the driver that is there does where carve relies on something that only NVIDIA's documents say: what takes how much
memory, in whose figure of NVML it is, how long NVML takes, and whether exported descriptors take locks. It is run by
bench/measure.py outside of slices, on CUDA's first GPU, which nobody else should use meanwhile.

    measure_facts.py

Prints one JSON object: {"rows": [[what was done, MiB more of the GPU, MiB more in this process's figure or null, remark]],
"times": [[NVML's function, microseconds, the median of 50]]}."""
import ctypes
import fcntl
import json
import os
import statistics
import struct
import subprocess
import sys
import time

MIB = 1 << 20
SETTLED_S = 0.3
# 16 MiB of variables, and a kernel whose threads have 8 KiB of local memory each.
PTX = b"""
.version 7.0
.target sm_70
.address_size 64
.global .align 4 .b8 table[16777216];
.visible .entry local_memory(.param .u64 out)
{
	.local .align 16 .b8 depot[8192];
	.reg .b64 %rd<6>;
	.reg .b32 %r<3>;
	mov.u32 %r1, %tid.x;
	mul.wide.u32 %rd1, %r1, 4;
	mov.u64 %rd2, depot;
	add.u64 %rd3, %rd2, %rd1;
	st.local.u32 [%rd3], %r1;
	ld.local.u32 %r2, [%rd3];
	ld.param.u64 %rd4, [out];
	cvta.to.global.u64 %rd5, %rd4;
	st.global.u32 [%rd5], %r2;
	ret;
}
\0"""


class Memory(ctypes.Structure):
    _fields_ = [(name, ctypes.c_ulonglong) for name in ("total", "free", "used")]


class Memory2(ctypes.Structure):
    _fields_ = [("version", ctypes.c_uint), ("pad", ctypes.c_uint)] + \
        [(name, ctypes.c_ulonglong) for name in ("total", "reserved", "free", "used")]


class Process(ctypes.Structure):
    _fields_ = [("pid", ctypes.c_uint), ("used", ctypes.c_ulonglong), ("instances", ctypes.c_uint * 2)]


class Properties(ctypes.Structure):
    """CUmemAllocationProp: pinned device memory, exportable as a descriptor."""
    _fields_ = [("type", ctypes.c_int), ("handle_types", ctypes.c_int), ("location", ctypes.c_int), ("device", ctypes.c_int),
                ("metadata", ctypes.c_void_p), ("flags", ctypes.c_ubyte * 8)]


UNKNOWN = (1 << 64) - 1
EXPORTABLE = Properties(type=1, handle_types=1, location=1)


def cuda(name, *args):
    status = getattr(libcuda, name)(*args)
    if status:
        raise OSError(f"{name}: CUDA's error {status}")


def handle():
    uuid, device = (ctypes.c_ubyte * 16)(), ctypes.c_void_p()
    cuda("cuDeviceGetUuid_v2", uuid, 0)
    d = bytes(uuid).hex()
    name = f"GPU-{d[:8]}-{d[8:12]}-{d[12:16]}-{d[16:20]}-{d[20:]}"
    if nvml.nvmlInit_v2() or nvml.nvmlDeviceGetHandleByUUID(name.encode(), ctypes.byref(device)):
        raise OSError(f"NVML has no GPU {name}")
    return device


def used():
    memory = Memory()
    nvml.nvmlDeviceGetMemoryInfo(gpu, ctypes.byref(memory))
    return memory.used


def listed():
    count, found = ctypes.c_uint(256), (Process * 256)()
    status = nvml.nvmlDeviceGetComputeRunningProcesses_v3(gpu, ctypes.byref(count), found)
    return [] if status else [(p.pid, p.used) for p in found[:count.value]]


def figure(pid):
    """None: NVML does not list it, or not by the number that it has here, or knows no figure."""
    return next((bytes_used for known, bytes_used in listed() if known == pid and bytes_used != UNKNOWN), None)


class Ledger:
    """What was done, and what changed by it."""

    def __init__(self):
        self.rows = []
        self.last = used(), figure(os.getpid()) or 0

    def note(self, what, remark=""):
        time.sleep(SETTLED_S)
        now, own = used(), figure(os.getpid())
        self.rows.append([what, (now - self.last[0]) / MIB, None if own is None else (own - self.last[1]) / MIB, remark])
        self.last = now, own or 0


def median_us(name, call):
    taken = []
    for _ in range(50):
        begin = time.perf_counter()
        call()
        taken.append((time.perf_counter() - begin) * 1e6)
    return [name, statistics.median(taken)]


def times():
    memory2 = Memory2(version=ctypes.sizeof(Memory2) | 2 << 24)
    return [median_us("nvmlDeviceGetMemoryInfo", used),
            median_us("nvmlDeviceGetMemoryInfo_v2", lambda: nvml.nvmlDeviceGetMemoryInfo_v2(gpu, ctypes.byref(memory2))),
            median_us("nvmlDeviceGetComputeRunningProcesses_v3", listed)]


def exported(ledger):
    """Memory of a descriptor: what NVML says of an importer, whether the descriptor takes locks, and who has the memory when
    only it is left."""
    size, memory, fd = 64 * MIB, ctypes.c_ulonglong(), ctypes.c_int(-1)
    cuda("cuMemCreate", ctypes.byref(memory), ctypes.c_size_t(size), ctypes.byref(EXPORTABLE), ctypes.c_ulonglong(0))
    ledger.note("cuMemCreate of 64 MiB")
    cuda("cuMemExportToShareableHandle", ctypes.byref(fd), memory, 1, ctypes.c_ulonglong(0))
    ledger.note("its export as a descriptor", "leads to " + os.readlink(f"/proc/self/fd/{fd.value}"))
    try:
        fcntl.fcntl(fd.value, fcntl.F_OFD_SETLK, struct.pack("hhqqi4x", fcntl.F_RDLCK, os.SEEK_SET, 12345, 1, 0))
        with open("/proc/locks", encoding="ascii") as locks:
            seen = " 12345 12345\n" in locks.read()
        said = "takes a lock, which /proc/locks " + ("shows" if seen else "does NOT show")
    except OSError as error:
        said = f"takes NO lock: {error.strerror}"
    ledger.note("a lock of the descriptor", said)
    with subprocess.Popen([sys.executable, __file__, "import", str(fd.value)], pass_fds=[fd.value], stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE, text=True) as importer:
        said = importer.stdout.readline().strip()
        importer.stdin.close()
    ledger.note("an importer's context and import, which have ended", said)
    cuda("cuMemRelease", memory)
    ledger.note("cuMemRelease, while the descriptor is open")
    os.close(fd.value)
    ledger.note("close of the descriptor")


def importer(fd):
    """Another process: what its figure becomes by an import and a mapping."""
    begin_context()
    before, memory, where = figure(os.getpid()), ctypes.c_ulonglong(), ctypes.c_ulonglong()
    cuda("cuMemImportFromShareableHandle", ctypes.byref(memory), ctypes.c_void_p(fd), 1)
    cuda("cuMemAddressReserve", ctypes.byref(where), ctypes.c_size_t(64 * MIB), ctypes.c_size_t(0), ctypes.c_ulonglong(0),
         ctypes.c_ulonglong(0))
    cuda("cuMemMap", where, ctypes.c_size_t(64 * MIB), ctypes.c_size_t(0), memory, ctypes.c_ulonglong(0))
    time.sleep(SETTLED_S)
    after = figure(os.getpid())
    known = before is not None and after is not None
    print(f"its figure: {(after - before) / MIB:+.0f} MiB by the import" if known else "NVML does not list it", flush=True)
    sys.stdin.read()


def begin_context():
    context, device = ctypes.c_void_p(), ctypes.c_int()
    cuda("cuDeviceGet", ctypes.byref(device), 0)
    cuda("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
    cuda("cuCtxSetCurrent", context)
    return device


def linear(ledger):
    block, size = ctypes.c_ulonglong(), ctypes.c_size_t(256 * MIB)
    cuda("cuMemAlloc_v2", ctypes.byref(block), size)
    ledger.note("cuMemAlloc of 256 MiB")
    cuda("cuMemFree_v2", block)
    ledger.note("cuMemFree")
    small = (ctypes.c_ulonglong * 64)()
    for i in range(64):
        cuda("cuMemAlloc_v2", ctypes.byref(small, 8 * i), ctypes.c_size_t(64 << 10))
    ledger.note("64 times cuMemAlloc of 64 KiB")
    for block in small:
        cuda("cuMemFree_v2", ctypes.c_ulonglong(block))
    ledger.note("cuMemFree of these")


def managed(ledger):
    block = ctypes.c_ulonglong()
    cuda("cuMemAllocManaged", ctypes.byref(block), ctypes.c_size_t(64 * MIB), 1)
    ledger.note("cuMemAllocManaged of 64 MiB")
    cuda("cuMemsetD8_v2", block, 1, ctypes.c_size_t(64 * MIB))
    cuda("cuCtxSynchronize")
    ledger.note("a fill of it on the GPU")
    cuda("cuMemFree_v2", block)
    ledger.note("cuMemFree")


def pooled(ledger):
    block = ctypes.c_ulonglong()
    for size in (100, 1):
        cuda("cuMemAllocAsync", ctypes.byref(block), ctypes.c_size_t(size * MIB), None)
        cuda("cuCtxSynchronize")
        ledger.note(f"cuMemAllocAsync of {size} MiB")
        cuda("cuMemFreeAsync", block, None)
        cuda("cuCtxSynchronize")
        ledger.note("cuMemFreeAsync and a wait")


def module(ledger):
    loaded, function, out = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_ulonglong()
    cuda("cuModuleLoadData", ctypes.byref(loaded), PTX)
    ledger.note("a module with 16 MiB of variables")
    cuda("cuModuleGetFunction", ctypes.byref(function), loaded, b"local_memory")
    cuda("cuMemAlloc_v2", ctypes.byref(out), ctypes.c_size_t(4))
    ledger.note("its function got, and 4 bytes")
    arguments = (ctypes.c_void_p * 1)(ctypes.addressof(out))
    cuda("cuLaunchKernel", function, 1, 1, 1, 32, 1, 1, 0, None, arguments, None)
    cuda("cuCtxSynchronize")
    ledger.note("a kernel with 8 KiB of local memory a thread")
    cuda("cuModuleUnload", loaded)
    ledger.note("cuModuleUnload")


def contexts(ledger, device):
    context = ctypes.c_void_p()
    cuda("cuCtxCreate_v2", ctypes.byref(context), 0, device)
    ledger.note("a second context (cuCtxCreate)")
    cuda("cuCtxDestroy_v2", context)
    ledger.note("cuCtxDestroy")


def main():
    ledger = Ledger()
    device = begin_context()
    ledger.note("the first context")
    parts = [("linear", linear), ("managed", managed), ("pools", pooled), ("modules", module), ("descriptors", exported),
             ("contexts", lambda of: contexts(of, device))]
    for name, part in parts:
        try:
            part(ledger)
        except OSError as error:
            ledger.note(f"{name}: given up", str(error))
    print(json.dumps({"rows": ledger.rows, "times": times()}))


libcuda, nvml = ctypes.CDLL("libcuda.so.1"), ctypes.CDLL("libnvidia-ml.so.1")
cuda("cuInit", 0)
gpu = handle()
if sys.argv[1:2] == ["import"]:
    importer(int(sys.argv[2]))
else:
    main()
