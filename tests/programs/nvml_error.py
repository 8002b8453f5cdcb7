"""The code of nvmlInit() here, and its text."""
import ctypes
import json

nvml = ctypes.CDLL("libnvidia-ml.so.1")
nvml.nvmlErrorString.restype = ctypes.c_char_p
code = nvml.nvmlInit_v2()
print(json.dumps([code, nvml.nvmlErrorString(code).decode()]))
