"""Kernels that need local memory of a given size."""
import subprocess

from cuda import *

PTX = b'''.version 8.0
.target sm_80
.address_size 64
.visible .entry needs(.param .u32 at)
{
.local .align 8 .b8 depot[%d];
.reg .b64 %%rd<5>; .reg .b32 %%r<3>;
ld.param.u32 %%r1, [at]; cvt.u64.u32 %%rd2, %%r1; mov.u64 %%rd3, depot; add.u64 %%rd4, %%rd3, %%rd2;
st.local.u8 [%%rd4], %%r1;
ret;
}
'''
def context(device=0):
    at = c.c_void_p()
    ok(cuda.cuDevicePrimaryCtxRetain(c.byref(at), device))
    ok(cuda.cuCtxSetCurrent(at))
    return at
def function(size):
    module, f = c.c_void_p(), c.c_void_p()
    ok(cuda.cuModuleLoadData(c.byref(module), PTX % size))
    ok(cuda.cuModuleGetFunction(c.byref(f), module, b"needs"))
    return f
zero = c.c_uint32(0)
params = (c.c_void_p * 1)(c.addressof(zero))
def launch(f):
    return cuda.cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, None, params, None)
ok(cuda.cuInit(0))
