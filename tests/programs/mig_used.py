"""A context on each CUDA device, then what NVML says is used of each MIG device, and by this process: {UUID: [bytes, bytes]}. With
a device and a size code of that size is used there, and for each line of input that is said again."""
import sys

from cuda import *

nvml = c.CDLL("libnvidia-ml.so.1")


def used():
    count, seen = c.c_uint(), {}
    assert nvml.nvmlInit_v2() == nvml.nvmlDeviceGetCount_v2(c.byref(count)) == 0
    for i in range(count.value):
        gpu, mig, index = c.c_void_p(), c.c_void_p(), 0
        assert nvml.nvmlDeviceGetHandleByIndex_v2(i, c.byref(gpu)) == 0
        while nvml.nvmlDeviceGetMigDeviceHandleByIndex(gpu, index, c.byref(mig)) == 0:
            uuid, sizes = c.create_string_buffer(96), (c.c_ulonglong * 3)()
            listed, entries = c.c_uint(16), (c.c_ulonglong * 64)()
            assert nvml.nvmlDeviceGetUUID(mig, uuid, 96) == nvml.nvmlDeviceGetMemoryInfo(mig, sizes) == 0
            assert nvml.nvmlDeviceGetComputeRunningProcesses_v3(mig, c.byref(listed), entries) == 0
            seen[uuid.value.decode()] = [sizes[2], sum(entries[3 * k + 1] for k in range(listed.value))]
            index += 1
    return seen


count, contexts = c.c_int(), []
assert cuda.cuInit(0) == cuda.cuDeviceGetCount(c.byref(count)) == 0
for device in range(count.value):
    contexts.append(c.c_void_p())
    assert cuda.cuCtxCreate_v2(c.byref(contexts[-1]), 0, device) == 0
print(json.dumps(used()), flush=True)
if len(sys.argv) > 2:
    library, kernel = c.c_void_p(), c.c_void_p()
    # A library's code is loaded when a context first uses it: no image says beforehand that it will be there.
    text = b".version 8.0\n.target sm_80\n.address_size 64\n//" + b"x" * int(sys.argv[2]) + b"\n.visible .entry f()\n{\nret;\n}\n"
    assert cuda.cuLibraryLoadData(c.byref(library), text, None, None, 0, None, None, 0) == 0
    assert cuda.cuLibraryGetKernel(c.byref(kernel), library, b"f") == 0
    assert cuda.cuCtxSetCurrent(contexts[int(sys.argv[1])]) == 0
    assert cuda.cuKernelGetFunction(c.byref(c.c_void_p()), kernel) == 0
    for _ in sys.stdin:
        print(json.dumps(used()), flush=True)
