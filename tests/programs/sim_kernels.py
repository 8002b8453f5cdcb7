"""Kernels that take so many times so many ns, and store when they began and ended. With SLOW set this machine needs far
longer to play them than the GPU would."""

import ctypes as C
import json
import os
import sys

PTX = b"""
.version 7.0
.target sm_70
.address_size 64
.visible .entry sleeper(.param .u64 out, .param .u32 count, .param .u32 ns)
{
	.reg .u32 %r<4>; .reg .u64 %d<4>; .reg .pred %p;
	ld.param.u64 %d1, [out]; ld.param.u32 %r1, [count]; ld.param.u32 %r2, [ns];
	mov.u64 %d2, %globaltimer;
	mov.u32 %r3, 0;
L:	nanosleep.u32 %r2;
	add.u32 %r3, %r3, 1;
	setp.lt.u32 %p, %r3, %r1;
	@%p bra L;
	mov.u64 %d3, %globaltimer;
	st.global.u64 [%d1], %d2; st.global.u64 [%d1+8], %d3;
	ret;
}
.visible .entry spinner(.param .u64 out, .param .u32 count, .param .u32 ns)
{
	.reg .u32 %r<4>; .reg .u64 %d<6>; .reg .pred %p;
	ld.param.u64 %d1, [out]; ld.param.u32 %r1, [count]; ld.param.u32 %r2, [ns];
	mov.u64 %d2, %globaltimer;
	mul.wide.u32 %d4, %r1, %r2; add.u64 %d4, %d4, %d2;
L:	mov.u64 %d3, %globaltimer;
	setp.lt.u64 %p, %d3, %d4;
	@%p bra L;
	st.global.u64 [%d1], %d2; st.global.u64 [%d1+8], %d3;
	ret;
}
.visible .entry quiet(.param .u64 out, .param .u32 count, .param .u32 ns)
{
	.reg .u32 %r<4>; .reg .pred %p;
	ld.param.u32 %r1, [count]; ld.param.u32 %r2, [ns];
	mov.u32 %r3, 0;
L:	nanosleep.u32 %r2;
	add.u32 %r3, %r3, 1;
	setp.lt.u32 %p, %r3, %r1;
	@%p bra L;
	ret;
}
"""
if os.environ.get("SLOW"):
    PTX = PTX.replace(b"nanosleep.u32 %r2;", b"rem.u32 %r2, %r2, %r2;")
cuda = C.CDLL("libcuda.so.1")
def call(name, *arguments):
    result = getattr(cuda, name)(*arguments)
    assert result == 0, (name, result)
P = C.c_void_p
device, context, module, function, memory = C.c_int(), P(), P(), P(), C.c_uint64()
call("cuInit", 0)
call("cuDeviceGet", C.byref(device), 0)
call("cuCtxCreate_v2", C.byref(context), 0, device)
call("cuModuleLoadData", C.byref(module), PTX)
call("cuModuleGetFunction", C.byref(function), module, sys.argv[1].encode())
MANY = 4096
call("cuMemAlloc_v2", C.byref(memory), C.c_size_t(16 * MANY))
call("cuMemsetD8_v2", memory, C.c_ubyte(0), C.c_size_t(16 * MANY))
count, ns, ahead = (int(a) for a in sys.argv[2:5])
def launch(index, count=count):
    values = [C.c_uint64(memory.value + 16 * (index % MANY)), C.c_uint32(count), C.c_uint32(ns)]
    arguments = (P * 3)(*[C.addressof(v) for v in values])
    call("cuLaunchKernel", function, 1, 1, 1, 1, 1, 1, 0, None, arguments, None)
def event():
    e = P()
    call("cuEventCreate", C.byref(e), 0)
    return e
def stored(kernels):
    both = (C.c_uint64 * (2 * kernels))()
    call("cuMemcpyDtoH_v2", both, memory, C.c_size_t(16 * kernels))
    return list(zip(both[::2], both[1::2]))
call("cuCtxSynchronize")
