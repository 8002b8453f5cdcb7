"""PyCUDA against whatever driver it loads; each check fails by an assertion.

usage: pycuda_checks.py VECTOR_ADD.ptx SIZE
"""
import sys

import numpy as np
import pycuda.driver as cuda

MIB = 1 << 20
# y = a * x + y; a PTX text as another compiler may have written it.
SAXPY = b"""
.version 7.0
.target sm_70
.address_size 64
.visible .const .align 4 .f32 a;
.visible .entry saxpy(.param .u64 px, .param .u64 py, .param .u32 n)
{
	.reg .pred %p; .reg .b32 %r<6>; .reg .b64 %rd<6>; .reg .f32 %f<4>;
	mov.u32 %r1, %ctaid.x;
	mov.u32 %r2, %ntid.x;
	mov.u32 %r3, %tid.x;
	mad.lo.s32 %r4, %r1, %r2, %r3;
	ld.param.u32 %r5, [n];
	setp.ge.u32 %p, %r4, %r5;
	@%p bra DONE;
	ld.param.u64 %rd1, [px];
	ld.param.u64 %rd2, [py];
	mul.wide.u32 %rd3, %r4, 4;
	add.s64 %rd4, %rd1, %rd3;
	add.s64 %rd5, %rd2, %rd3;
	ld.global.f32 %f1, [%rd4];
	ld.global.f32 %f2, [%rd5];
	ld.const.f32 %f3, [a];
	fma.rn.f32 %f2, %f3, %f1, %f2;
	st.global.f32 [%rd5], %f2;
DONE:
	ret;
}
"""


def random(count):
    return np.random.default_rng(7).standard_normal(count).astype(np.float32)


def check_vector_add(ptx):
    """On a stream, in order, timed by events, between pinned host memory and the device."""
    add = cuda.module_from_buffer(ptx).get_function("vector_add")
    a, b = random(100_000), random(100_000)[::-1].copy()
    c = cuda.pagelocked_zeros(a.shape, a.dtype)
    stream, start, end = cuda.Stream(), cuda.Event(), cuda.Event()
    on_device = [cuda.to_device(a), cuda.mem_alloc(b.nbytes), cuda.mem_alloc(c.nbytes)]
    start.record(stream)
    cuda.memcpy_htod_async(on_device[1], cuda.register_host_memory(b), stream)
    add(*on_device, np.int32(a.size), block=(256, 1, 1), grid=(a.size // 256 + 1, 1), stream=stream)
    cuda.memcpy_dtoh_async(c, on_device[2], stream)
    end.record(stream)
    stream.synchronize()
    assert np.array_equal(c, a + b)
    assert end.query() and stream.is_done() and start.time_till(end) > 0
    assert add.num_regs >= 0 and add.max_threads_per_block >= 256


def check_prepared_call_and_constant():
    module = cuda.module_from_buffer(SAXPY)
    address, size = module.get_global("a")
    assert size == 4
    cuda.memcpy_htod(address, np.float32(2.5))
    x, y = random(1000), random(1000)[::-1].copy()
    px, py = cuda.to_device(x), cuda.to_device(y)
    saxpy = module.get_function("saxpy").prepare("PPI")
    saxpy.prepared_call((4, 1), (256, 1, 1), int(px), int(py), 1000)
    exact = (2.5 * x.astype(np.float64) + y).astype(np.float32)
    assert np.array_equal(cuda.from_device_like(py, y), exact)
    try:
        cuda.module_from_buffer(b".version 7.0\n.target sm_70\n.entry broken() { nonsense; }\n")
    except cuda.Error as error:
        assert "ptx" in str(error).lower() and "nonsense" in str(error), error
    else:
        raise AssertionError("nonsense was loaded")


def check_arguments():
    """Arrays that PyCUDA itself copies in and out around the launch."""
    add = cuda.module_from_buffer(open(sys.argv[1], "rb").read()).get_function("vector_add")
    a, b = random(500), random(500)
    c = np.empty_like(a)
    milliseconds = add(cuda.In(a), cuda.In(b), cuda.Out(c), np.int32(500), block=(512, 1, 1), time_kernel=True)
    assert np.array_equal(c, a + b) and milliseconds > 0


def check_memory(size):
    """Fills the GPU to its end, which PyCUDA reports as MemoryError; then all comes back."""
    free, total = cuda.mem_get_info()
    assert total == size, (total, size)
    pitched, pitch = cuda.mem_alloc_pitch(100, 50, 4)
    cuda.memset_d2d8(pitched, pitch, 7, 100, 50)
    rows = np.empty((50, 100), np.uint8)
    copy = cuda.Memcpy2D()
    copy.set_src_device(pitched)
    copy.set_dst_host(rows)
    copy.src_pitch, copy.dst_pitch, copy.width_in_bytes, copy.height = pitch, 100, 100, 50
    copy(aligned=True)
    assert (rows == 7).all()
    pitched.free()
    held = []
    try:
        while True:
            held.append(cuda.mem_alloc(256 * MIB))
    except cuda.MemoryError:
        pass
    assert (free // MIB - 2) // 256 <= len(held) <= free // (256 * MIB)
    for memory in held:
        memory.free()
    assert cuda.mem_get_info()[0] >= free - 2 * MIB


def check_managed_and_array():
    a = cuda.managed_zeros(1000, np.float32, mem_flags=cuda.mem_attach_flags.GLOBAL)
    cuda.memset_d32(a.base.get_device_pointer(), 0x3f800000, 1000)
    cuda.Context.synchronize()
    assert (a == 1).all()
    image = np.arange(64 * 32, dtype=np.float32).reshape(32, 64)
    array = cuda.matrix_to_array(image, "C")
    back = cuda.Memcpy2D()
    out = np.zeros_like(image)
    back.set_src_array(array)
    back.set_dst_host(out)
    back.width_in_bytes = back.dst_pitch = 64 * 4
    back.height = 32
    back(aligned=False)
    assert np.array_equal(out, image)


def main(ptx, size):
    cuda.init()
    device = cuda.Device(0)
    assert cuda.Device.count() >= 1 and device.compute_capability() >= (7, 0)
    assert device.get_attributes()[cuda.device_attribute.WARP_SIZE] == 32
    context = device.make_context()
    try:
        with open(ptx, "rb") as f:
            check_vector_add(f.read())
        check_prepared_call_and_constant()
        check_arguments()
        check_memory(int(size))
        check_managed_and_array()
    finally:
        context.pop()
        context.detach()
    print("exact on", device.name())


if __name__ == "__main__":
    main(*sys.argv[1:])
