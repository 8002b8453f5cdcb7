"""Sets the MIG modes of GPUs, in order; one that is pending is asked for again."""

import ctypes as c
import sys
import time

nvml = c.CDLL("libnvidia-ml.so.1")
gpu, status = c.c_void_p(), c.c_int(-1)
assert nvml.nvmlInit_v2() == 0
for index, mode in enumerate(sys.argv[1:]):
    assert nvml.nvmlDeviceGetHandleByIndex_v2(index, c.byref(gpu)) == 0
    for _ in range(600):
        assert nvml.nvmlDeviceSetMigMode(gpu, int(mode), c.byref(status)) == 0
        if status.value == 0:
            break
        time.sleep(0.1)
    assert status.value == 0
