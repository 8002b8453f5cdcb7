"""Processes share a simulated GPU through the driver API: kernels that sleep on the GPU are busy on it."""
import subprocess
import sys
import time

import pytest

from conftest import ON_GPU
from test_simhost import sim  # noqa: F401 (a fixture)

pytestmark = pytest.mark.skipif(ON_GPU, reason="reads the simulated host's own books")

PROGRAM = r'''
import ctypes, sys, time
PTX = b"""
.version 7.0
.target sm_70
.address_size 64
.visible .entry sleeper(.param .u32 count, .param .u32 ns)
{
	.reg .u32 %r<4>;
	.reg .pred %p;
	ld.param.u32 %r1, [count];
	ld.param.u32 %r2, [ns];
	mov.u32 %r3, 0;
L:	setp.ge.u32 %p, %r3, %r1;
	@%p bra D;
	nanosleep.u32 %r2;
	add.u32 %r3, %r3, 1;
	bra L;
D:	ret;
}
"""
cuda = ctypes.CDLL("libcuda.so.1")
def ok(result):
    assert result == 0, result
device, context, module, function = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
ok(cuda.cuInit(0))
ok(cuda.cuDeviceGet(ctypes.byref(device), 0))
ok(cuda.cuCtxCreate_v2(ctypes.byref(context), 0, device))
ok(cuda.cuModuleLoadData(ctypes.byref(module), PTX))
ok(cuda.cuModuleGetFunction(ctypes.byref(function), module, b"sleeper"))
count, ns = ctypes.c_uint32(int(sys.argv[1])), ctypes.c_uint32(int(sys.argv[2]))
arguments = (ctypes.c_void_p * 2)(ctypes.addressof(count), ctypes.addressof(ns))
print("up", flush=True)
while True:
    for _ in range(4):
        ok(cuda.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, None, arguments, None))
    ok(cuda.cuCtxSynchronize())
'''


def test_sleeping_kernels_share_equally(sim):  # noqa: F811
    host = sim()
    shapes = [(5, 1_000_000), (20, 300_000), (1, 5_000_000), (10, 700_000)]
    programs = [subprocess.Popen([sys.executable, "-c", PROGRAM, str(n), str(ns)],
                                 stdout=subprocess.PIPE, text=True, env=host.env)
                for n, ns in shapes]
    try:
        for program in programs:
            assert program.stdout.readline() == "up\n"
        time.sleep(0.5)
        before = host.stat()
        time.sleep(3)
        after = host.stat()
    finally:
        for program in programs:
            program.kill()
            program.wait()
    elapsed = after["now_ns"] - before["now_ns"]

    def busy(stat):
        return {p["pid"]: p["busy_ns"] for p in stat["gpus"][0]["processes"]}

    shares = [(busy(after)[p.pid] - busy(before)[p.pid]) / elapsed for p in programs]
    assert sum(shares) > 0.97
    assert all(abs(share - 0.25) < 0.02 for share in shares), shares
