"""Destroys the compute instance 0 of the GPU instance of GPU 0 whose ID is its argument."""
import ctypes as c
import sys

nvml = c.CDLL("libnvidia-ml.so.1")
gpu, gi, ci = c.c_void_p(), c.c_void_p(), c.c_void_p()
assert nvml.nvmlInit_v2() == nvml.nvmlDeviceGetHandleByIndex_v2(0, c.byref(gpu)) == 0
assert nvml.nvmlDeviceGetGpuInstanceById(gpu, int(sys.argv[1]), c.byref(gi)) == 0
assert nvml.nvmlGpuInstanceGetComputeInstanceById(gi, 0, c.byref(ci)) == 0
print("destroying", flush=True)
assert nvml.nvmlComputeInstanceDestroy(ci) == 0
