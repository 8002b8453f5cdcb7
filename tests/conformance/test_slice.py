"""What unmodified clients see inside a slice: its size, its use, its processes, and no other GPU."""
import json
import re
import xml.etree.ElementTree as ElementTree

import pytest

from .conftest import BUILD
from .test_other_clients import screen

# A program of the slice: a context and 1 GiB, then the client as its child.
WORKLOAD = """
import ctypes, subprocess, sys
cuda, context, address = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p(), ctypes.c_uint64()
assert cuda.cuInit(0) == cuda.cuCtxCreate_v2(ctypes.byref(context), 0, 0) == 0
assert cuda.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(1 << 30)) == 0
sys.exit(subprocess.run(sys.argv[1:]).returncode)
"""
CONTEXT_MIB = 520


def sliced(*client):
    return [str(a) for a in (BUILD / "carve", "run", "--gpu-memory", "8Gi", "--gpu-ids", "1", "--", "/usr/bin/python3", "-c",
                             WORKLOAD, *client)]


@pytest.fixture
def busy_host(host):
    """The slice's GPU is the second; on both, somebody outside holds memory."""
    h = host("t4,h100-80gb")
    h.outsiders = [h.hold(600, 0), h.hold(700, 1)]
    return h


def test_nvidia_smi(smi, busy_host):
    table = busy_host.out(*sliced(smi))
    assert re.search(r"\|   0  NVIDIA H100 80GB HBM3", table) and "T4" not in table
    used = re.findall(r"(\d+)MiB / +(\d+)MiB", table)
    assert len(used) == 1 and used[0][1] == "8192"
    processes = re.findall(r"\| +0 +N/A +N/A +(\d+) +C +(\S+) +(\d+)MiB \|", table)
    assert len(processes) == 1 and int(processes[0][0]) not in busy_host.outsiders
    assert processes[0][1].endswith("python3") and processes[0][2] == used[0][0]
    assert 1024 + CONTEXT_MIB <= int(used[0][0]) < 2048


def test_nvidia_smi_reports(smi, busy_host):
    root = ElementTree.fromstring(busy_host.out(*sliced(smi, "-q", "-x")))
    gpu, = root.findall("gpu")
    assert root.findtext("attached_gpus") == "1" and gpu.findtext("fb_memory_usage/total") == "8192 MiB"
    assert len(list(gpu.iter("process_info"))) == 1
    answer = busy_host.out(*sliced(smi, "--query-gpu=index,memory.total,pci.bus_id",
                                   "--format=csv,noheader,nounits"))
    assert answer.strip() == "0, 8192, 00000000:04:00.0"
    apps = busy_host.out(*sliced(smi, "--query-compute-apps=pid", "--format=csv,noheader"))
    assert len(apps.split()) == 1 and int(apps) not in busy_host.outsiders


def test_gpustat(tools, busy_host):
    gpu, = json.loads(busy_host.out(*sliced(*tools.gpustat, "--json")))["gpus"]
    assert (gpu["name"], gpu["memory.total"]) == ("NVIDIA H100 80GB HBM3", 8192)
    assert gpu["memory.used"] == 1024 + CONTEXT_MIB
    process, = gpu["processes"]
    assert process["pid"] not in busy_host.outsiders and process["gpu_memory_usage"] == gpu["memory.used"]
    assert process["command"].endswith("python3")


def test_nvtop(tools, busy_host, tmp_path):
    env = dict(busy_host.env, HOME=str(tmp_path))
    text, status = screen(sliced(tools.nvtop, "-d", "2"), env, 15, b"python3")
    assert status == 0, text
    assert "NVIDIA H100" in text and "T4" not in text
    assert re.search(r"1\.\d+Gi/8\.0\d*Gi", text), text
    assert not any(str(pid) in text for pid in busy_host.outsiders)


PYNVML = """
import json
from pynvml import *
nvmlInit()
gpu = nvmlDeviceGetHandleByIndex(0)
memory, memory2 = nvmlDeviceGetMemoryInfo(gpu), nvmlDeviceGetMemoryInfo(gpu, nvmlMemory_v2)
process, = nvmlDeviceGetComputeRunningProcesses(gpu)
print(json.dumps({"count": nvmlDeviceGetCount(), "name": nvmlDeviceGetName(gpu), "index": nvmlDeviceGetIndex(gpu),
                  "memory": [memory.total, memory.used, memory.free], "memory2": [memory2.total, memory2.used, memory2.free],
                  "pid": process.pid, "process": process.usedGpuMemory, "process_name": nvmlSystemGetProcessName(process.pid),
                  "utilization": nvmlDeviceGetUtilizationRates(gpu).gpu}))
"""


def test_pynvml(tools, busy_host):
    seen = json.loads(busy_host.out(*sliced(*tools.python, "-c", PYNVML)))
    used = (1024 + CONTEXT_MIB) << 20
    assert seen.pop("pid") not in busy_host.outsiders and seen.pop("process_name").endswith("python3")
    assert seen == {"count": 1, "name": "NVIDIA H100 80GB HBM3", "index": 0, "memory": [8 << 30, used, (8 << 30) - used],
                    "memory2": [8 << 30, used, (8 << 30) - used], "process": used, "utilization": 0}


def test_nvidia_smi_on_a_mig_device(smi, host):
    """The daemon gives out none yet: a stand-in for it (front_host) does."""
    h = host("t4,a100-40gb+mig")
    h.out(smi, "mig", "-i", "1", "-cgi", "19,19", "-C")
    own = re.findall(r"MIG-[0-9a-f-]+", h.out(smi, "-L"))[1]
    fronts = ":".join(str(BUILD / "src/front" / name) for name in ("libcuda.so.1", "libnvidia-ml.so.1"))
    inside = ["env", f"CARVE_DRIVER_CUDA={BUILD}/sim/libcuda.so.1", f"CARVE_DRIVER_NVML={BUILD}/sim/libnvidia-ml.so.1",
              BUILD / "tests/programs/front_host", "--uuid", own, "--limit", str(3 << 30), "--preload", fronts, "--"]
    listed = h.out(*inside, smi, "-L")
    assert listed.count("GPU ") == 1 and "A100" in listed and re.findall(r"MIG-[0-9a-f-]+", listed) == [own]
    table = h.out(*inside, smi)
    assert re.search(r"\d+MiB / +3072MiB", table) and "T4" not in table
