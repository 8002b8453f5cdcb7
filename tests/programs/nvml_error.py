"""The code of nvmlInit() in a library (a path), and its text."""
import ctypes
import json
import sys

nvml = ctypes.CDLL(sys.argv[1])
nvml.nvmlErrorString.restype = ctypes.c_char_p
code = nvml.nvmlInit_v2()
print(json.dumps([code, nvml.nvmlErrorString(code).decode()]))
