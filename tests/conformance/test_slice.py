"""What unmodified clients see inside a slice: its size, its use, its processes, and no other GPU."""
import json
import re
import subprocess
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
    """A part of one: a stand-in for the daemon (front_host) gives it out."""
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


# ---- in an instance of the daemon's making --------------------------------------------------------

@pytest.fixture
def mig_host(host, driver):
    """A GPU in the role beside one that is not, and on it somebody's session with a process in it."""
    h = host("t4,h100-80gb:2+mig", driver)
    h.out(BUILD / "carve", "node", "set-role", "--dynamic-mig-enabled", "--gpu-ids", "1,2")
    neighbour = subprocess.Popen([str(BUILD / "carve"), "run", "--ephemeral", "--mig-profile", "2g.20gb", "--gpu-ids", "1", "--",
                                  "/usr/bin/python3", "-c", WORKLOAD, "sh", "-c", "echo $CUDA_VISIBLE_DEVICES $PPID; exec cat"],
                                 env=h.env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    h.holders.append(neighbour)
    h.neighbour_uuid, h.neighbour_pid = neighbour.stdout.readline().split()
    h.others = [h.neighbour_uuid, *(u for u in re.findall(r"GPU-[0-9a-f-]+", h.out(BUILD / "carve", "gpu", "list", "--json")))]
    return h


def in_instance(*client):
    return [str(a) for a in (BUILD / "carve", "run", "--ephemeral", "--mig-profile", "1g.10gb", "--gpu-ids", "1", "--",
                             "/usr/bin/python3", "-c", WORKLOAD, *client)]


def is_own(text, h):
    """Of UUIDs there are those of one instance and of its GPU at most, and nothing of the neighbour."""
    assert len(set(re.findall(r"GPU-[0-9a-f-]{36}", text))) <= 1 and len(set(re.findall(r"MIG-[0-9a-f-]{36}", text))) <= 1, text
    assert h.neighbour_uuid not in text and "2g.20gb" not in text.replace("MIG 2g.20gb       14     0/3", "") and "T4" not in text, text
    assert not re.search(rf"\b{h.neighbour_pid}\b", text), text
    return text


def test_nvidia_smi_in_an_instance(smi, mig_host):
    listed = is_own(mig_host.out(*in_instance(smi, "-L")), mig_host)
    assert len(listed.splitlines()) == 2 and re.search(r"MIG 1g\.10gb +Device +0: ", listed)
    table = is_own(mig_host.out(*in_instance(smi)), mig_host)
    assert set(re.findall(r"(\d+)MiB / +(\d+)MiB", table)) == {(str(1024 + CONTEXT_MIB), "9984"), ("1", "16384")}
    root = ElementTree.fromstring(is_own(mig_host.out(*in_instance(smi, "-q", "-x")), mig_host))
    mig, = root.iter("mig_device")
    assert (root.findtext("attached_gpus"), mig.findtext("index"), mig.findtext("fb_memory_usage/total")) == ("1", "0", "9984 MiB")
    assert len(list(root.iter("process_info"))) == 1
    for words in (["-q"], ["topo", "-m"], ["topo", "-p2p", "r"]):
        is_own(mig_host.out(*in_instance(smi, *words)), mig_host)
    for words in (["dmon", "-c", "1"], ["pmon", "-c", "1"]):  # as everywhere in MIG mode
        assert "Not supported" in is_own(mig_host.run(*in_instance(smi, *words)).stdout, mig_host)


def test_nvidia_smi_manages_no_mig_in_an_instance(smi, mig_host):
    """Not even root's."""
    for verb in ("-lgi", "-lci"):
        assert is_own(mig_host.out(*in_instance(smi, "mig", verb)), mig_host).count("1g.10gb") == 1
    assert set(re.findall(r" (\d)/\d ", mig_host.out(*in_instance(smi, "mig", "-lgip")))) == {"0"}
    for words in (["mig", "-cgi", "19"], ["mig", "-dci"], ["mig", "-dgi"], ["-mig", "0"]):
        done = mig_host.run(*in_instance(smi, *words))
        assert done.returncode != 0 and "Insufficient Permissions" in done.stdout, (words, done)
    assert mig_host.out(BUILD / "carve", "mig", "list").count("busy") == 1


def test_nvidia_smi_answers_each_field_in_an_instance(smi, mig_host):
    fields = [f for line in mig_host.out(smi, "--help-query-gpu").splitlines() if line.startswith('"')
              for f in re.findall(r'"([\w.]+)"', line)]
    assert len(fields) > 100
    answer = is_own(mig_host.out(*in_instance(smi, f"--query-gpu={','.join(fields)}", "--format=csv,noheader,nounits")), mig_host)
    assert len(answer.splitlines()) == 1
    said = dict(zip(fields, answer.strip().split(", ")))
    assert len(said) == len(set(fields)) == len(set(fields) & set(said))
    used = 1024 + CONTEXT_MIB
    assert [said[f"memory.{what}"] for what in ("total", "used", "free")] == ["9984", str(used), str(9984 - used)]
    assert [said[what] for what in ("count", "index", "utilization.gpu", "utilization.memory")] == ["1", "0", "[N/A]", "[N/A]"]


def test_nvtop_in_an_instance(tools, mig_host, tmp_path):
    text, status = screen(in_instance(tools.nvtop, "-d", "2"), dict(mig_host.env, HOME=str(tmp_path)), 15, b"python3")
    assert status == 0 and "NVIDIA H100" in text and "T4" not in text, text
    assert re.search(r"1\.\d+Gi/9\.75\d*Gi", text), text
    assert mig_host.neighbour_pid not in text.split(), text
