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
    return [str(a) for a in (BUILD / "carve", "run", "--vram", "4", "--gpu-ids", "1", "--", "/usr/bin/python3", "-c",
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
    assert len(used) == 1 and used[0][1] == "4096"
    processes = re.findall(r"\| +0 +N/A +N/A +(\d+) +C +(\S+) +(\d+)MiB \|", table)
    assert len(processes) == 1 and int(processes[0][0]) not in busy_host.outsiders
    assert processes[0][1].endswith("python3") and processes[0][2] == used[0][0]
    assert 1024 + CONTEXT_MIB <= int(used[0][0]) < 2048


def test_nvidia_smi_reports(smi, busy_host):
    root = ElementTree.fromstring(busy_host.out(*sliced(smi, "-q", "-x")))
    gpu, = root.findall("gpu")
    assert root.findtext("attached_gpus") == "1" and gpu.findtext("fb_memory_usage/total") == "4096 MiB"
    assert len(list(gpu.iter("process_info"))) == 1
    answer = busy_host.out(*sliced(smi, "--query-gpu=index,memory.total,pci.bus_id",
                                   "--format=csv,noheader,nounits"))
    assert answer.strip() == "0, 4096, 00000000:04:00.0"
    apps = busy_host.out(*sliced(smi, "--query-compute-apps=pid", "--format=csv,noheader"))
    assert len(apps.split()) == 1 and int(apps) not in busy_host.outsiders


def test_gpustat(tools, busy_host):
    gpu, = json.loads(busy_host.out(*sliced(*tools.gpustat, "--json")))["gpus"]
    assert (gpu["name"], gpu["memory.total"]) == ("NVIDIA H100 80GB HBM3", 4096)
    process, = gpu["processes"]
    assert process["pid"] not in busy_host.outsiders and process["gpu_memory_usage"] >= 1024


def test_nvtop(tools, busy_host, tmp_path):
    env = dict(busy_host.env, HOME=str(tmp_path))
    text, status = screen(sliced(tools.nvtop, "-d", "2"), env, 15, b"python3")
    assert status == 0, text
    assert "NVIDIA H100" in text and "T4" not in text
    assert re.search(r"4\.000Gi|4\.0\d*Gi", text), text
    assert not any(str(pid) in text for pid in busy_host.outsiders)
